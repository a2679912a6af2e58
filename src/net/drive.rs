//! One small driver pumps any machine: it reads, calls, writes and sleeps, and decides nothing.
//!
//! One task drives both legs and never awaits a write. Each wake-up serves the inbox first (its acks free prefetch), then the broker's
//! and the client's leg, in at most `TURNS` turns. Bytes are read into a scratch buffer of the thread and written straight from it;
//! only what a stream did not take is kept, so that an idle machine owns no buffer.
//!
//! **No wake-up is lost**, for one reason: the driver sleeps only when it has asked for all that the machine wants since something last stirred,
//! that is, since the machine was called or a buffer shrank, and all of it was pending. The first half of a turn asks inbox and legs, the
//! second one writes and sets the timer; each is asked again if anything stirred since.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::sync::mpsc;

use crate::machine::{Effects, Flow, Leg, Machine, Mono, Now, Spare};

use super::clock::Clock;
use super::stream::Stream;
use pipe::Pipe;
pub use waits::Waits;

mod pipe;
mod waits;

/// Turns per wake-up, so that other tasks run.
const TURNS: usize = 16;
const SCRATCH: usize = 64 * 1024;
/// For the last bytes of an ended machine, and for reading a broken connection to its end.
const LAST_WORDS: Duration = Duration::from_secs(5);

thread_local! {
    static BUFFERS: RefCell<(Box<[u8]>, Spare)> =
        RefCell::new((vec![0; SCRATCH].into_boxed_slice(), Spare::default()));
}

/// Receives the effects that are not bytes.
pub trait Outlet<M: Machine> {
    /// Takes what it can from `fx`; the rest stays, and `cx` is woken when there is room.
    fn dispatch(
        &mut self,
        machine: &M,
        fx: &mut Effects<M::Output>,
        now: Now,
        cx: &mut Context<'_>,
    );

    fn count(&mut self, _from: Leg, _bytes: usize) {}
}

pub type Connector<S> = Box<dyn FnMut() -> Connecting<S> + Send>;
pub type Connecting<S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send>>;

pub struct Drive<M: Machine, O, S, C: Clock> {
    machine: M,
    outlet: O,
    inbox: mpsc::Receiver<M::Input>,
    /// Answers to the machine's requests: accepted even while `accepts` is false.
    answers: Option<mpsc::Receiver<M::Input>>,
    clock: C,
    timer: C::Timer,
    now: Now,
    client: Option<Pipe<S>>,
    broker: Option<Pipe<S>>,
    connector: Option<Connector<S>>,
    connecting: Option<Connecting<S>>,
    fx: Effects<M::Output>,
    /// Something was buffered since the last call of `drained`.
    backlog: bool,
    /// The machine was called or a buffer shrank in this half of a turn, so its wishes may have
    /// changed.
    stirred: bool,
    last_words: Option<Mono>,
}

// === impl Drive ===

impl<M: Machine, O: Outlet<M>, S: Stream, C: Clock> Drive<M, O, S, C> {
    pub fn session(
        machine: M,
        outlet: O,
        inbox: mpsc::Receiver<M::Input>,
        clock: C,
        client: S,
        broker: S,
    ) -> Self {
        Drive {
            client: Some(Pipe::new(client)),
            broker: Some(Pipe::new(broker)),
            ..Drive::new(machine, outlet, inbox, clock)
        }
    }

    /// The broker leg is opened by `connector` at the machine's request.
    pub fn link(
        machine: M,
        outlet: O,
        inbox: mpsc::Receiver<M::Input>,
        clock: C,
        connector: Connector<S>,
    ) -> Self {
        Drive {
            connector: Some(connector),
            ..Drive::new(machine, outlet, inbox, clock)
        }
    }

    pub fn with_answers(mut self, answers: mpsc::Receiver<M::Input>) -> Self {
        self.answers = Some(answers);
        self
    }

    fn new(machine: M, outlet: O, inbox: mpsc::Receiver<M::Input>, clock: C) -> Self {
        Drive {
            machine,
            outlet,
            inbox,
            answers: None,
            timer: C::Timer::default(),
            now: clock.now(),
            clock,
            client: None,
            broker: None,
            connector: None,
            connecting: None,
            fx: Effects::default(),
            backlog: false,
            stirred: false,
            last_words: None,
        }
    }

