//! Connections that do not get as far as a session.

use std::time::{Duration, Instant};

use dlx_proxy::amqp::frame;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Front, MIB};
use crate::lab::{each_broker, each_broker_alone, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_let_go() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[("DLX_PROXY_HANDSHAKE_TIMEOUT", "2s")]).await;
        let begun = Instant::now();
        // Nothing at all; the first bytes, one a time; a start-ok that never ends.
        let mut endless = frame::PROTOCOL.to_vec();
        endless.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0]);
        endless.resize(4096, b'x');
        let slow = async |bytes: &[u8], pause: Duration| {
            let mut stream = TcpStream::connect(front.program.address)
                .await
                .expect("accepted");
            let (mut from, mut to) = stream.split();
            let talk = async {
                for byte in bytes {
                    if to.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                }
                std::future::pending::<()>().await;
            };
            let listen = async {
                let mut heard = Vec::new();
                let _ = from.read_to_end(&mut heard).await;
            };
            tokio::select! {
                () = talk => {}
                () = within("the proxy lets it go", listen) => {}
            }
        };
        tokio::join!(
            slow(b"", Duration::ZERO),
            slow(&endless, Duration::from_millis(100)),
            slow(&endless, Duration::from_millis(1)),
        );
        assert!(begun.elapsed() >= Duration::from_secs(2));
        assert!(
            begun.elapsed() < Duration::from_secs(12),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(front.met("handshake-timeout").await, 3);
        front.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_opened_and_dropped_leave_nothing() {
    each_broker_alone(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[]).await;
        let once = async |round: usize| match round % 3 {
            // Not a word; a protocol header; a whole handshake.
            0 => drop(TcpStream::connect(front.program.address).await),
            1 => {
                if let Ok(mut stream) = TcpStream::connect(front.program.address).await {
                    let _ = stream.write_all(&frame::PROTOCOL).await;
                }
            }
            _ => drop(front.client().await),
        };
        let flood = async |rounds: usize| {
            let mut running = FuturesUnordered::new();
            for round in 0..rounds {
                running.push(once(round));
                if running.len() == 20 {
                    running.next().await;
                }
            }
            while running.next().await.is_some() {}
        };
        flood(300).await;
        front.is_empty().await;
        until("all sockets are closed", async || {
            front.program.files() < 40
        })
        .await;
        let (files, memory) = (front.program.files(), front.program.resident());
        let begun = Instant::now();
        flood(3_000).await;
        let a_minute = 3_000.0 * 60.0 / begun.elapsed().as_secs_f64();
        front.is_empty().await;
        until("all sockets are closed", async || {
            front.program.files() <= files
        })
        .await;
        let grown = front.program.resident().saturating_sub(memory);
        println!(
            "{}: {a_minute:.0} a minute, {grown} KiB more",
            broker.version
        );
        assert!(grown < 8 * MIB, "{grown} KiB");
        front.program.stop().await;
    })
    .await;
}
