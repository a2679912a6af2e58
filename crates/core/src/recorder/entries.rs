//! The entries of a recorder: what has to stand in the stream, and who waits until it does.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::amqp::ids::ShortStr;
use crate::amqp::reply;
use crate::machine::{Now, Owner};
use crate::registry::redeclared::Entry;

use super::message::Message;
use super::{CHANNEL, COMES, Effects, FAR, MOST_WAITING, Recorder, State};

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) owner: Owner,
    pub(super) queue: ShortStr,
    /// Shared by all that wait for this queue.
    entry: Entry,
}

impl Recorder {
    /// Unique to this channel.
    pub(super) fn mark(&self) -> ShortStr {
        let mark = format!("{:x}-{}", self.settings.login.seed, self.laps);
        ShortStr::new(mark).unwrap_or_default()
    }

    /// ... and again when it was not read back.
    pub(super) fn write_mark(&mut self, now: Now, fx: &mut Effects) {
        self.again = Some(now.mono.after(COMES));
        if !self.link.is_blocked() {
            self.publish(&Message::Mark(self.mark()), fx);
        }
    }

    pub(super) fn publish(&mut self, message: &Message, fx: &mut Effects) {
        let Some(content) = message.written(self.link.user()) else {
            return;
        };
        let out = fx.broker.build(&[]);
        reply::publish(out, CHANNEL, b"", &self.settings.stream, true);
        content.put(out, CHANNEL, self.link.frame_max());
    }

    /// Writes what counts and is not in the stream, and retries what was not read back. Not during
    /// an alarm: nothing would be read.
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

    pub(super) fn record(
        &mut self,
        queue: ShortStr,
        entry: Entry,
        owner: Option<Owner>,
        now: Now,
        fx: &mut Effects,
    ) {
        let known = self.settings.policies.redeclared();
        let counts = known.entry(&self.settings.login.vhost, &queue) == Some(&entry);
        if counts {
            self.wait_for(&queue, &entry);
        }
        if let Some(owner) = owner {
            // It waits for one at a time: for what it asked before it waits no longer.
            self.waiting.retain(|waiting| waiting.owner != owner);
            if counts && self.has_recorded(&queue, &entry) {
                return fx.out.recorded.push((owner, queue, true));
            }
            if self.is_given_up() || self.waiting.len() >= MOST_WAITING {
                return fx.out.recorded.push((owner, queue, false));
            }
            self.waiting.push(Waiting {
                owner,
                queue: queue.clone(),
                entry,
            });
            if !counts {
                // Something else was read, or declared, since it was counted.
                self.count_again(&queue);
            }
        }
        self.write(queue, now, fx);
    }

    /// Whether this is the queue's last entry in the stream, as far as it was read.
    fn has_recorded(&self, queue: &ShortStr, entry: &Entry) -> bool {
        let stands = self.stands.get(queue);
        self.state == State::Current && stands.is_some_and(|(stands, _)| stands == entry)
    }

    /// A later declare at this proxy replaces earlier ones; their sessions wait for it too.
    fn wait_for(&mut self, queue: &ShortStr, entry: &Entry) {
        let waiting = self.waiting.iter_mut();
        for waiting in waiting.filter(|waiting| waiting.queue == *queue) {
            waiting.entry = entry.clone();
        }
    }

    /// The waiting declare is unanswered, so it is newer than everything that was read.
    fn count_again(&mut self, queue: &ShortStr) {
        let mut waiting = self.waiting.iter().rev();
        if let Some(last) = waiting.find(|waiting| waiting.queue == *queue) {
            let (policies, vhost) = (&self.settings.policies, &self.settings.login.vhost);
            let entry = policies.count_again(vhost, queue, &last.entry);
            self.wait_for(queue, &entry);
        }
    }

    fn write(&mut self, queue: ShortStr, now: Now, fx: &mut Effects) {
        let known = self.settings.policies.redeclared();
        let known = known.entry(&self.settings.login.vhost, &queue).cloned();
        if let Some(entry) = known
            && self.state == State::Current
            && !self.link.is_blocked()
        {
            self.publish(&Message::Entry(queue, entry), fx);
            self.again.get_or_insert(now.mono.after(COMES));
        }
    }

    /// Answers sessions in the order of the stream. If a greater entry comes before a session's,
    /// the latter is counted again and its session waits on. That ends: of all entries under way,
    /// one comes first, and only what comes before it can delay it.
    pub(super) fn answer(&mut self, read: &[(ShortStr, Entry)], now: Now, fx: &mut Effects) {
        let mut lost = BTreeSet::new();
        for (queue, entry) in read {
            let awaited = |waiting: &&Waiting| waiting.queue == *queue;
            let Some(waiting) = self.waiting.iter().find(awaited) else {
                continue;
            };
            if lost.contains(queue) {
                continue;
            }
            match entry.cmp(&waiting.entry) {
                Ordering::Greater => {
                    lost.insert(queue.clone());
                }
                // What is there from before may have the number that was given to it in ignorance, and something newer behind it.
                Ordering::Equal if self.state == State::Current => self.has_come(queue, fx),
                Ordering::Equal | Ordering::Less => {}
            }
        }
        for queue in lost {
            self.count_again(&queue);
            self.write(queue, now, fx);
        }
    }

    /// The stream was read to its end: answers sessions whose entries it holds.
    pub(super) fn answer_standing(&mut self, fx: &mut Effects) {
        let stand = |waiting: &mut Waiting| {
            let stands = self.stands.get(&waiting.queue);
            stands.is_some_and(|(stands, _)| *stands == waiting.entry)
        };
        for waiting in self.waiting.extract_if(.., stand) {
            fx.out.recorded.push((waiting.owner, waiting.queue, true));
        }
    }

    fn has_come(&mut self, queue: &ShortStr, fx: &mut Effects) {
        let waits = |waiting: &mut Waiting| waiting.queue == *queue;
        for waiting in self.waiting.extract_if(.., waits) {
            fx.out.recorded.push((waiting.owner, waiting.queue, true));
        }
    }
}
