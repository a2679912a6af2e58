//! The entries of a recorder: what has to stand in the stream, and who waits until it does.

use crate::amqp::ids::ShortStr;
use crate::amqp::method::MethodId;
use crate::amqp::reply;
use crate::machine::{Now, Owner};
use crate::registry::redeclared::Entry;

use super::message::Message;
use super::{CHANNEL, COMES, Effects, FAR, MOST_WAITING, Recorder, State};

impl Recorder {
    /// Ours, in this life of the channel.
    pub(super) fn mark(&self) -> ShortStr {
        let mark = format!("{:x}-{}", self.settings.login.seed, self.laps);
        ShortStr::new(mark).unwrap_or_default()
    }

    /// ... and again when it has not come.
    pub(super) fn write_mark(&mut self, now: Now, fx: &mut Effects) {
        self.again = Some(now.mono.after(COMES));
        if !self.link.is_blocked() {
            self.publish(&Message::Mark(self.mark()), fx);
        }
    }

    pub(super) fn publish(&mut self, message: &Message, fx: &mut Effects) {
        const MANDATORY: u8 = 1;
        let Some(content) = message.written(self.link.user()) else {
            return;
        };
        let out = fx.broker.build(&[]);
        reply::method(out, CHANNEL, MethodId::BASIC_PUBLISH, |a| {
            a.short(0)
                .shortstr(b"")
                .shortstr(&self.settings.stream)
                .octet(MANDATORY)
                .end();
        });
        content.put(out, CHANNEL, self.link.frame_max());
    }

    /// Writes what counts and is not in the stream, and looks again whether it has come. Not while the broker has an alarm: it would not be read.
    pub(super) fn write_missing(&mut self, now: Now, fx: &mut Effects) {
        if self.state != State::Current || self.link.is_blocked() {
            return;
        }
        let missing = self.missing();
        self.again = (!missing.is_empty()).then(|| now.mono.after(COMES));
        for message in missing {
            self.publish(&message, fx);
        }
    }

    pub(super) fn missing(&self) -> Vec<Message> {
        let known = self.settings.policies.redeclared();
        let stands = |queue: &ShortStr, entry: &Entry| {
            let stands = self.stands.get(queue);
            stands.is_some_and(|(stands, _)| stands >= entry)
        };
        known
            .of_vhost(&self.settings.login.vhost)
            .filter(|(queue, entry)| !stands(queue, entry))
            .map(|(queue, entry)| Message::Entry(queue.clone(), entry.clone()))
            .collect()
    }

    /// Writes again what stands so far back that the stream might drop it soon.
    pub(super) fn rewrite(&mut self, fx: &mut Effects) {
        let due = self.state == State::Current && self.end >= self.rewrite_from;
        let oldest = self.stands.values().map(|(_, place)| *place).min();
        if !due || oldest.is_none_or(|oldest| oldest + FAR > self.end) {
            return;
        }
        self.rewrite_from = self.end + FAR / 2;
        let far: Vec<_> = self
            .stands
            .iter()
            .filter(|(_, (entry, place))| entry.said.is_some() && place + FAR / 2 <= self.end)
            .map(|(queue, (entry, _))| Message::Entry(queue.clone(), entry.clone()))
            .collect();
        for message in far {
            self.publish(&message, fx);
        }
    }

    /// A session, or nobody, waits until that is recorded.
    pub(super) fn record(
        &mut self,
        queue: ShortStr,
        owner: Option<Owner>,
        now: Now,
        fx: &mut Effects,
    ) {
        let known = self.settings.policies.redeclared();
        let Some(entry) = known.entry(&self.settings.login.vhost, &queue).cloned() else {
            return;
        };
        if let Some(owner) = owner {
            // It waits for one at a time: for what it asked before it waits no longer.
            self.waiting.retain(|(waits, ..)| *waits != owner);
            if self.is_given_up() || self.waiting.len() >= MOST_WAITING {
                return fx.out.recorded.push((owner, queue, false));
            }
            self.waiting.push((owner, queue.clone(), entry.number));
        }
        if self.state == State::Current && !self.link.is_blocked() {
            self.publish(&Message::Entry(queue, entry), fx);
            self.again.get_or_insert(now.mono.after(COMES));
        }
    }

    /// Tells those who wait for what has come.
    pub(super) fn answer(&mut self, fx: &mut Effects) {
        let has_come = |(_, queue, number): &mut (Owner, ShortStr, u64)| {
            let stands = self.stands.get(queue);
            stands.is_some_and(|(stands, _)| stands.number >= *number)
        };
        for (owner, queue, _) in self.waiting.extract_if(.., has_come) {
            fx.out.recorded.push((owner, queue, true));
        }
    }
}
