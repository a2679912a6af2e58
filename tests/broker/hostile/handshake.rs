//! Connections that do not get as far as a session, or bring nothing but noise.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use dlx_proxy::amqp::frame;
use dlx_proxy::amqp::table::TableBuilder;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Front, MIB};
use crate::lab::{each_broker, each_broker_alone, until, within};
use crate::raw::Raw;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_does_not_end_is_let_go() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[("DLX_PROXY_HANDSHAKE_TIMEOUT", "2s")]).await;
        let begun = Instant::now();
        // Nothing at all; the first octets, one a time; a start-ok that never ends.
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
async fn garbage_is_answered_by_the_broker_and_leaves_nothing() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[]).await;
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        let mut noise = |len: usize| -> Vec<u8> {
            let next = |_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            };
            (0..len).map(next).collect()
        };
        for round in 0..20 {
            let mut stream = TcpStream::connect(front.program.address)
                .await
                .expect("accepted");
            let mut bytes = noise(1 << (round % 14));
            if round % 2 == 0 {
                bytes.splice(0..0, frame::PROTOCOL);
            }
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut heard = Vec::new();
            let _ = within("the end of a bad beginning", stream.read_to_end(&mut heard)).await;
        }
        for round in 0..20 {
            let mut client = front.client().await;
            let garbage = noise(16 << (round % 10));
            client.send(&garbage).await;
            // A frame whose announced size never comes would be awaited: the end of the stream ends that.
            drop(client);
        }
        front.is_empty().await;
        let mut client = front.client().await;
        client.declare(1, "still-there", &[]).await;
        client.close().await;
        front.program.stop().await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_sockets_at_the_admin_port_do_not_hide_the_answer() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[("DLX_PROXY_ADMIN_TIMEOUT", "1h")]).await;
        let mut silent = Vec::new();
        for number in 0..200 {
            let mut stream = TcpStream::connect(front.program.admin.0)
                .await
                .expect("accepted");
            if number % 2 == 0 {
                let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n").await;
            }
            silent.push(stream);
        }
        assert_eq!(front.program.admin.get("/healthz").await.0, 200);
        assert!(front.met("max-admin-connections").await > 0);
        // Each who comes makes one of them go.
        until("the first is let go", async || {
            let read = silent[0].try_read(&mut [0; 1]);
            read.map_or_else(
                |error| error.kind() != ErrorKind::WouldBlock,
                |octets| octets == 0,
            )
        })
        .await;
        drop(silent);
        front.end().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_name_stays_in_its_line() {
    each_broker(async |broker, vhost| {
        let front = Front::start(broker, vhost, &[("DLX_PROXY_LOG_LEVEL", "debug")]).await;
        let mut properties = TableBuilder::default();
        let name = "x\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[2J\u{1b}]0;title\u{7}";
        properties.longstr(b"connection_name", name.as_bytes());
        let port = front.program.address.port();
        let properties = properties.finish();
        let client = Raw::open_as(broker, port, vhost, Default::default(), &properties).await;
        let shown = r#"connection="x\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[2J\u{1b}]0;title\u{7}"}: session opened"#;
        front.program.has_lines(1, &[shown]).await;
        client.close().await;
        let controls = |line: &String| line.contains(char::is_control);
        assert!(!front.program.lines(&[]).iter().any(controls));
        front.end().await;
    })
    .await;
}
