//! The driver between two sockets.

mod wakers;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::clock::SystemClock;

/// Forwards the broker's bytes, answers them, and ends with bytes for the client.
#[derive(Default)]
struct Talker {
    ended: bool,
}

struct Nowhere;

impl Machine for Talker {
    type Input = ();
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn read(&mut self, _from: Leg, bytes: &[u8], _now: Now, fx: &mut Effects<()>) -> usize {
        fx.client.pass(bytes, 0..bytes.len());
        fx.broker.put(bytes, b"an answer");
        bytes.len()
    }

    fn closed(&mut self, _leg: Leg, _now: Now, fx: &mut Effects<()>) {
        fx.client.put(&[], b", the end");
        self.ended = true;
    }

    fn input(&mut self, (): (), _now: Now, _fx: &mut Effects<()>) {}

    fn drain(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Effects<()>) {}

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

/// Forwards words of four octets, each with more than a socket takes at once, and waits until they
/// are written.
struct Swelling;

const SWOLLEN: usize = 16 << 20;

impl Machine for Swelling {
    type Input = ();
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn read(&mut self, _from: Leg, bytes: &[u8], _now: Now, fx: &mut Effects<()>) -> usize {
        let Some(word) = bytes.get(..4) else { return 0 };
        fx.broker.put(bytes, &vec![0; SWOLLEN]);
        fx.broker.put(bytes, word);
        4
    }

    fn closed(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn input(&mut self, (): (), _now: Now, _fx: &mut Effects<()>) {}

    fn drain(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn wants_read(&self, _leg: Leg, backlog: usize) -> bool {
        backlog == 0
    }

    fn flow(&self) -> Flow {
        Flow::Open
    }
}

impl<M: Machine<Output = ()>> Outlet<M> for Nowhere {
    fn dispatch(&mut self, _: &M, _: &mut Effects<()>, _: Now, _: &mut Context<'_>) {}
}

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
    Drive::session(talker, Nowhere, inbox, SystemClock::start(), client, broker)
        .run(std::future::pending())
        .await;
    let mut heard = Vec::new();
    // The reset is passed on as one, behind all that was said.
    let _ = listening.read_to_end(&mut heard).await;
    assert_eq!(String::from_utf8_lossy(&heard), "the last news, the end");
}

#[tokio::test]
async fn what_the_broker_said_is_read_to_its_end_though_nothing_can_be_written_to_it() {
    let ((client, mut listening), (broker, mut speaking)) = (pair().await, pair().await);
    // More than one read takes: the first answer to it fails.
    let news = vec![b'n'; 3 * SCRATCH / 2];
    speaking.write_all(&news).await.expect("sent");
    speaking.set_zero_linger().expect("an option");
    drop(speaking);
    let (_sender, inbox) = mpsc::channel(1);
    let talker = Talker::default();
    let mut drive = Drive::session(talker, Nowhere, inbox, SystemClock::start(), client, broker);
    let task = tokio::spawn(async move { drive.run(std::future::pending()).await });
    let mut heard = Vec::new();
    let end = listening.read_to_end(&mut heard).await;
    task.await.expect("it has ended");
    assert!(end.is_err(), "the reset is passed on as one");
    assert!(
        heard.starts_with(&news),
        "{} of {}",
        heard.len(),
        news.len()
    );
}

#[tokio::test]
async fn what_was_held_back_and_is_not_complete_does_not_stop_the_leg() {
    let ((client, mut speaking), (broker, mut listening)) = (pair().await, pair().await);
    let (_sender, inbox) = mpsc::channel(1);
    let clock = SystemClock::start();
    let mut drive = Drive::session(Swelling, Nowhere, inbox, clock, client, broker);
    let task = tokio::spawn(async move { drive.run(std::future::pending()).await });
    let mut heard = vec![0; SWOLLEN + 4];
    speaking.write_all(b"one tw").await.expect("sent");
    listening.read_exact(&mut heard).await.expect("one");
    // By now the beginning of the second word has been offered again. Nothing but its end can wake the driver.
    tokio::time::sleep(Duration::from_millis(100)).await;
    speaking.write_all(b"o ").await.expect("sent");
    let second = tokio::time::timeout(Duration::from_secs(5), listening.read_exact(&mut heard));
    second.await.expect("it is awake").expect("two");
    assert_eq!(heard.get(SWOLLEN..), Some(&b"two "[..]));
    task.abort();
}

#[derive(Default)]
struct Full {
    heard: Vec<&'static str>,
}

impl Machine for Full {
    type Input = &'static str;
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn read(&mut self, _from: Leg, bytes: &[u8], _now: Now, _fx: &mut Effects<()>) -> usize {
        bytes.len()
    }

    fn closed(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn input(&mut self, input: &'static str, _now: Now, _fx: &mut Effects<()>) {
        self.heard.push(input);
    }

    fn drain(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn wants_read(&self, _leg: Leg, _backlog: usize) -> bool {
        true
    }

    fn accepts(&self) -> bool {
        false
    }

    fn flow(&self) -> Flow {
        Flow::Open
    }
}

/// Otherwise it would stay full forever, because only answers make room.
#[tokio::test]
async fn answers_are_heard_while_nothing_is_accepted() {
    let (asks, inbox) = mpsc::channel(1);
    let (answer, answers) = mpsc::channel(1);
    let connector: Connector<TcpStream> = Box::new(|| Box::pin(std::future::pending()));
    let drive = Drive::link(
        Full::default(),
        Nowhere,
        inbox,
        SystemClock::start(),
        connector,
    );
    let mut drive = drive.with_answers(answers);
    asks.try_send("a publication").unwrap();
    answer.try_send("an answer").unwrap();
    assert!(drive.waits().inbox);
    std::future::poll_fn(|cx| {
        assert!(drive.poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    assert_eq!(drive.machine().heard, ["an answer"]);
    assert!(!drive.waits().inbox);
}