    /// Runs until the machine has ended; begins its drain when `drained` is done. Borrows the
    /// driver, because a future has room twice for a value moved into it.
    pub async fn run(&mut self, drained: impl Future<Output = ()>) {
        let mut drained = std::pin::pin!(drained);
        let mut told = false;
        std::future::poll_fn(|cx| {
            if !told && drained.as_mut().poll(cx).is_ready() {
                told = true;
                self.drain();
            }
            self.poll(cx)
        })
        .await
    }

    /// Moves the connections to the calling thread's poller. What has no room there stays where it is, and goes on.
    pub fn adopt(&mut self) {
        for pipe in [&mut self.client, &mut self.broker].into_iter().flatten() {
            let _ = pipe.stream.adopt();
        }
        self.timer = C::Timer::default();
    }

    /// Tells the machine that the process is ending; call [`Drive::poll`] afterwards.
    pub fn drain(&mut self) {
        self.now = self.clock.now();
        self.machine.drain(self.now, &mut self.fx);
    }

    /// Ready when the machine has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        BUFFERS.with_borrow_mut(|(scratch, spare)| {
            self.fx.borrow(spare);
            // Nothing has stirred since writes and timer were asked for.
            let mut is_settled = false;
            for _ in 0..TURNS {
                self.stirred = false;
                self.serve(scratch, cx);
                let served = self.stirred;
                if served || !is_settled {
                    self.stirred = false;
                    if self.settle(cx).is_ready() {
                        return Poll::Ready(());
                    }
                    is_settled = !self.stirred;
                }
                if !served && is_settled {
                    self.fx.release(spare);
                    return Poll::Pending;
                }
            }
            // Unlike a wake-up by itself, this lets the poller be asked first: else a flooded session, which is always ready, keeps from the others on
            // its thread what has come for them.
            let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
            Poll::Pending
        })
    }

    pub fn machine(&self) -> &M {
        &self.machine
    }

    pub fn stream(&self, leg: Leg) -> Option<&S> {
        self.pipe(leg).map(|pipe| &pipe.stream)
    }

    // --- a turn

    /// What came.
    fn serve(&mut self, scratch: &mut [u8], cx: &mut Context<'_>) {
        self.now = self.clock.now();
        if self.last_words.is_none() {
            self.poll_inbox(cx);
            self.poll_connect(cx);
            for leg in [Leg::Broker, Leg::Client] {
                self.poll_read(leg, scratch, cx);
            }
            self.give_up_broken();
        }
    }

    /// What follows from it.
    fn settle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_write(cx);
        self.outlet
            .dispatch(&self.machine, &mut self.fx, self.now, cx);
        match self.machine.flow() {
            Flow::Finish => {
                let until = self.now.mono.after(LAST_WORDS);
                if *self.last_words.get_or_insert(until) <= self.now.mono || self.is_written() {
                    return Poll::Ready(());
                }
            }
            Flow::HalfClosed => self.half_close(cx),
            Flow::Open | Flow::Reconnect(_) => {}
        }
        self.poll_timer(cx);
        Poll::Pending
    }

    fn poll_inbox(&mut self, cx: &mut Context<'_>) {
        while let Some(answers) = &mut self.answers
            && let Poll::Ready(Some(input)) = answers.poll_recv(cx)
        {
            self.stirred = true;
            self.machine.input(input, self.now, &mut self.fx);
        }
        while self.machine.accepts() {
            let Poll::Ready(Some(input)) = self.inbox.poll_recv(cx) else {
                return;
            };
            self.stirred = true;
            self.machine.input(input, self.now, &mut self.fx);
        }
    }

    fn poll_connect(&mut self, cx: &mut Context<'_>) {
        let (Flow::Reconnect(at), Some(connector)) = (self.machine.flow(), &mut self.connector)
        else {
            return;
        };
        self.broker = None;
        if self.connecting.is_none() && self.now.mono < at {
            return;
        }
        let connecting = self.connecting.get_or_insert_with(connector);
        let Poll::Ready(result) = connecting.as_mut().poll(cx) else {
            return;
        };
        self.connecting = None;
        self.fx.broker = Default::default();
        self.stirred = true;
        match result {
            Ok(stream) => {
                self.broker = Some(Pipe::new(stream));
                self.machine.connected(Leg::Broker, self.now, &mut self.fx);
            }
            Err(_) => self.machine.closed(Leg::Broker, self.now, &mut self.fx),
        }
    }

    fn poll_read(&mut self, leg: Leg, scratch: &mut [u8], cx: &mut Context<'_>) {
        if !self.wants_read(leg) {
            return;
        }
        let Some(pipe) = self.pipe_mut(leg).filter(|pipe| !pipe.read_to_end) else {
            return;
        };
        if pipe.has_held_back() {
            let rest = std::mem::take(&mut pipe.rest);
            return self.offer_kept(leg, rest, cx);
        }
        let mut buffer = ReadBuf::new(scratch);
        match Pin::new(&mut pipe.stream).poll_read(cx, &mut buffer) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
            Poll::Ready(Err(error)) => return self.leg_closed(leg, Some(error)),
            // A client that has said all may still listen, as the broker lets it.
            Poll::Ready(Ok(())) if leg == Leg::Client => {
                pipe.read_to_end = true;
                self.stirred = true;
                return self.machine.closed(leg, self.now, &mut self.fx);
            }
            Poll::Ready(Ok(())) => return self.leg_closed(leg, None),
        }
        let bytes = buffer.filled();
        let mut rest = std::mem::take(&mut pipe.rest);
        self.outlet.count(leg, bytes.len());
        if rest.is_empty() {
            let (consumed, starved) = self.offer(leg, bytes, cx);
            self.keep(
                leg,
                bytes.get(consumed..).unwrap_or_default().to_vec(),
                starved,
            );
        } else {
            rest.extend_from_slice(bytes);
            self.offer_kept(leg, rest, cx);
        }
    }

    /// Usually an unwritable connection ends soon, after the received bytes are read. This bounds
    /// those that do not, or that the machine does not read.
    fn give_up_broken(&mut self) {
        let until = self.broker.as_ref().and_then(Pipe::broken);
        if until.is_some_and(|until| until <= self.now.mono) {
            self.leg_closed(Leg::Broker, None);
        }
    }

    fn offer_kept(&mut self, leg: Leg, mut bytes: Vec<u8>, cx: &mut Context<'_>) {
        let (consumed, starved) = self.offer(leg, &bytes, cx);
        bytes.drain(..consumed);
        self.keep(leg, bytes, starved);
    }

    /// How many bytes were consumed, and whether the rest is an incomplete unit; else the machine
    /// has paused.
    fn offer(&mut self, leg: Leg, bytes: &[u8], cx: &mut Context<'_>) -> (usize, bool) {
        self.stirred = true;
        // Bytes of the other leg may have taken a while: what these ask for begins when they are there, not before.
        self.now = self.clock.now();
        let consumed = self.machine.read(leg, bytes, self.now, &mut self.fx);
        // Before anything is written: that may end the pause.
        let starved = self.wants_read(leg);
        self.write_all(bytes, cx);
        (consumed, starved)
    }

    fn keep(&mut self, leg: Leg, rest: Vec<u8>, starved: bool) {
        if let Some(pipe) = self.pipe_mut(leg) {
            pipe.starved = starved;
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

    /// Writes buffers. Calls `drained` when a backlog is gone, whoever wrote its last part.
    fn poll_write(&mut self, cx: &mut Context<'_>) {
        let before = self.buffered();
        if !self.is_written() {
            self.write_all(&[], cx);
        }
        let after = self.buffered();
        self.stirred |= after < before;
        if after == 0 && std::mem::take(&mut self.backlog) {
            self.stirred = true;
            self.machine.drained(self.now, &mut self.fx);
        }
    }

    fn buffered(&self) -> usize {
        self.fx.client.buffered() + self.fx.broker.buffered()
    }

    fn is_written(&self) -> bool {
        let pipes = [&self.client, &self.broker];
        self.buffered() == 0 && pipes.into_iter().flatten().all(Pipe::is_flushed)
    }

    fn write_all(&mut self, src: &[u8], cx: &mut Context<'_>) {
        self.backlog |= self.buffered() > 0;
        // Both, before the machine hears of an error: what it says to that stands behind the runs of this read, and cannot reach them.
        let until = self.now.mono.after(LAST_WORDS);
        let written = [Leg::Broker, Leg::Client].map(|leg| (leg, self.write(leg, src, cx)));
        for (leg, result) in written {
            match (result, self.pipe_mut(leg)) {
                // The broker may have said why, just before: that is read first.
                (Err(_), Some(pipe)) if leg == Leg::Broker => {
                    pipe.break_off(until);
                    self.stirred = true;
                }
                (Err(error), _) => self.leg_closed(leg, Some(error)),
                (Ok(()), _) => {}
            }
        }
        self.backlog |= self.buffered() > 0;
    }

    /// Writes the buffer of a leg, then its run of `src`; buffers the remainder.
    fn write(&mut self, leg: Leg, src: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        let pipe = match leg {
            Leg::Client => &mut self.client,
            Leg::Broker => &mut self.broker,
        };
        let (out, run) = self.fx.wire(leg).finish();
        let Some(pipe) = pipe.as_mut().filter(|pipe| pipe.broken().is_none()) else {
            out.clear();
            return Ok(());
        };
        let mut run = src.get(run).unwrap_or_default();
        if out.is_empty() {
            let written = pipe.write(run, cx)?;
            run = run.get(written..).unwrap_or_default();
        }
        out.extend_from_slice(run);
        let written = pipe.write(out, cx)?;
        out.drain(..written);
        pipe.flush(cx)
    }

    fn leg_closed(&mut self, leg: Leg, error: Option<io::Error>) {
        let (gone, other) = match leg {
            Leg::Client => (self.client.take(), &mut self.broker),
            Leg::Broker => (self.broker.take(), &mut self.client),
        };
        let Some(gone) = gone else { return };
        // A reset of the broker is passed on as one, when its turn to be closed comes: no FIN that pretends an orderly end.
        let reset = error.is_some() || gone.broken().is_some();
        if let (Leg::Broker, true, Some(pipe)) = (leg, reset, other) {
            pipe.stream.reset_when_closed();
        }
        self.stirred = true;
        self.machine.closed(leg, self.now, &mut self.fx);
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) {
        let Some(at) = self.due() else { return };
        let early = self.now.mono < at;
        if early && self.clock.poll_until(&mut self.timer, at, cx).is_pending() {
            return;
        }
        // What is due in between, the next turn does: the end, or a connection.
        self.stirred = true;
        let deadline = self
            .machine
            .deadline()
            .filter(|_| self.last_words.is_none());
        if deadline.is_some_and(|due| due <= self.now.mono) {
            self.machine.timeout(self.now, &mut self.fx);
        }
    }

    fn due(&self) -> Option<Mono> {
        if self.last_words.is_some() {
            return self.last_words;
        }
        let reconnect = match self.machine.flow() {
            Flow::Reconnect(at) if self.connector.is_some() && self.connecting.is_none() => {
                Some(at)
            }
            Flow::Reconnect(_) | Flow::Open | Flow::HalfClosed | Flow::Finish => None,
        };
        let broken = self.broker.as_ref().and_then(Pipe::broken);
        [self.machine.deadline(), reconnect, broken]
            .into_iter()
            .flatten()
            .min()
    }

    fn half_close(&mut self, cx: &mut Context<'_>) {
        if let Some(pipe) = self.broker.as_mut().filter(|_| self.fx.broker.is_empty()) {
            pipe.end(cx);
        }
    }

    fn pipe(&self, leg: Leg) -> Option<&Pipe<S>> {
        match leg {
            Leg::Client => self.client.as_ref(),
            Leg::Broker => self.broker.as_ref(),
        }
    }

    fn pipe_mut(&mut self, leg: Leg) -> Option<&mut Pipe<S>> {
        match leg {
            Leg::Client => self.client.as_mut(),
            Leg::Broker => self.broker.as_mut(),
        }
    }
}

#[cfg(test)]
mod tests;
