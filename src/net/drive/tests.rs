//! The driver between two sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::clock::SystemClock;

type Fx = Effects<()>;

/// A machine that does what a test says.
struct Stub {
    reads: fn(&Stub, Leg, &[u8], &mut Fx) -> usize,
    /// Its last words to the client.
    ends_with: &'static [u8],
    /// Bytes before each word that it forwards.
    swells: usize,
    most_backlog: usize,
    /// Legs that are read only when the client has ended.
    waits_for_end: Option<Leg>,
    accepts: bool,
    heard: Vec<&'static str>,
    /// When it was told of bytes.
    told: Vec<(Leg, Mono)>,
    ended: Option<Leg>,
}

struct Nowhere;

impl Default for Stub {
    fn default() -> Stub {
        Stub {
            reads: |_, _, bytes, _| bytes.len(),
            ends_with: b"",
            swells: 0,
            most_backlog: usize::MAX,
            waits_for_end: None,
            accepts: true,
            heard: Vec::new(),
            told: Vec::new(),
            ended: None,
        }
    }
}

/// Forwards the broker's bytes, answers them, and ends with bytes for the client.
fn talker() -> Stub {
    Stub {
        reads: |_, _, bytes, fx| {
            fx.client.pass(bytes, 0..bytes.len());
            fx.broker.put(bytes, b"an answer");
            bytes.len()
        },
        ends_with: b", the end",
        ..Stub::default()
    }
}

/// Forwards one word of four bytes at a time, with others before it, and reads on when they are
/// written.
fn swelling(swells: usize) -> Stub {
    Stub {
        reads: |stub, from, bytes, fx| {
            let wire = fx.wire(from.other());
            assert_eq!(wire.buffered(), 0, "it is not asked before");
            let Some(word) = bytes.get(..4) else { return 0 };
            wire.put(bytes, &vec![0; stub.swells]);
            wire.put(bytes, word);
            4
        },
        swells,
        most_backlog: 0,
        ..Stub::default()
    }
}

impl Machine for Stub {
    type Input = &'static str;
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Fx) {}

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Fx) -> usize {
        self.told.push((from, now.mono));
        (self.reads)(self, from, bytes, fx)
    }

    fn closed(&mut self, leg: Leg, _now: Now, fx: &mut Fx) {
        fx.client.put(&[], self.ends_with);
        self.ended = Some(leg);
    }

    fn input(&mut self, input: &'static str, _now: Now, _fx: &mut Fx) {
        self.heard.push(input);
    }

    fn drain(&mut self, _now: Now, _fx: &mut Fx) {}

    fn timeout(&mut self, _now: Now, _fx: &mut Fx) {}

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        let waits = self.waits_for_end == Some(leg) && self.ended.is_none();
        !waits && backlog <= self.most_backlog
    }

    fn accepts(&self) -> bool {
        self.accepts
    }

    fn flow(&self) -> Flow {
        match self.ended {
            Some(Leg::Broker) => Flow::Finish,
            Some(Leg::Client) => Flow::HalfClosed,
            None => Flow::Open,
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

/// A whole word behind another one, and the beginning of a third, whose end comes alone.
#[tokio::test]
async fn what_was_held_back_is_offered_again_and_what_is_not_complete_does_not_stop_the_leg() {
    // More than a socket takes at once, or written before the machine is asked again.
    for (swells, from) in [
        (16 << 20, Leg::Client),
        (16 << 20, Leg::Broker),
        (0, Leg::Client),
        (0, Leg::Broker),
    ] {
        let ((client, at_client), (broker, at_broker)) = (pair().await, pair().await);
        let mut drive = session(swelling(swells), client, broker);
        let task = tokio::spawn(async move { drive.run(std::future::pending()).await });
        let (mut speaking, mut listening) = match from {
            Leg::Client => (at_client, at_broker),
            Leg::Broker => (at_broker, at_client),
        };
        let mut heard = vec![0; swells + 4];
        for (said, words) in [("one two th", &["one ", "two "][..]), ("r ", &["thr "])] {
            speaking.write_all(said.as_bytes()).await.expect("sent");
            for word in words {
                let next = listening.read_exact(&mut heard);
                let next = tokio::time::timeout(Duration::from_secs(20), next).await;
                next.expect("it is awake").expect("a word");
                assert_eq!(heard.get(swells..), Some(word.as_bytes()));
            }
            // By now the beginning of the next word has been offered again. Nothing but its end can wake the driver.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        task.abort();
    }
}

/// A flood keeps a session ready for as long as it lasts. Others on its thread hear what came for them all the same, whenever it yields.
#[tokio::test]
async fn a_flooded_session_keeps_no_event_from_others() {
    let ((client, mut flooding), (broker, mut flooded)) = (pair().await, pair().await);
    let (mut other, mut speaking) = pair().await;
    speaking.write_all(b"?").await.expect("sent");
    other.read_u8().await.expect("heard");
    let other = tokio::spawn(async move { other.read_u8().await });
    let words = [b'.'; SCRATCH / 2];
    flooding.write_all(&words).await.expect("sent");
    // A word a turn.
    let mut drive = session(swelling(0), client, broker);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let task = tokio::spawn(std::future::poll_fn(move |cx| {
        counted.fetch_add(1, Relaxed);
        drive.poll(cx)
    }));
    flooded.read_exact(&mut [0; 4]).await.expect("it has begun");
    let begun = polls.load(Relaxed);
    speaking.write_all(b"!").await.expect("sent");
    other.await.expect("it has ended").expect("heard");
    task.abort();
    let meanwhile = polls.load(Relaxed) - begun;
    assert!(meanwhile <= 4, "{meanwhile} polls");
}

#[tokio::test]
async fn the_end_of_a_client_may_be_what_the_machine_has_waited_for() {
    let ((client, mut at_client), (broker, mut at_broker)) = (pair().await, pair().await);
    let patient = Stub {
        reads: |_, _, bytes, fx| {
            fx.client.pass(bytes, 0..bytes.len());
            bytes.len()
        },
        waits_for_end: Some(Leg::Broker),
        ..Stub::default()
    };
    let mut drive = session(patient, client, broker);
    let task = tokio::spawn(async move { drive.run(std::future::pending()).await });
    at_broker.write_all(b"news").await.expect("sent");
    tokio::time::sleep(Duration::from_millis(50)).await;
    at_client.shutdown().await.expect("ended");
    let mut heard = [0; 4];
    let all = tokio::time::timeout(Duration::from_secs(20), at_client.read_exact(&mut heard));
    all.await.expect("it is awake").expect("all");
    assert_eq!(&heard, b"news");
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

/// Else a delay would begin before the client has asked for it.
#[tokio::test]
async fn time_goes_on_while_the_other_leg_is_read() {
    const LONG: Duration = Duration::from_millis(20);
    let ((client, mut asking), (broker, mut speaking)) = (pair().await, pair().await);
    for peer in [&mut asking, &mut speaking] {
        peer.write_all(b"word").await.expect("sent");
    }
    client.readable().await.expect("it is open");
    broker.readable().await.expect("it is open");
    let stub = Stub {
        reads: |_, from, bytes, _| {
            if from == Leg::Broker {
                std::thread::sleep(LONG);
            }
            bytes.len()
        },
        ..Stub::default()
    };
    let mut drive = session(stub, client, broker);
    std::future::poll_fn(|cx| Poll::Ready(drive.poll(cx).is_ready())).await;
    let [(Leg::Broker, first), (Leg::Client, then)] = drive.machine().told[..] else {
        panic!("{:?}", drive.machine().told);
    };
    assert!(first.until(then) >= LONG, "{first:?} {then:?}");
}
