//! Which queues a session manages: those whose rejects or returns are ours to do.

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::dead_letter::Lookup;
use crate::machine::{Event, Fallback, Limit};
use crate::objects::QueueType;
use crate::registry::arguments::DeclareArguments;
use crate::registry::catalogue::Report;
use crate::registry::catalogue::fact::Source;
use crate::registry::lenient::Kept;
use crate::registry::policy::{Mode, Policy};
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form, generated};
use crate::session::line::Line;
use crate::session::replies::{Accepted, Expected};

use super::Declares;

impl Declares {
    /// The broker has accepted a declare. `asked`: its name in the declare.
    pub(in crate::session) fn accepted(
        &mut self,
        queue: ShortStr,
        asked: &[u8],
        accepted: Accepted,
        line: &mut Line<'_, '_>,
    ) {
        let now = line.now();
        let (bits, queue_type) = accepted.kind();
        line.registry.learn_type(&queue, bits, queue_type, now);
        for kept in accepted.kept() {
            let Kept {
                argument,
                wanted,
                has,
            } = kept.clone();
            line.turn.event(Event::DeclareDiffers {
                queue: queue.clone(),
                argument,
                wanted,
                has,
            });
        }
        let by_its_name = |declared: &Declared| {
            let is_made = generated::is_made(asked);
            !is_made || declared.taken_over || line.is_meant(&queue, declared)
        };
        match accepted {
            Accepted::Managed(declared) if by_its_name(&declared) => line.manage(queue, declared),
            Accepted::Managed(declared) | Accepted::Plain(declared) => {
                line.registry.learn(&queue, declared, Source::Refusal, now);
            }
            Accepted::Type(..) => {}
        }
    }
}

impl Line<'_, '_> {
    /// Remembers the facts that the pending declare establishes.
    pub(super) fn expect_declare(
        &mut self,
        channel: ChannelId,
        queue: ShortStr,
        accepted: Option<Accepted>,
        unseen: bool,
    ) {
        if let Some(state) = self.channels.get_mut(&channel) {
            let accepted = accepted.map(Box::new);
            state.expect(Expected::Declare(queue, accepted), unseen);
        }
    }

    /// Applies an accepted declare, and manages its queue unless [held back](Line::is_held_back).
    pub(in crate::session) fn manage(&mut self, queue: ShortStr, declared: Declared) {
        let now = self.now();
        self.redeclare(&queue, &declared);
        if self.is_held_back(&queue) {
            self.registry.learn(&queue, declared, Source::Declare, now);
            return;
        }
        self.tell_of_rejects_only(&queue, &declared);
        self.turn.event(Event::QueueManaged {
            queue: queue.clone(),
            taken_over: declared.taken_over,
        });
        if !self.registry.insert(queue, declared, now) {
            self.turn.event(Event::LimitMet(Limit::Queues));
        }
    }

    /// Whether deliveries of an earlier queue of that name are unsettled. Their tags refer to other
    /// messages of a classic queue, so only the broker knows what dies.
    fn is_held_back(&self, queue: &[u8]) -> bool {
        let life = self.registry.life(queue);
        let mut channels = self.channels.values();
        self.registry.get(queue).is_none()
            && channels.any(|state| state.unacked.retains_before(queue, life))
    }

    /// Manages a known queue, if its rejects or returns are the proxy's.
    pub(in crate::session) fn adopt_if_meant(&mut self, queue: &ShortStr) {
        let Some(declared) = self.registry.declared_by_anybody(queue) else {
            return;
        };
        if !self.is_meant(queue, &declared) {
            self.registry.let_go(queue); // it was assumed
        } else if !self.is_held_back(queue) {
            self.registry.adopt(queue);
        }
    }

    /// The same for a possibly unknown queue, where the proxy's policies count.
    pub(in crate::session) fn adopt_or_assume(&mut self, queue: &ShortStr) {
        match self.registry.queue_type(queue) {
            Some(_) => self.adopt_if_meant(queue),
            None => self.assume_or_say(queue),
        }
    }

    pub(super) fn stays_unknown(&mut self, queue: &ShortStr) {
        let (now, in_vain) = (self.now(), Report::InVain(self.peer.user.clone()));
        self.registry.tell(queue, &in_vain, Source::Refusal, now);
        self.assume_or_say(queue);
    }

    /// For an unknown queue the proxy's policies count, even their target: the broker does not know
    /// it, and might discard rejects. Without a policy, logs once per queue.
    fn assume_or_say(&mut self, queue: &ShortStr) {
        let now = self.now();
        let nothing = Declared::of_queue(Form::default(), QueueType::Default, &self.settings.names);
        let has_target = self.of_policy(queue, QueueType::Default, |policy| {
            nothing.said.target(policy).is_some()
        });
        if has_target && self.is_meant(queue, &nothing) && !self.is_held_back(queue) {
            let user = self.peer.user.as_ref();
            self.registry.assume(queue, nothing, user, now);
            return;
        }
        self.registry.let_go(queue); // it was assumed, by a policy that is gone
        if self.registry.says_unknown(queue, now) {
            self.turn.event(Event::DeclareLeft {
                queue: queue.clone(),
                cause: Fallback::Undeclared,
            });
        }
    }

    /// Whether a queue with these facts is managed: it has a target or retries, and is not left to
    /// the broker.
    fn is_meant(&self, queue: &[u8], declared: &Declared) -> bool {
        let arguments = DeclareArguments::read(&declared.form.arguments);
        let mode = self.of_policy(queue, declared.queue_type, |policy| {
            arguments.mode(&declared.said, policy, self.settings.mode)
        });
        let asks = |said| self.facts().comes_back(queue, declared.queue_type, said);
        let target = || {
            let queue = self.facts().queue(queue, declared.queue_type);
            let names = &self.settings.names;
            let policies = &self.settings.policies;
            policies.target_of_declared(queue, declared, names)
        };
        mode != Mode::Off
            && (matches!(target(), Lookup::Target(_) | Lookup::KeyUnknown)
                || asks(declared.retries.clone())
                || asks(SaidRetries::default()))
    }

    pub(super) fn of_policy<R>(
        &self,
        name: &[u8],
        queue_type: QueueType,
        get: impl FnOnce(Option<&Policy>) -> R,
    ) -> R {
        let ours = self.settings.policies.ours();
        get(ours.matching(self.facts().queue(name, queue_type)))
    }

    pub(super) fn mode_of(&self, name: &[u8], queue_type: QueueType) -> Mode {
        let mode = self.of_policy(name, queue_type, |policy| policy?.mode);
        mode.unwrap_or(self.settings.mode)
    }
}
