//! Which queues a session manages: those whose rejects or returns are ours to do.

use std::collections::BTreeSet;

use crate::amqp::ids::ShortStr;
use crate::amqp::method::QueueDeclare;
use crate::dead_letter::Lookup;
use crate::machine::{Event, Limit};
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::arguments::DeclareArguments;
use crate::registry::generated;
use crate::registry::policy::{Mode, Queue};
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, Form};

use super::replies::Accepted;
use super::{Session, Turn};

impl Session {
    /// The broker has accepted a declare; `asked`: the name that it had.
    pub(super) fn accepted(
        &mut self,
        queue: ShortStr,
        asked: &[u8],
        accepted: Accepted,
        turn: &mut Turn<'_>,
    ) {
        let most = self.settings.limits.now().fixed.queues;
        let now = turn.now.mono;
        let (bits, queue_type) = accepted.kind();
        self.registry
            .learn_type(&queue, bits, queue_type, most, now);
        let by_its_name = |declared: &Declared| {
            let is_made = generated::is_made(asked);
            !is_made || declared.taken_over || self.is_meant(&queue, declared)
        };
        match accepted {
            Accepted::Managed(declared) if by_its_name(&declared) => {
                self.manage(queue, declared, turn);
            }
            Accepted::Managed(declared) | Accepted::Plain(declared) => {
                self.registry.learn_told(&queue, declared, now);
            }
            Accepted::Type(..) => {}
        }
    }

    /// What the declare said counts from now on, and its queue is managed, unless it [is held back](Session::is_held_back).
    pub(super) fn manage(&mut self, queue: ShortStr, declared: Declared, turn: &mut Turn<'_>) {
        self.redeclare(&queue, &declared, turn);
        if self.is_held_back(&queue) {
            return self
                .registry
                .learn_declared(&queue, declared, turn.now.mono);
        }
        self.tell_of_rejects_only(&queue, &declared, turn);
        turn.event(Event::QueueManaged {
            queue: queue.clone(),
            taken_over: declared.taken_over,
        });
        let most = self.settings.limits.now().fixed.queues;
        if !self.registry.insert(queue, declared, most, turn.now.mono) {
            turn.event(Event::LimitMet(Limit::Queues));
        }
    }

    /// Manages a queue that is known to the catalogue, if its rejects or returns are ours to do.
    pub(super) fn adopt_if_meant(&mut self, queue: &ShortStr) {
        let declared = self.registry.declared_by_anybody(queue);
        if declared.is_some_and(|declared| self.is_meant(queue, &declared))
            && !self.is_held_back(queue)
        {
            let most = self.settings.limits.now().fixed.queues;
            self.registry.adopt(queue, most);
        }
    }

    /// The same of a queue of which nobody may know anything: then what policies of ours say counts.
    pub(super) fn adopt_or_assume(&mut self, queue: &ShortStr, turn: &mut Turn<'_>) {
        match self.registry.queue_type(queue) {
            Some(_) => self.adopt_if_meant(queue),
            None => self.assume_or_say(queue, turn),
        }
    }

    /// Manages the queues that are read and were of no interest, or unknown, until something was learnt.
    pub(super) fn look_again(&mut self, turn: &mut Turn<'_>) {
        let policies = &self.settings.policies;
        let news = (self.registry.news(), policies.changes());
        if std::mem::replace(&mut self.news, news) == news {
            return;
        }
        let consumers = self
            .channels
            .values()
            .flat_map(|state| state.consumers.values());
        let queues = consumers.map(|consumer| &consumer.queue);
        let unmanaged = queues.filter(|queue| self.registry.get(queue).is_none());
        for queue in unmanaged.cloned().collect::<BTreeSet<_>>() {
            self.adopt_or_assume(&queue, turn);
        }
    }

    /// Whether a queue is managed that was declared as it is: it has a target or retries, and is not the broker's.
    pub(super) fn is_meant(&self, queue: &[u8], declared: &Declared) -> bool {
        let ours = self.settings.policies.ours();
        let named = Queue {
            vhost: &self.peer.vhost,
            name: queue,
            queue_type: declared.queue_type,
        };
        let policy = ours.matching(named);
        let arguments = DeclareArguments::read(&declared.form.arguments);
        let mode = arguments.mode(&declared.said, policy, self.settings.mode);
        let asks = |said| self.retries_for(queue, declared.queue_type, said).is_some();
        let names = &self.settings.names;
        let target = || {
            self.settings
                .policies
                .target_of_declared(named, declared, names)
        };
        mode != Mode::Off
            && (matches!(target(), Lookup::Target(_) | Lookup::KeyUnknown)
                || asks(declared.retries)
                || asks(SaidRetries::default()))
    }

    /// What is known of a queue whose declare goes on as the client wrote it.
    pub(super) fn as_it_is(
        &self,
        said: DeclaredTarget,
        retries: SaidRetries,
        payload: &[u8],
    ) -> Declared {
        let (queue_type, form) = match QueueDeclare::parse(payload) {
            Ok(declare) => (
                self.type_of(&declare),
                Form::of(declare.bits, declare.arguments),
            ),
            Err(_) => (QueueType::Default, Form::default()),
        };
        Declared {
            said,
            retries,
            queue_type,
            taken_over: false,
            form,
        }
    }
}
