//! The driver between two sockets.

mod wakers;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::clock::SystemClock;

type Fx = Effects<()>;

/// A machine that does what a test says.
struct Stub {
    reads: fn(&[u8], &mut Fx) -> usize,
    /// Its last words to the client.
    ends_with: &'static [u8],
    most_backlog: usize,
    accepts: bool,
    heard: Vec<&'static str>,
    ended: bool,
}

struct Nowhere;

impl Default for Stub {
    fn default() -> Stub {
        Stub {
            reads: |bytes, _| bytes.len(),
            ends_with: b"",
            most_backlog: usize::MAX,
            accepts: true,
            heard: Vec::new(),
            ended: false,
        }
    }
}

/// Forwards the broker's bytes, answers them, and ends with bytes for the client.
fn talker() -> Stub {
    Stub {
        reads: |bytes, fx| {
            fx.client.pass(bytes, 0..bytes.len());
            fx.broker.put(bytes, b"an answer");
            bytes.len()
        },
        ends_with: b", the end",
        ..Stub::default()
    }
}

/// Forwards words of four octets, each with more than a socket takes at once, and waits until they
/// are written.
fn swelling() -> Stub {
    Stub {
        reads: |bytes, fx| {
            let Some(word) = bytes.get(..4) else { return 0 };
            fx.broker.put(bytes, &vec![0; SWOLLEN]);
            fx.broker.put(bytes, word);
            4
        },
        most_backlog: 0,
        ..Stub::default()
    }
}

const SWOLLEN: usize = 16 << 20;

impl Machine for Stub {
    type Input = &'static str;
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Fx) {}

    fn read(&mut self, _from: Leg, bytes: &[u8], _now: Now, fx: &mut Fx) -> usize {
        (self.reads)(bytes, fx)
    }

    fn closed(&mut self, _leg: Leg, _now: Now, fx: &mut Fx) {
        fx.client.put(&[], self.ends_with);
        self.ended = true;
    }

    fn input(&mut self, input: &'static str, _now: Now, _fx: &mut Fx) {
        self.heard.push(input);
    }

    fn drain(&mut self, _now: Now, _fx: &mut Fx) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Fx) {}

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn wants_read(&self, _leg: Leg, backlog: usize) -> bool {
        backlog <= self.most_backlog
    }

    fn accepts(&self) -> bool {
        self.accepts
    }

    fn flow(&self) -> Flow {
        match self.ended {
            true => Flow::Finish,
            false => Flow::Open,
        }
    }
}

impl<M: Machine<Output = ()>> Outlet<M> for Nowhere {
    fn dispatch(&mut self, _: &M, _: &mut Fx, _: Now, _: &mut Context<'_>) {}
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let peer = TcpStream::connect(address).await.expect("connected");
    (listener.accept().await.expect("accepted").0, peer)
}

type Driven = Drive<Stub, Nowhere, TcpStream, SystemClock>;

fn session(stub: Stub, client: TcpStream, broker: TcpStream) -> Driven {
    let (_, inbox) = mpsc::channel(1);
    Drive::session(stub, Nowhere, inbox, SystemClock::start(), client, broker)
}

/// What the client hears of a broker that says this, and to which nothing can be written then.
async fn heard_of(news: &[u8]) -> Vec<u8> {
    let ((client, mut listening), (broker, mut speaking)) = (pair().await, pair().await);
    speaking.write_all(news).await.expect("sent");
    speaking.set_zero_linger().expect("an option");
    drop(speaking);
    let mut drive = session(talker(), client, broker);
    let task = tokio::spawn(async move { drive.run(std::future::pending()).await });
    let mut heard = Vec::new();
    let end = listening.read_to_end(&mut heard).await;
    task.await.expect("it has ended");
    assert!(
        end.is_err(),
        "the reset is passed on as one, behind all that was said"
    );
    heard
}

#[tokio::test]
async fn what_the_broker_said_is_read_to_its_end_though_nothing_can_be_written_to_it() {
    let heard = heard_of(b"the last news").await;
    assert_eq!(String::from_utf8_lossy(&heard), "the last news, the end");
    // More than one read takes: the first answer to it fails.
    let news = vec![b'n'; 3 * SCRATCH / 2];
    let heard = heard_of(&news).await;
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
    let mut drive = session(swelling(), client, broker);
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

/// Otherwise it would stay full forever, because only answers make room.
#[tokio::test]
async fn answers_are_heard_while_nothing_is_accepted() {
    let (asks, inbox) = mpsc::channel(1);
    let (answer, answers) = mpsc::channel(1);
    let connector: Connector<TcpStream> = Box::new(|| Box::pin(std::future::pending()));
    let full = Stub {
        accepts: false,
        ..Stub::default()
    };
    let drive = Drive::link(full, Nowhere, inbox, SystemClock::start(), connector);
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
