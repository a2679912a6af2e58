//! Nobody sleeps in vain: whenever the driver is pending, all that its machine waits for will wake it. Streams keep the wakers that they were
//! given; reads, writes and flushes are partial; the machine pauses each leg for inputs, for a time and for a backlog.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Wake, Waker};

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;
use crate::machine::Wall;

/// Octets of a word, the unit in which the machine consumes.
const WORD: usize = 3;
/// What the machine says by itself; no word has it.
const OWN: u8 = 255;
/// How long it pauses for a time.
const NAP: Duration = Duration::from_micros(10);

#[derive(Clone, Debug)]
enum Step {
    /// That many more octets arrive on a leg.
    Come(usize, usize),
    /// There is room for that many more octets.
    Room(usize, usize),
    /// What a stream kept goes out.
    Flush(usize),
    Input,
    Later(u64),
    /// The peer ends its stream.
    End(usize),
    /// The connection breaks.
    Break(usize),
}

/// A connection, seen from both ends.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Side>>);

#[derive(Default)]
struct Side {
    incoming: VecDeque<u8>,
    ended: bool,
    broken: bool,
    room: usize,
    /// Octets that one read or write takes, at most.
    piece: usize,
    /// It keeps what is written until it is flushed, and that takes its time.
    keeps: bool,
    kept: bool,
    written: Vec<u8>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Passes words from leg to leg, and does to itself what they say.
#[derive(Default)]
struct Moody {
    /// Legs that are not read until an input comes, until a time has passed.
    for_input: [bool; 2],
    for_time: [bool; 2],
    /// It has paused with this word in front.
    seen: [bool; 2],
    deadline: Option<Mono>,
    /// No inputs until all is written.
    shut: bool,
    backlog: usize,
    closed: [bool; 2],
}

#[derive(Clone, Default)]
struct Manual(Arc<Mutex<Alarm>>);

/// What time it is, and who is woken when.
#[derive(Default)]
struct Alarm(u64, Option<(u64, Waker)>);

#[derive(Default)]
struct Woken(AtomicBool);

// === impl Socket ===

impl Socket {
    fn lock(&self) -> MutexGuard<'_, Side> {
        self.0.lock().expect("no panic")
    }

