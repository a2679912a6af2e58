//! A session that is watched at each call.

use std::collections::BTreeSet;
use std::task::Context;

use dlx_proxy::machine::{Flow, Leg, Machine, Mono, Now, Ticket};
use dlx_proxy::net::{drive, outlet::SessionOutlet};
use dlx_proxy::session::{Effects, Input, Output, Session};

pub(crate) struct Watched {
    pub session: Session,
    /// Dead letters that it gave away and that have no outcome.
    unsettled: BTreeSet<Ticket>,
}

/// What carries the effects of the session inside.
pub(crate) struct Outlet(pub SessionOutlet);

// === impl Watched ===

impl Watched {
    pub(crate) fn new(session: Session) -> Watched {
        Watched {
            session,
            unsettled: BTreeSet::new(),
        }
    }

    /// Whatever the legs do: an outcome settles, and nothing needs to be read for it.
    fn look(&mut self, fx: &Effects) {
        let new = fx.out.dead.iter().map(|(ticket, _)| *ticket);
        self.unsettled.extend(new);
        let (in_flight, unsettled) = (self.session.in_flight(), self.unsettled.len());
        assert!(
            in_flight <= unsettled,
            "{in_flight} dead letters are in flight, outcomes are due for {unsettled}"
        );
    }
}

impl Machine for Watched {
    type Input = Box<Input>;
    type Output = Output;

    fn connected(&mut self, leg: Leg, now: Now, fx: &mut Effects) {
        self.session.connected(leg, now, fx);
        self.look(fx);
    }

    fn read(&mut self, from: Leg, bytes: &[u8], now: Now, fx: &mut Effects) -> usize {
        let consumed = self.session.read(from, bytes, now, fx);
        assert!(consumed <= bytes.len(), "it consumed more than there was");
        self.look(fx);
        consumed
    }

    fn closed(&mut self, leg: Leg, now: Now, fx: &mut Effects) {
        self.session.closed(leg, now, fx);
        self.look(fx);
    }

    fn input(&mut self, input: Box<Input>, now: Now, fx: &mut Effects) {
        if let Input::Settled(outcomes) = &*input {
            for (ticket, _) in outcomes {
                self.unsettled.remove(ticket);
            }
        }
        self.session.input(input, now, fx);
        self.look(fx);
    }

    fn drain(&mut self, now: Now, fx: &mut Effects) {
        self.session.drain(now, fx);
        self.look(fx);
    }

    fn timeout(&mut self, now: Now, fx: &mut Effects) {
        self.session.timeout(now, fx);
        self.look(fx);
    }

    fn drained(&mut self, now: Now, fx: &mut Effects) {
        self.session.drained(now, fx);
        self.look(fx);
    }

    fn deadline(&self) -> Option<Mono> {
        self.session.deadline()
    }

    fn wants_read(&self, leg: Leg, backlog: usize) -> bool {
        self.session.wants_read(leg, backlog)
    }

    fn accepts(&self) -> bool {
        self.session.accepts()
    }

    fn flow(&self) -> Flow {
        self.session.flow()
    }
}

// === impl Outlet ===

impl drive::Outlet<Watched> for Outlet {
    fn dispatch(&mut self, watched: &Watched, fx: &mut Effects, now: Now, cx: &mut Context<'_>) {
        self.0.dispatch(&watched.session, fx, now, cx);
    }

    fn count(&mut self, from: Leg, bytes: usize) {
        drive::Outlet::<Session>::count(&mut self.0, from, bytes);
    }
}
