//! One small driver pumps any machine: it reads, calls, writes and sleeps, and decides nothing.
//!
//! One task drives both legs and never awaits a write. Each wake-up serves the inbox first (its acks free prefetch), then the broker's
//! and the client's leg, in at most `TURNS` turns. Bytes are read into a scratch buffer of the thread and written straight from it;
//! only what a socket did not take is kept, so that an idle machine owns no buffer.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::machine::{Effects, Flow, Input, Leg, Machine, Mono, Now};

/// Turns per wake-up: after them the task lets others run.
const TURNS: usize = 16;
/// What is read at once.
const SCRATCH: usize = 64 * 1024;
/// How long a machine that has ended may take to write its last bytes.
const LAST_WORDS: Duration = Duration::from_secs(5);

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into_boxed_slice());
}

/// The two clocks of the process; machines are told the time, they never look.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// Where effects go that are not bytes.
pub trait Outlet<M> {
    /// Takes from `fx` what it can; what must wait stays there, and `cx` is woken when it can go.
    fn dispatch(&mut self, machine: &M, fx: &mut Effects, cx: &mut Context<'_>);

    /// Bytes that were read from a leg, for the counters.
    fn count(&mut self, _from: Leg, _bytes: usize) {}
}

/// Opens the broker leg of a link, again and again.
pub type Connector = Box<dyn FnMut() -> Connecting + Send>;
type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// A machine with its sockets.
pub struct Drive<M, O> {
    machine: M,
    outlet: O,
    inbox: mpsc::Receiver<Input>,
    clock: Clock,
    client: Option<Pipe>,
    broker: Option<Pipe>,
    connector: Option<Connector>,
    connecting: Option<Connecting>,
    fx: Effects,
    /// A socket did not take all that there was for it.
    backlog: bool,
    timer: Option<Pin<Box<Sleep>>>,
    armed: Option<Mono>,
    last_words: Option<Mono>,
}

/// One socket and what was read but not consumed.
struct Pipe {
    stream: TcpStream,
    rest: Vec<u8>,
    /// The rest is the beginning of something: it is offered again only with more behind it.
    starved: bool,
    /// The peer has ended its stream, we ours.
    ended: [bool; 2],
}

const THEIRS: usize = 0;
const OURS: usize = 1;

// === impl Clock ===

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    /// The time on both clocks.
    pub fn now(&self) -> Now {
        let mono = Mono(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX));
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Now { mono, wall }
    }

    fn instant(&self, mono: Mono) -> tokio::time::Instant {
        let far = Duration::from_secs(3600 * 24 * 365);
        tokio::time::Instant::from_std(self.start + Duration::from_micros(mono.0).min(far))
    }
}

// === impl Drive ===

impl<M: Machine, O: Outlet<M>> Drive<M, O> {
    /// A session: both legs are connected.
    pub fn session(
        machine: M,
        outlet: O,
        inbox: mpsc::Receiver<Input>,
        clock: Clock,
        client: TcpStream,
        broker: TcpStream,
    ) -> Self {
        Drive {
            client: Some(Pipe::new(client)),
            broker: Some(Pipe::new(broker)),
            ..Drive::link(machine, outlet, inbox, clock, None)
        }
    }

    /// A link: its broker leg is opened by `connector` whenever the machine asks for it.
    pub fn link(
        machine: M,
        outlet: O,
        inbox: mpsc::Receiver<Input>,
        clock: Clock,
        connector: Option<Connector>,
    ) -> Self {
        Drive {
            machine,
            outlet,
            inbox,
            clock,
            client: None,
            broker: None,
            connector,
            connecting: None,
            fx: Effects::default(),
            backlog: false,
            timer: None,
            armed: None,
            last_words: None,
        }
    }