    fn change(&self, change: impl FnOnce(&mut Side)) {
        let mut side = self.lock();
        change(&mut side);
        let wakers = [side.reader.take(), side.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Stream for Socket {
    fn reset_when_closed(&mut self) {}
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut side = self.lock();
        if side.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if side.incoming.is_empty() && !side.ended {
            side.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let most = side.piece.min(side.incoming.len());
        buffer.put_slice(&side.incoming.drain(..most).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut side = self.lock();
        if side.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let taken = side.piece.min(side.room).min(bytes.len());
        if taken == 0 {
            side.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        side.room -= taken;
        side.kept = side.keeps;
        side.written.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut side = self.lock();
        match side.kept {
            true => {
                side.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            false => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

// === impl Moody ===

impl Machine for Moody {
    type Input = ();
    type Output = ();

    fn connected(&mut self, _leg: Leg, _now: Now, _fx: &mut Effects<()>) {}

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects<()>) -> usize {
        let (leg, mut at) = (from as usize, 0);
        while let Some(word) = bytes.get(at..at + WORD)
            && self.wants_read(from, fx.wire(from.other()).buffered())
        {
            match word[0] {
                1 => self.for_input[leg] = true,
                2 => {
                    self.for_time[leg] = true;
                    self.deadline = Some(now.mono.after(NAP));
                }
                3 if !self.shut => {
                    self.shut = true;
                    fx.wire(from).put(bytes, &[OWN; 20]);
                }
                4 => fx.wire(from.other()).put(bytes, &[OWN; 40]),
                5 => self.for_input[from.other() as usize] = true,
                6 if !std::mem::replace(&mut self.seen[leg], true) => {
                    self.for_input[leg] = true;
                    return at;
                }
                _ => {}
            }
            self.seen[leg] = false;
            fx.wire(from.other()).pass(bytes, at..at + WORD);
            at += WORD;
        }
        at
    }

    fn closed(&mut self, leg: Leg, _now: Now, fx: &mut Effects<()>) {
        self.closed[leg as usize] = true;
        self.for_input = [false; 2];
        fx.wire(leg.other()).put(&[], &[OWN; 10]);
    }

    fn input(&mut self, (): (), _now: Now, fx: &mut Effects<()>) {
        self.for_input = [false; 2];
        fx.broker.put(&[], &[OWN]);
    }

    fn drain(&mut self, _now: Now, _fx: &mut Effects<()>) {}

    fn timeout(&mut self, _now: Now, fx: &mut Effects<()>) {
        self.deadline = None;
        self.for_time = [false; 2];
        fx.client.put(&[], &[OWN]);
    }

    fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        let paused = self.for_input[leg as usize] || self.for_time[leg as usize];
        !paused && backlog <= self.backlog
    }

    fn drained(&mut self, _now: Now, _fx: &mut Effects<()>) {
        self.shut = false;
    }

    fn accepts(&self) -> bool {
        !self.shut
    }

    fn flow(&self) -> Flow {
        match self.closed {
            [_, true] => Flow::Finish,
            [true, false] => Flow::HalfClosed,
            [false, false] => Flow::Open,
        }
    }
}

// === impl Manual ===

impl Manual {
    fn set(&self, at: u64) {
        let mut clock = self.0.lock().expect("no panic");
        clock.0 = at;
        if let Some((_, waker)) = clock.1.take_if(|(due, _)| *due <= at) {
            waker.wake();
        }
    }
}

impl Clock for Manual {
    type Timer = ();

    fn now(&self) -> Now {
        let mono = Mono(self.0.lock().expect("no panic").0);
        Now {
            mono,
            wall: Wall(0),
        }
    }

    fn poll_until(&self, (): &mut (), at: Mono, cx: &mut Context<'_>) -> Poll<()> {
        let mut clock = self.0.lock().expect("no panic");
        if at.0 <= clock.0 {
            return Poll::Ready(());
        }
        clock.1 = Some((at.0, cx.waker().clone()));
        Poll::Pending
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A driver, and all that is around it.
struct Scene {
    drive: Drive<Moody, Nowhere, Socket, Manual>,
    sockets: [Socket; 2],
    /// What is to come on each leg.
    words: [VecDeque<u8>; 2],
    sender: mpsc::Sender<()>,
    clock: Manual,
    woken: Arc<Woken>,
    over: bool,
}

impl Scene {
    fn new(words: [Vec<u8>; 2], pieces: [usize; 2], keeps: bool, backlog: usize) -> Scene {
        let sockets = pieces.map(|piece| {
            let side = Side {
                piece,
                keeps,
                ..Side::default()
            };
            Socket(Arc::new(Mutex::new(side)))
        });
        let (clock, (sender, inbox)) = (Manual::default(), mpsc::channel(4));
        let moody = Moody {
            backlog,
            ..Moody::default()
        };
        let [client, broker] = sockets.clone();
        Scene {
            drive: Drive::session(moody, Nowhere, inbox, clock.clone(), client, broker),
            sockets,
            words: words.map(Into::into),
            sender,
            clock,
            woken: Arc::new(Woken(AtomicBool::new(true))),
            over: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Come(leg, most) => {
                let most = most.min(self.words[leg].len());
                let bytes: Vec<u8> = self.words[leg].drain(..most).collect();
                self.sockets[leg].change(|side| side.incoming.extend(bytes));
            }
            Step::Room(leg, more) => self.sockets[leg].change(|side| side.room += more),
            Step::Flush(leg) => self.sockets[leg].change(|side| side.kept = false),
            Step::Input => drop(self.sender.try_send(())),
            Step::Later(micros) => {
                let now = self.clock.now().mono.0;
                self.clock.set(now + micros);
            }
            Step::End(leg) => self.sockets[leg].change(|side| side.ended = true),
            Step::Break(leg) => self.sockets[leg].change(|side| side.broken = true),
        }
    }

    /// Polls while it is woken. What it sleeps through, then.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        let waker = Waker::from(self.woken.clone());
        while !self.over && self.woken.0.swap(false, Ordering::Relaxed) {
            self.over = self.drive.poll(&mut Context::from_waker(&waker)).is_ready();
        }
        if self.over {
            return Ok(());
        }
        let waits = self.drive.waits();
        for leg in [Leg::Client, Leg::Broker] {
            let side = self.sockets[leg as usize].lock();
            let at = leg as usize;
            prop_assert!(!waits.read[at] || side.reader.is_some(), "{leg:?} to read");
            let writes =
                waits.write[at] || side.kept && !side.broken && self.drive.stream(leg).is_some();
            prop_assert!(!writes || side.writer.is_some(), "{leg:?} to write");
        }
        prop_assert!(!waits.inbox, "something in the inbox");
        let armed = self.clock.0.lock().expect("no panic");
        let armed = armed.1.as_ref().map(|(at, _)| Mono(*at));
        prop_assert!(
            waits
                .until
                .is_none_or(|at| armed.is_some_and(|armed| armed <= at))
        );
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    let leg = 0..2_usize;
    prop_oneof![
        8 => (leg.clone(), 1..12_usize).prop_map(|(leg, most)| Step::Come(leg, most)),
        8 => (leg.clone(), 1..50_usize).prop_map(|(leg, more)| Step::Room(leg, more)),
        4 => leg.clone().prop_map(Step::Flush),
        4 => Just(Step::Input),
        4 => (1..20_u64).prop_map(Step::Later),
        1 => leg.clone().prop_map(Step::End),
        1 => leg.prop_map(Step::Break),
    ]
}

fn words() -> impl Strategy<Value = Vec<u8>> {
    vec((0..9_u8, 0..100_u8, 0..100_u8), 0..20)
        .prop_map(|words| words.into_iter().flat_map(|(a, b, c)| [a, b, c]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whoever_is_pending_is_woken_and_all_words_arrive(
        words in [words(), words()],
        pieces in [1..40_usize, 1..40_usize],
        keeps in any::<bool>(),
        backlog in prop_oneof![Just(0), Just(15), Just(usize::MAX)],
        steps in vec(step(), 0..80),
    ) {
        let mut scene = Scene::new(words.clone(), pieces, keeps, backlog);
        scene.settle()?;
        for step in &steps {
            scene.step(step);
            scene.settle()?;
        }
        // Now everybody reads, answers and waits: what came must go.
        for _ in 0..100 {
            for leg in [0, 1] {
                for step in [Step::Come(leg, 100), Step::Room(leg, 100), Step::Flush(leg), Step::Input, Step::Later(10)] {
                    scene.step(&step);
                    scene.settle()?;
                }
            }
        }
        let sides = scene.sockets.each_ref().map(Socket::lock);
        let whole = sides.iter().all(|side| !side.broken && !side.ended);
        prop_assert!(whole || scene.over || !sides[1].broken && !sides[1].ended);
        for (from, to) in [(0, 1), (1, 0)] {
            let passed: Vec<u8> = sides[to].written.iter().copied().filter(|octet| *octet != OWN).collect();
            match whole {
                true => prop_assert_eq!(&passed, &words[from]),
                false => prop_assert!(words[from].starts_with(&passed)),
            }
        }
    }
}
