//! The driver between two sockets.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Passes on what the broker says, answers it, and has a last word for the client.
#[derive(Default)]
struct Talker {
    ended: bool,
}

struct Nowhere;

impl Machine for Talker {
    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects) {}

    fn read(&mut self, _from: Leg, bytes: &[u8], _now: Now, fx: &mut Effects) -> usize {
        fx.client.pass(bytes, 0..bytes.len());
        fx.broker.put(bytes, b"an answer");
        bytes.len()
    }

    fn closed(&mut self, _leg: Leg, _now: Now, fx: &mut Effects) {
        fx.client.put(&[], b", the end");
        self.ended = true;
    }

    fn input(&mut self, _input: Input, _now: Now, _fx: &mut Effects) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Effects) {}

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn wants_read(&self, _leg: Leg, _backlog: usize) -> bool {
        true
    }

    fn flow(&self) -> Flow {
        match self.ended {
            true => Flow::Finish,
            false => Flow::Open,
        }
    }
}

impl<M> Outlet<M> for Nowhere {
    fn dispatch(&mut self, _machine: &M, _fx: &mut Effects, _cx: &mut Context<'_>) {}
}

/// Ours, and the peer's.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let peer = TcpStream::connect(address).await.expect("connected");
    (listener.accept().await.expect("accepted").0, peer)
}

#[tokio::test]
async fn an_error_of_one_leg_cuts_off_nothing_on_its_way_to_the_other() {
    let ((client, mut listening), (broker, mut speaking)) = (pair().await, pair().await);
    // What it said can still be read, but nothing be written.
    speaking.write_all(b"the last news").await.expect("sent");
    speaking.set_zero_linger().expect("an option");
    drop(speaking);
    let (_sender, inbox) = mpsc::channel(1);
    let talker = Talker::default();
    Drive::session(talker, Nowhere, inbox, Clock::start(), client, broker)
        .run(std::future::pending())
        .await;
    let mut heard = Vec::new();
    // The reset is passed on as one, behind all that was said.
    let _ = listening.read_to_end(&mut heard).await;
    assert_eq!(String::from_utf8_lossy(&heard), "the last news, the end");
}
