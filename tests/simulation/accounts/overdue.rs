//! Deliveries that a client holds for longer than the ack timeout of their queue: its session may take them back, which counts as a reject.
//!
//! The broker does not see why. So what nobody asked for is looked for among the deliveries that are overdue.

use std::collections::VecDeque;

use super::super::model::Conn;
use super::super::net::Micros;
use super::super::retries::By;
use super::deaths::When;
use super::duties::Duty;
use super::retries::millis;
use super::rules::Window;
use super::{Accounts, Bytes, Delivery, Tag, Whose};

/// Behind this, and a moment, the tags of deliveries whose channel was closed.
const EARLIER: u64 = 1 << 32;

pub(super) fn is_of_earlier_channel(tag: Tag) -> bool {
    tag.2 >= EARLIER
}

impl Accounts {
    /// Since when at the earliest it may have been taken back.
    pub(super) fn overdue(&self, tag: Tag, delivery: &Delivery, at: Micros) -> Option<Micros> {
        let client = matches!(self.whose.get(&tag.0), Some(Whose::Client(_)));
        let timeouts = self.timeouts(tag, delivery, delivery.at..=at);
        let least = timeouts.into_iter().flatten().min()?;
        let since = delivery.at + Micros::from(least) * 1000;
        let since = since.max(delivery.extended.0);
        (client && since <= at).then_some(since)
    }

    /// A client reads the answer to what it said beforehand: if its delivery was not overdue yet, it has more time.
    pub(crate) fn is_extended(&mut self, conn: Conn, channel: u16, at: Micros) {
        let asked = self.asked.get_mut(&(conn, channel));
        let Some((tag, millis, then)) = asked.and_then(VecDeque::pop_front) else {
            return;
        };
        let tag = (conn, channel, tag);
        let delivery = self.delivered.get(&tag);
        let in_time = delivery.is_some_and(|of| self.overdue(tag, of, at).is_none());
        if let Some(delivery) = self
            .delivered
            .get_mut(&tag)
            .filter(|_| in_time && millis > 0)
        {
            let (least, most) = delivery.extended;
            let [from, to] = [then, at].map(|of| of + millis * 1000);
            // Of a delivery that the client had not seen, its session may not have known either.
            let least = match delivery.whole.is_some_and(|whole| whole <= then) {
                true => least.max(from),
                false => least,
            };
            delivery.extended = (least, most.max(to));
        }
    }

    /// All that may be the timeout of its queue, in milliseconds.
    fn timeouts(&self, tag: Tag, delivery: &Delivery, window: Window) -> Vec<Option<u32>> {
        let known = self.known(tag.0, &delivery.queue, &window).into_iter();
        known.flat_map(|known| known.timeouts).collect()
    }

    /// What may follow when a delivery is taken back.
    pub(super) fn taken_back(
        &self,
        tag: Tag,
        delivery: &Delivery,
        at: Micros,
    ) -> Vec<(Duty, When)> {
        let Some(since) = self.overdue(tag, delivery, at) else {
            return Vec::new();
        };
        let moments = (millis(since), millis(at));
        self.returns(tag.0, delivery, By::Reject, moments, since..=at)
    }

    /// So many deliveries of that message may be taken back.
    pub(super) fn count_overdue(&self, body: &Bytes, at: Micros) -> usize {
        let of = self.delivered.iter();
        let of = of.filter(|(_, delivery)| delivery.copy.body == *body);
        of.filter(|(tag, delivery)| self.overdue(**tag, delivery, at).is_some())
            .count()
    }

    /// A proxy publishes something. If nobody has asked for it, a delivery was taken back; and if somebody has, it may have been so all the same.
    pub(super) fn hear_of_overdue(&mut self, of: &(Bytes, Duty), parked: bool, at: Micros) {
        let death = self.deaths.find(of);
        let is_asked_for = death.is_some_and(|death| parked || death.published.len() < death.heard);
        let may_be = |(tag, delivery): (&Tag, &Delivery)| {
            // What was refused is decided anew, by other rules perhaps.
            let is_new = !delivery.is_taken_back || death.is_none();
            let open = delivery.copy.body == of.0;
            let duties = open.then(|| self.taken_back(*tag, delivery, at))?;
            let (_, when) = duties.iter().find(|(duty, _)| *duty == of.1)?;
            Some((is_new, delivery.at, *tag, (delivery.copy.mark, *when)))
        };
        // It may be of an earlier delivery of that message, whose connection is dead: only sessions know that.
        let mut all: Vec<_> = self.delivered.iter().filter_map(may_be).collect();
        all.sort_unstable_by_key(|(is_new, since, ..)| (*is_new, *since));
        if !is_asked_for
            && let Some((_, since, tag, (mark, when))) = all.pop_if(|(is_new, ..)| *is_new)
            && let Some(delivery) = self.delivered.get_mut(&tag)
        {
            delivery.is_taken_back = true;
            let lap = (delivery.copy.by_itself + 1, mark);
            self.count.overdue += 1;
            self.hear_of(&of.0, lap, vec![(of.1.clone(), when)], Some(since));
        }
        for (_, since, _, (mark, when)) in all {
            self.deaths.comes_otherwise(of, mark, when, Some(since));
        }
    }

