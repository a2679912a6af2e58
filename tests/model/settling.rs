//! What becomes of deliveries: acks, rejects, and what returns when a channel ends.

use crate::codec::methods::Args;
use crate::codec::value::Bytes;

use super::broker::Broker;
use super::call::Call;
use super::channel::{At, Unacked};
use super::facts::{Fact, How, Reason, Why};
use super::queue::Taken;
use super::refusal::{Answer, refuse};

/// What a settlement does to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acked,
    /// Dead; was it a failure?
    Dead(bool),
    /// Back; was it a failure?
    Returned(bool),
}

impl Broker {
    pub(super) fn settle(&mut self, at: At, call: &Call) -> Answer<()> {
        let (tag, multiple) = (call.number("delivery-tag"), call.bit("multiple"));
        if self.channel(at).transactional {
            return refuse(540, "the model settles nothing in a transaction");
        }
        let unacked = &mut self.channel(at).unacked;
        let settled: Vec<(u64, Unacked)> = match (tag, multiple) {
            (0, true) => std::mem::take(unacked).into_iter().collect(),
            (tag, _) if !unacked.contains_key(&tag) => {
                return refuse(406, format!("unknown delivery tag {tag}"));
            }
            (tag, true) => {
                let later = unacked.split_off(&(tag + 1));
                std::mem::replace(unacked, later).into_iter().collect()
            }
            (tag, false) => unacked.remove_entry(&tag).into_iter().collect(),
        };
        let fate = match (&*call.method.name, call.bit("requeue")) {
            ("basic.ack", _) => Fate::Acked,
            ("basic.nack", requeue) if requeue => Fate::Returned(false),
            ("basic.nack", _) => Fate::Dead(false),
            (_, true) => Fate::Returned(true),
            (_, false) => Fate::Dead(true),
        };
        self.settle_all(at, settled, fate);
        Ok(())
    }

    pub(super) fn recover(&mut self, at: At, call: &Call) -> Answer<()> {
        if !call.bit("requeue") {
            return refuse(540, "requeue=false");
        }
        let all = std::mem::take(&mut self.channel(at).unacked);
        self.settle_all(at, all.into_iter().collect(), Fate::Returned(false));
        if call.method.name == "basic.recover" {
            self.reply(at, "basic.recover-ok", Args::new());
        }
        Ok(())
    }

    /// Queue by queue, consumer by consumer (gets first), oldest first.
    fn settle_all(&mut self, at: At, mut settled: Vec<(u64, Unacked)>, fate: Fate) {
        settled
            .sort_by(|(a, x), (b, y)| (&x.queue, &x.consumer, a).cmp(&(&y.queue, &y.consumer, b)));
        let mut queues: Vec<Bytes> = settled.iter().map(|(_, of)| of.queue.clone()).collect();
        queues.sort();
        queues.dedup();
        for (tag, unacked) in settled {
            self.settle_one(at, tag, &unacked, fate);
        }
        for queue in &queues {
            self.taken_back(queue);
        }
    }

    /// What came back may be too much: a classic queue looks before it serves, a quorum queue afterwards.
    pub(super) fn taken_back(&mut self, name: &[u8]) {
        if self.queues.get(name).is_some_and(|of| !of.is_quorum()) {
            self.trim(name);
        }
        self.serve(name);
        self.trim(name);
    }

    fn settle_one(&mut self, at: At, tag: u64, unacked: &Unacked, fate: Fate) {
        let name = &unacked.queue;
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        // It may be another one of that name.
        if queue.life != unacked.life {
            return;
        }
        let how = match fate {
            Fate::Acked => How::Ack,
            Fate::Dead(_) => How::RejectDrop,
            Fate::Returned(_) => How::Requeue,
        };
        if queue.is_stream() {
            return self.settle_in_stream(at, tag, unacked, how);
        }
        // What its consumer had for too long may be another's by now (S9.5).
        let is_its = |taken: &Taken| taken.at == at && taken.consumer == unacked.consumer;
        if !queue.unacked.get(&unacked.id).is_some_and(is_its) {
            return;
        }
        let Some(taken) = queue.unacked.remove(&unacked.id) else {
            return;
        };
        queue.released(&taken);
        self.facts.push(Fact::Settled {
            conn: at.conn,
            channel: at.channel,
            tag,
            queue: name.clone(),
            copy: unacked.id,
            body: taken.entry.message.body.clone(),
            how,
        });
        match fate {
            Fate::Acked => {}
            Fate::Dead(failed) => {
                let entry = self.counted(name, taken, failed).entry;
                self.die(name, entry, Reason::Rejected);
            }
            Fate::Returned(failed) => self.take_back(name, taken, failed),
        }
    }

    /// With one delivery more behind it.
    fn counted(&self, queue: &[u8], mut taken: Taken, failed: bool) -> Taken {
        let entry = &mut taken.entry;
        entry.delivered = true;
        if self.queues.get(queue).is_some_and(|of| of.is_quorum()) {
            *entry.acquired.get_or_insert(0) += 1;
        }
        if failed {
            *entry.failed.get_or_insert(0) += 1;
        }
        taken
    }

    pub(super) fn take_back(&mut self, name: &[u8], taken: Taken, failed: bool) {
        let entry = self.counted(name, taken, failed).entry;
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        match queue.delivery_limit {
            Some(limit) if entry.failed.is_some_and(|failed| failed > limit) => {
                self.die(name, entry, Reason::DeliveryLimit);
            }
            _ => queue.put_back(entry),
        }
    }

    /// A queue learns that a channel is gone.
    pub(super) fn channel_left(&mut self, name: &[u8], at: At) {
        let now = self.now;
        let Some(queue) = self.queues.get_mut(name) else {
            return;
        };
        let had = queue.consumers.len();
        queue.consumers.retain(|of| of.at != at);
        if queue.consumers.len() < had {
            queue.used = now;
        }
        let has = queue.unacked.iter().filter(|(_, taken)| taken.at == at);
        let mut ids: Vec<_> = has.map(|(id, of)| (of.place.clone(), *id)).collect();
        ids.sort_unstable();
        let left = had > 0 && queue.consumers.is_empty() && queue.auto_delete;
        for (_, id) in ids {
            let queue = self.queues.get_mut(name).expect("it is there");
            if let Some(taken) = queue.unacked.remove(&id) {
                self.take_back(name, taken, true);
            }
        }
        match left {
            true => self.remove_queue(name, Why::QueueDeleted),
            false => self.taken_back(name),
        }
    }
}
