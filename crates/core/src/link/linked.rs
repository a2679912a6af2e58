//! What all machines with a link of their own have in common: how the link is read, lost and timed out. A machine adds only what it does then.

use crate::machine::{Effects, Flow, Leg, Machine, Mono, Now};

use super::{Frame, Link, Loss, Step};

/// A machine with a link. Every call ends with [`Linked::after`].
pub trait Linked {
    type Input;
    type Output: Default;

    fn link(&self) -> &Link;

    fn link_mut(&mut self) -> &mut Link;

    /// Called before new bytes are processed.
    fn heard(&mut self, _now: Now) {}

    fn up(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    fn blocked(&mut self, _now: Now, _fx: &mut Effects<Self::Output>) {}

    /// A frame of a channel.
    ///
    /// # Errors
    /// A violation of the protocol, which ends the connection.
    fn frame(
        &mut self,
        frame: Frame<'_>,
        now: Now,
        fx: &mut Effects<Self::Output>,
    ) -> Result<(), &'static str>;

    fn lost(&mut self, loss: Loss, now: Now, fx: &mut Effects<Self::Output>);

    fn on_input(&mut self, input: Self::Input, now: Now, fx: &mut Effects<Self::Output>);

    fn ends(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    /// See [`Machine::timeout`]; after the link's own.
    fn due(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    /// Deadline of [`Linked::due`]; the link has its own.
    fn wake(&self) -> Option<Mono>;

    /// Ends every call.
    fn after(&mut self, now: Now, fx: &mut Effects<Self::Output>);

    fn reads(&self) -> bool {
        true
    }

    /// Bytes are left unread on purpose, so the peer is not silent.
    fn rests(&self) -> bool {
        !self.reads()
    }

    fn takes(&self) -> bool {
        true
    }

    fn course(&self) -> Flow {
        self.link().flow()
    }
}

impl<T: Linked> Machine for T {
    type Input = T::Input;
    type Output = T::Output;

    fn connected(&mut self, _: Leg, now: Now, fx: &mut Effects<T::Output>) {
        self.link_mut().connected(now, fx);
    }

    fn read(&mut self, _: Leg, bytes: &[u8], now: Now, fx: &mut Effects<T::Output>) -> usize {
        self.link_mut().heard(now);
        self.heard(now);
        let mut taken = 0;
        while self.reads()
            && let Some(rest) = bytes.get(taken..)
        {
            let link = self.link_mut();
            let loss = match link.step(rest, now, fx) {
                Step::More => break,
                Step::Took(n) => {
                    taken += n;
                    continue;
                }
                Step::Up(n) => {
                    taken += n;
                    self.up(now, fx);
                    continue;
                }
                Step::Blocked(n) => {
                    taken += n;
                    self.blocked(now, fx);
                    continue;
                }
                Step::Frame(n, frame) => {
                    taken += n;
                    match self.frame(frame, now, fx) {
                        Ok(()) => continue,
                        Err(what) => self.link_mut().fault(what, now, fx),
                    }
                }
                Step::Down(loss) => loss,
            };
            self.lost(loss, now, fx);
            taken = bytes.len();
        }
        self.after(now, fx);
        taken
    }

    fn closed(&mut self, _: Leg, now: Now, fx: &mut Effects<T::Output>) {
        let loss = self.link_mut().closed(now, fx);
        self.lost(loss, now, fx);
        self.after(now, fx);
    }

    fn input(&mut self, input: T::Input, now: Now, fx: &mut Effects<T::Output>) {
        self.on_input(input, now, fx);
        self.after(now, fx);
    }

    fn drain(&mut self, now: Now, fx: &mut Effects<T::Output>) {
        self.ends(now, fx);
        self.after(now, fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects<T::Output>) {
        if self.rests() {
            self.link_mut().heard(now);
        }
        if let Some(loss) = self.link_mut().timeout(now, fx) {
            self.lost(loss, now, fx);
        }
        self.due(now, fx);
        self.after(now, fx);
    }

    fn deadline(&self) -> Option<Mono> {
        self.link().deadline().into_iter().chain(self.wake()).min()
    }

    fn wants_read(&self, _: Leg, _: usize) -> bool {
        self.reads()
    }

    fn drained(&mut self, now: Now, fx: &mut Effects<T::Output>) {
        self.after(now, fx);
    }

    fn accepts(&self) -> bool {
        self.takes()
    }

    fn flow(&self) -> Flow {
        self.course()
    }
}
