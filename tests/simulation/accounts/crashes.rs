//! Clients that are lost: what they leave behind counts as returned, where a policy says so.

use std::collections::BTreeMap;

use super::super::client::Verb;
use super::super::model::Conn;
use super::super::net::Micros;
use super::super::retries::{By, OnCrash, Retries};
use super::deaths::When;
use super::duties::Duty;
use super::retries::millis;
use super::rules::Window;
use super::{Accounts, Delivery, Tag};

/// Connections, and when they were lost.
pub(super) type Lost = BTreeMap<Conn, Micros>;

impl Accounts {
    /// The client of that connection is lost; its session may know it from now on. `open`: what the broker has not settled.
    pub(crate) fn crashed(&mut self, conn: Conn, open: impl Fn(Tag) -> bool, at: Micros) {
        if self.crashed.contains_key(&conn) {
            return;
        }
        self.crashed.insert(conn, at);
        let tags = self.delivered.keys().copied();
        let these: Vec<Tag> = tags.filter(|tag| tag.0 == conn && open(*tag)).collect();
        for tag in these {
            self.left_behind(tag, at);
        }
    }

    /// A delivery whose client is lost.
    pub(super) fn left_behind(&mut self, tag: Tag, at: Micros) {
        let duties = self.left(tag, at..=at, millis(at));
        let Some(delivery) = self.delivered.get(&tag) else {
            return;
        };
        let copy = &delivery.copy;
        let (body, of) = (copy.body.clone(), (copy.by_itself + 1, copy.mark));
        self.hear_of(&body, of, duties, Some(at));
    }

    pub(super) fn left(&self, tag: Tag, window: Window, now: u64) -> Vec<(Duty, When)> {
        let counts = |(of, _): &(Retries, bool)| of.on_crash() != OnCrash::Requeue;
        let delivery = self.delivered.get(&tag).filter(|delivery| {
            let known = self.retries_of(tag.0, &delivery.queue, &window);
            known.iter().any(counts)
        });
        let returns = |delivery| self.returns(tag.0, delivery, By::Reject, (now, u64::MAX), window);
        delivery.map(returns).unwrap_or_default()
    }

    /// What may have become of a delivery that its session acks though its client has not: it was left behind, and that counts.
    pub(super) fn counted(
        &mut self,
        tag: Tag,
        delivery: &Delivery,
        verb: Option<Verb>,
        at: Micros,
    ) -> Result<Vec<Duty>, String> {
        let Some(then) = self.crashed.get(&tag.0) else {
            return Ok(Vec::new());
        };
        let window = *then..=at;
        let known = self.retries_of(tag.0, &delivery.queue, &window);
        let is = |of: OnCrash| known.iter().any(|(retries, _)| retries.on_crash() == of);
        if !is(OnCrash::CountAll) && !is(OnCrash::CountOldest) {
            return Ok(Vec::new());
        }
        let place = (tag.0, tag.1, delivery.queue.clone());
        let overdue = self.overdue(tag, delivery, at).is_some();
        let first = verb.is_none() && !is(OnCrash::CountAll) && !overdue;
        if first && !self.oldest.insert(place) {
            return Err(format!("{tag:?}: a lost client's second delivery counts"));
        }
        let duties = self.returns(tag.0, delivery, By::Reject, (0, 0), window);
        Ok(duties.into_iter().map(|(duty, _)| duty).collect())
    }
}
