//! What is delivered, and what becomes of it.

use super::duties::{Duty, Stay};
use super::{
    Accounts, Bytes, Copy, Delivery, How, Micros, Tag, Verb, Whose, is_parking, millis, told_in,
};

impl Accounts {
    pub(super) fn delivered(
        &mut self,
        tag: Tag,
        queue: &Bytes,
        copy: u64,
        (redelivered, counts): (bool, [Option<u64>; 2]),
        at: Micros,
    ) -> Result<(), String> {
        if self.whose.get(&tag.0) == Some(&Whose::Recorder) {
            return Ok(());
        }
        let number = copy;
        let copy = match self.deleted.get(&copy) {
            Some(deleted) => deleted.clone(),
            None => self.copy(copy)?.clone(),
        };
        if self.whose.get(&tag.0) == Some(&Whose::Intake) {
            let returns = copy.comes_out(at);
            let taken = taken(queue, &copy);
            // Of what is parked, or was away, it was decided before.
            let since = (!is_parking(queue)).then_some(at);
            for duty in taken.iter().cloned() {
                if !returns.iter().any(|(of, _)| *of == duty) {
                    let of = (copy.by_itself, copy.mark);
                    let key = (copy.body.clone(), duty.clone());
                    self.deaths.heard(copy.body.clone(), duty, of, since);
                    self.deaths.is_decided_by(key, true, false);
                }
            }
            let again = returns.iter().map(|(duty, _)| duty.clone());
            let all: Vec<Duty> = taken.into_iter().chain(again).collect();
            let of = (copy.by_itself + 1, copy.mark);
            self.hear_of(&copy.body, of, returns, None);
            for duty in all {
                self.deaths.was_decided(&copy.body, &duty, &copy.targets);
            }
        }
        self.taken_by_walk(tag, queue, number, &copy);
        let declared = self.declared.contains(&(tag.0, queue.clone()));
        let delivery = Delivery {
            queue: queue.clone(),
            number,
            copy,
            at,
            declared,
            is_first: !self.gone_once.contains(queue),
            changed: self.changed.contains(queue),
            extended: (0, 0),
            is_taken_back: false,
            is_guessed: redelivered && self.may_not_know(tag.0, queue),
            counts,
            ttl: self.ttls.get(queue).copied(),
            seen: None,
            whole: None,
        };
        self.delivered.insert(tag, delivery);
        if self.crashed.contains_key(&tag.0) {
            self.left_behind(tag, at);
        }
        Ok(())
    }