    /// Pumps until the machine has ended; it is told when `drained` is done.
    pub async fn run(mut self, drained: impl Future<Output = ()>) {
        let mut drained = std::pin::pin!(drained);
        let mut told = false;
        std::future::poll_fn(move |cx| {
            if !told && drained.as_mut().poll(cx).is_ready() {
                told = true;
                self.machine
                    .input(Input::Drain, self.clock.now(), &mut self.fx);
            }
            BUFFER.with_borrow_mut(|scratch| self.poll(cx, scratch))
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<()> {
        for _ in 0..TURNS {
            let mut progress = self.poll_inbox(cx);
            progress |= self.poll_connect(cx);
            for leg in [Leg::Broker, Leg::Client] {
                progress |= self.poll_read(leg, scratch, cx);
            }
            progress |= self.poll_write(cx);
            self.outlet.dispatch(&self.machine, &mut self.fx, cx);
            match self.machine.flow() {
                Flow::Finish => return self.poll_finish(cx),
                Flow::HalfClosed => self.poll_half_close(cx),
                Flow::Open | Flow::Reconnect(_) => {}
            }
            progress |= self.poll_timer(cx);
            if !progress {
                self.fx.client.release();
                self.fx.broker.release();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_inbox(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.machine.accepts() {
            match self.inbox.poll_recv(cx) {
                Poll::Ready(Some(input)) => {
                    self.machine.input(input, self.clock.now(), &mut self.fx)
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
            progress = true;
        }
        progress
    }

    /// Opens the broker leg of a link when the machine wants it.
    fn poll_connect(&mut self, cx: &mut Context<'_>) -> bool {
        let Flow::Reconnect(at) = self.machine.flow() else {
            return false;
        };
        let Some(connector) = &mut self.connector else {
            return false;
        };
        self.broker = None;
        let clock = self.clock;
        let connecting = self.connecting.get_or_insert_with(|| {
            let connect = connector();
            Box::pin(async move {
                tokio::time::sleep_until(clock.instant(at)).await;
                connect.await
            })
        });
        let Poll::Ready(result) = connecting.as_mut().poll(cx) else {
            return false;
        };
        self.connecting = None;
        self.fx.broker = Default::default();
        let now = self.clock.now();
        match result {
            Ok(stream) => {
                self.broker = Some(Pipe::new(stream));
                self.machine.connected(Leg::Broker, now, &mut self.fx);
            }
            Err(_) => self.machine.closed(Leg::Broker, now, &mut self.fx),
        }
        true
    }

    /// One read of one leg, or the rest of the last one when it was held back.
    fn poll_read(&mut self, leg: Leg, scratch: &mut [u8], cx: &mut Context<'_>) -> bool {
        if !self.wants_read(leg) {
            return false;
        }
        let Some(pipe) = self.pipe(leg).filter(|pipe| !pipe.ended[THEIRS]) else {
            return false;
        };
        if !pipe.rest.is_empty() && !pipe.starved {
            let rest = std::mem::take(&mut pipe.rest);
            return self.offer(leg, rest, cx);
        }
        let mut buffer = ReadBuf::new(scratch);
        match Pin::new(&mut pipe.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
            Poll::Ready(Err(error)) => {
                self.leg_closed(leg, Some(error));
                return true;
            }
            // A client that has said all may still listen, as the broker lets it.
            Poll::Ready(Ok(())) if leg == Leg::Client => {
                pipe.ended[THEIRS] = true;
                self.machine.closed(leg, self.clock.now(), &mut self.fx);
                return true;
            }
            Poll::Ready(Ok(())) => {
                self.leg_closed(leg, None);
                return true;
            }
        }
        let bytes = buffer.filled();
        let mut rest = std::mem::take(&mut pipe.rest);
        self.outlet.count(leg, bytes.len());
        if rest.is_empty() {
            let consumed = self
                .machine
                .read(leg, bytes, self.clock.now(), &mut self.fx);
            self.write_all(bytes, cx);
            self.keep(leg, bytes.get(consumed..).unwrap_or_default().to_vec());
        } else {
            rest.extend_from_slice(bytes);
            self.offer(leg, rest, cx);
        }
        true
    }

    /// Offers bytes that are kept already. True when any were consumed.
    fn offer(&mut self, leg: Leg, mut bytes: Vec<u8>, cx: &mut Context<'_>) -> bool {
        let consumed = self
            .machine
            .read(leg, &bytes, self.clock.now(), &mut self.fx);
        self.write_all(&bytes, cx);
        bytes.drain(..consumed);
        self.keep(leg, bytes);
        consumed > 0
    }

    fn keep(&mut self, leg: Leg, rest: Vec<u8>) {
        let wants_read = self.wants_read(leg);
        if let Some(pipe) = self.pipe(leg) {
            pipe.starved = wants_read && !rest.is_empty();
            pipe.rest = if rest.is_empty() { Vec::new() } else { rest };
        }
    }

    fn wants_read(&self, leg: Leg) -> bool {
        let wire = match (leg, &self.client) {
            (Leg::Broker, Some(_)) => &self.fx.client,
            (Leg::Broker | Leg::Client, _) => &self.fx.broker,
        };
        self.machine.wants_read(leg, wire.buffered())
    }

    /// Writes what is buffered; true when that went down. The machine hears of it when a backlog is gone, whoever wrote the last of it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.buffered();
        if before > 0 {
            self.write_all(&[], cx);
        }
        let after = self.buffered();
        if std::mem::replace(&mut self.backlog, after > 0) && after == 0 {
            self.machine.drained(self.clock.now(), &mut self.fx);
        }
        after < before || self.buffered() > after
    }

    fn buffered(&self) -> usize {
        self.fx.client.buffered() + self.fx.broker.buffered()
    }

    fn write_all(&mut self, src: &[u8], cx: &mut Context<'_>) {
        // Both, before the machine hears of an error: what it says to that stands behind the runs of this read, and cannot reach them.
        let written = [Leg::Broker, Leg::Client].map(|leg| (leg, self.write(leg, src, cx)));
        for (leg, result) in written {
            if let Err(error) = result {
                self.leg_closed(leg, Some(error));
            }
        }
    }

    /// Writes the buffer of a leg, then its run of `src`; what the socket does not take is buffered.
    fn write(&mut self, leg: Leg, src: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        let pipe = match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        };
        let (out, run) = self.fx.wire(leg).finish();
        let Some(pipe) = pipe else {
            out.clear();
            return Ok(());
        };
        let mut run = src.get(run).unwrap_or_default();
        if out.is_empty() {
            let written = write_some(&mut pipe.stream, run, cx)?;
            run = run.get(written..).unwrap_or_default();
        }
        out.extend_from_slice(run);
        let written = write_some(&mut pipe.stream, out, cx)?;
        out.drain(..written);
        Ok(())
    }

    fn leg_closed(&mut self, leg: Leg, error: Option<io::Error>) {
        let (gone, other) = match leg {
            Leg::Client => (self.client.take(), &self.broker),
            Leg::Broker => (self.broker.take(), &self.client),
        };
        if gone.is_none() {
            return;
        }
        // A reset of the broker is passed on as one, when its turn to be closed comes: no FIN that pretends an orderly end.
        if let (Leg::Broker, Some(_), Some(pipe)) = (leg, &error, other) {
            let _ = pipe.stream.set_zero_linger();
        }
        self.machine.closed(leg, self.clock.now(), &mut self.fx);
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.machine.deadline() else {
            self.armed = None;
            return false;
        };
        let now = self.clock.now();
        if at <= now.mono {
            self.machine.timeout(now, &mut self.fx);
            return true;
        }
        self.poll_sleep(at, cx);
        false
    }

    fn poll_sleep(&mut self, at: Mono, cx: &mut Context<'_>) {
        let instant = self.clock.instant(at);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(instant)));
        if self.armed != Some(at) {
            timer.as_mut().reset(instant);
            self.armed = Some(at);
        }
        if timer.as_mut().poll(cx).is_ready() {
            // Due between two looks at the clock: come again.
            self.armed = None;
            cx.waker().wake_by_ref();
        }
    }

    /// Ends our stream to the broker when all has been written.
    fn poll_half_close(&mut self, cx: &mut Context<'_>) {
        if let Some(pipe) = self.broker.as_mut().filter(|pipe| !pipe.ended[OURS])
            && self.fx.broker.is_empty()
        {
            // A socket that is gone already shows itself at the next read.
            pipe.ended[OURS] = Pin::new(&mut pipe.stream).poll_shutdown(cx).is_ready();
        }
    }

    /// The machine has ended: its last bytes go out, within a bound.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.write_all(&[], cx);
        let now = self.clock.now().mono;
        let until = *self.last_words.get_or_insert_with(|| now.after(LAST_WORDS));
        if self.fx.client.is_empty() && self.fx.broker.is_empty() || until <= now {
            return Poll::Ready(());
        }
        self.poll_sleep(until, cx);
        Poll::Pending
    }

    fn pipe(&mut self, leg: Leg) -> Option<&mut Pipe> {
        match leg {
            Leg::Client => self.client.as_mut(),
            Leg::Broker => self.broker.as_mut(),
        }
    }
}

// === impl Pipe ===

impl Pipe {
    fn new(stream: TcpStream) -> Pipe {
        // Acks and confirms are small frames that somebody waits for. A socket that refuses the option works all the same.
        let _ = stream.set_nodelay(true);
        Pipe {
            stream,
            rest: Vec::new(),
            starved: false,
            ended: [false; 2],
        }
    }
}

/// Writes until the socket takes no more.
fn write_some(stream: &mut TcpStream, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match Pin::new(&mut *stream).poll_write(cx, rest) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(n)) => written += n,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => break,
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
