//! A broker that says nothing at all: a broken link that nobody has noticed yet, or a broker that stands still. That is no target's fault, so no
//! time passes for the publishes in flight, and the link's own silence ends it.
//!
//! Whether the broker is silent or has nothing to say, it is asked, by `Lane::ask`. All open channels ask, for one of them may be what stands still.

use crate::machine::Now;
use crate::publisher::Effects;

use super::Publisher;
use super::lane::State;

impl Publisher {
    /// Whether something was heard in the last quarter of `confirm-timeout`. If not, the broker is asked, once, and time stands still until the
    /// next octet comes.
    pub(super) fn is_heard(&mut self, now: Now, fx: &mut Effects) -> bool {
        let patience = self.settings.limits.now().confirm_timeout / 4;
        if !self.clock.runs() || self.link.last_heard().until(now.mono) < patience {
            return self.clock.runs();
        }
        self.clock.run(false, now.mono);
        for at in 0..self.lanes.len() {
            let lane = self.lanes.get(at);
            lane.void_questions();
            if lane.state == State::Ready {
                lane.ask(fx.broker.build(&[]));
            }
        }
        false
    }
}