    pub(super) fn settled(
        &mut self,
        tag: Tag,
        copy: u64,
        how: How,
        at: Micros,
    ) -> Result<(), String> {
        let whose = self.whose.get(&tag.0).copied();
        if whose == Some(Whose::Recorder) {
            self.recorder_reads(tag, copy, at);
            return Ok(());
        }
        let verb = self.verbs.remove(&tag);
        let window = verb.map_or(at, |(_, then)| then)..=at;
        let verb = verb.map(|(verb, _)| verb);
        let unknown = || format!("{tag:?} was never delivered");
        let delivery = self.delivered.remove(&tag).ok_or_else(unknown)?;
        if let Some(Whose::Walk(number)) = whose {
            return self.settled_by_walk(number, &delivery, copy, how);
        }
        let overdue = self.overdue(tag, &delivery, at).is_some();
        if overdue && verb.is_none() && !delivery.is_taken_back {
            self.was_taken_back_instead(&delivery.copy.body);
        }
        if overdue && how == How::Requeue {
            self.hear_of_given_up(tag, &delivery, at);
        }
        let counted = match (whose, how) {
            (Some(Whose::Client(_)), How::Ack) => {
                let taken_back = self.taken_back(tag, &delivery, at).into_iter();
                let counted = self.counted(tag, &delivery, verb, at)?;
                taken_back.map(|(duty, _)| duty).chain(counted).collect()
            }
            _ => Vec::new(),
        };
        let returned = match verb {
            None if how == How::Requeue && matches!(whose, Some(Whose::Client(_))) => {
                return self.given_back(tag, &delivery, at);
            }
            Some(Verb::Returned(by)) if how == How::Requeue && !overdue => {
                return self.returned_natively(tag, &delivery, by, window);
            }
            Some(Verb::Returned(by)) => self.returns(tag.0, &delivery, by, (0, 0), window),
            _ => Vec::new(),
        };
        let Delivery {
            queue,
            copy: it,
            seen,
            declared,
            is_first,
            at: since,
            ..
        } = delivery;
        let duties = match (whose, how, verb) {
            (_, How::Requeue, _) => return Ok(()),
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Ack)) => Vec::new(),
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Dead)) => {
                let counts = seen.unwrap_or_default().and_rejected(&queue);
                [vec![Duty::Dies(counts)], counted].concat()
            }
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Returned(_)))
                if !returned.is_empty() || !counted.is_empty() =>
            {
                let returned = returned.into_iter().map(|(duty, _)| duty);
                returned.chain(counted).collect()
            }
            // A recover may be lost with its connection.
            (Some(Whose::Client(_)), How::Ack, None | Some(Verb::Recovered))
                if !counted.is_empty() =>
            {
                counted
            }
            (Some(Whose::Intake), How::Ack, None) => {
                let taken = taken(&queue, &it).into_iter();
                // What has left once has done so for its original, and not for what came out of its delay queue.
                let left_once = |duty: &Duty| {
                    let death = self.deaths.find(&(it.body.clone(), duty.clone()));
                    let once = death.is_some_and(|death| death.published.len() + death.parked < 2);
                    matches!(duty, Duty::Leaves(_)) && once
                };
                let returns = it.comes_out(at).into_iter().map(|(duty, _)| duty);
                taken
                    .chain(returns.filter(|duty| !left_once(duty)))
                    .collect()
            }
            (Some(Whose::Client(_)), How::RejectDrop, Some(Verb::Dead))
                if (declared || self.is_stranger(tag.0))
                    && is_first
                    && self.is_kept(tag, &queue, at) =>
            {
                let queue = String::from_utf8_lossy(&queue);
                return Err(format!(
                    "a reject from {queue} was forwarded, although the broker does not know its target"
                ));
            }
            // The broker deals with it: `close-wait` has passed, or the publisher was away for too long.
            (Some(Whose::Client(_)), How::RejectDrop, Some(Verb::Dead)) => {
                return self.left_to_broker(tag, &queue, (since, declared), at);
            }
            (Some(Whose::Intake), How::RejectDrop, None) if self.rejected < self.given_up => {
                self.rejected += 1;
                return Ok(());
            }
            _ => {
                let (body, queue) = (
                    String::from_utf8_lossy(&it.body),
                    String::from_utf8_lossy(&queue),
                );
                return Err(format!(
                    "{how:?} of {body} from {queue}, by {whose:?} {tag:?}, who said {verb:?}"
                ));
            }
        };
        self.gone(copy)?;
        // What comes back is dropped by no rule, unless its TTL is over meanwhile. Nor is what is returned: at the limit it is parked.
        let has_to_come_back = whose == Some(Whose::Intake) && it.away && !is_parking(&queue);
        // A publish may be dropped as no queue takes it.
        let is_publish = it.stay.as_ref().is_some_and(Stay::is_nowhere);
        let has_to_come_back = has_to_come_back && !is_publish;
        let is_over = it.deadline.is_some_and(|deadline| millis(at) >= deadline);
        if has_to_come_back && is_over {
            self.over_away.insert(it.body.clone());
        }
        let has_to_come_back = has_to_come_back && !is_over;
        if let Some(of) = self.deaths.settle(&it.body, &duties) {
            let is_over = matches!(verb, Some(Verb::Returned(_))) && matches!(of, Duty::Dies(_));
            self.count.over += usize::from(is_over);
            return Ok(());
        }
        // There are some that may have been, as its time had come, or as its session did not know better.
        let find = |duty| self.deaths.find(&(it.body.clone(), duty));
        let by_itself = duties.into_iter().rev().find_map(find);
        let by_itself = by_itself.map(|death| death.by_itself);
        let Some(by_itself) = by_itself else {
            return Ok(());
        };
        let is_returned = matches!(whose, Some(Whose::Client(_))) && verb != Some(Verb::Dead);
        // It may be over before its original is acked.
        let is_returned = is_returned && !self.over_away.remove(&it.body);
        if has_to_come_back || is_returned {
            let body = String::from_utf8_lossy(&it.body);
            return Err(format!("{body} is neither away nor back nor parked"));
        }
        self.unexplained += 1;
        // No queue of a plan is its own target: a lap has two.
        self.without_lap += usize::from(by_itself < 2);
        if self.unexplained > self.cycles + self.unroutable || self.without_lap > self.unroutable {
            return Err(format!(
                "{} was settled, and none of its dead letters is confirmed",
                String::from_utf8_lossy(&it.body)
            ));
        }
        Ok(())
    }
}

/// What a proxy that has taken a copy from that queue may publish of it, but for one that is away.
fn taken(queue: &Bytes, copy: &Copy) -> Vec<Duty> {
    if copy.away && !is_parking(queue) {
        return Vec::new();
    }
    told_in(queue, copy).into_iter().map(Duty::Dies).collect()
}