    /// A channel is opened again. What was taken back on the one before may be on its way.
    pub(super) fn tags_begin_anew(&mut self, (conn, channel): (Conn, u16), at: Micros) {
        let all = (conn, channel, 0)..(conn, channel, EARLIER);
        let overdue = self.delivered.range(all);
        let overdue = overdue.filter(|(tag, of)| self.overdue(**tag, of, at).is_some());
        let overdue: Vec<Tag> = overdue.map(|(tag, _)| *tag).collect();
        for tag in overdue {
            if let Some(delivery) = self.delivered.remove(&tag) {
                let kept = (conn, channel, at * EARLIER + tag.2);
                self.delivered.insert(kept, delivery);
            }
        }
    }

    /// That one was taken back, and not another delivery of its message.
    pub(super) fn was_taken_back_instead(&mut self, body: &Bytes) {
        let mut all = self.delivered.values_mut();
        if let Some(other) = all.find(|of| of.is_taken_back && of.copy.body == *body) {
            other.is_taken_back = false;
        }
    }

    /// It goes back to its queue. Its session may have sent it away before, and given that up as it took too long.
    pub(super) fn hear_of_given_up(&mut self, tag: Tag, delivery: &Delivery, at: Micros) {
        let lap = (delivery.copy.by_itself + 1, delivery.copy.mark);
        let duties = self.taken_back(tag, delivery, at);
        self.hear_of(&delivery.copy.body, lap, duties, Some(delivery.at));
    }

    /// The broker has a message back, and no client has said a word of it.
    ///
    /// # Errors
    /// It was not overdue, or it is the proxy's to send it away.
    pub(super) fn given_back(
        &mut self,
        tag: Tag,
        delivery: &Delivery,
        at: Micros,
    ) -> Result<(), String> {
        let lost = self.crashed.contains_key(&tag.0) || self.recovers.contains(&(tag.0, tag.1));
        match self.overdue(tag, delivery, at) {
            _ if lost => Ok(()),
            Some(since) => {
                self.count.overdue += 1;
                self.returned_natively(tag, delivery, By::Reject, since..=at)
            }
            None => {
                let body = String::from_utf8_lossy(&delivery.copy.body);
                Err(format!(
                    "{body} was given back, and nobody had asked for it"
                ))
            }
        }
    }

    /// What clients have held for too long since then, and have still. Only a session that knows of the timeout takes it back.
    pub(crate) fn is_held(
        &self,
        (since, at): (Micros, Micros),
        is_there: impl Fn(Tag) -> bool,
    ) -> Option<String> {
        let most = |tag: Tag, delivery: &Delivery| {
            let known = self.known(tag.0, &delivery.queue, &(delivery.at..=at));
            // A session that saw the declare goes by the arguments of the queue, which come first.
            let counting = 2 - usize::from(self.sees(tag.0, &delivery.queue));
            let timeouts = known.iter().flat_map(|known| &known.timeouts[..counting]);
            let timeouts: Option<Vec<u32>> = timeouts.copied().collect();
            timeouts?.into_iter().max()
        };
        let mut held = self.delivered.iter().filter(|(tag, delivery)| {
            let is_due = |whole: Micros, most: u32| {
                let end = whole + Micros::from(most) * 1000;
                end.max(delivery.extended.1) + Micros::from(most) * 1000 / 16 < since
            };
            let asks = self.asked.get(&(tag.0, tag.1));
            // A word that is under way may hold up all that comes behind it.
            let words = self.verbs.range((tag.0, 0, 0)..);
            let mut words = words.take_while(|(of, _)| of.0 == tag.0);
            let silent = words.all(|(of, _)| !self.delivered.contains_key(of))
                && asks.is_none_or(VecDeque::is_empty);
            let most = delivery.whole.zip(most(**tag, delivery));
            silent && is_there(**tag) && most.is_some_and(|(whole, most)| is_due(whole, most))
        });
        let (tag, delivery) = held.next()?;
        let body = String::from_utf8_lossy(&delivery.copy.body);
        Some(format!("{tag:?} holds {body} for too long"))
    }
}
