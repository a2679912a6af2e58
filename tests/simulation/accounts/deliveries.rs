//! What is delivered, and what becomes of it.

use super::{Accounts, Bytes, Delivery, How, Micros, Tag, Verb, Whose, told_in};

impl Accounts {
    pub(super) fn delivered(
        &mut self,
        tag: Tag,
        queue: &Bytes,
        copy: u64,
        at: Micros,
    ) -> Result<(), String> {
        let copy = self.copy(copy)?.clone();
        if self.whose.get(&tag.0) == Some(&Whose::Intake) {
            for counts in told_in(queue, &copy) {
                self.deaths.heard(copy.body.clone(), counts, copy.by_itself);
            }
        }
        let declared = self.declared.contains(&(tag.0, queue.clone()));
        let delivery = Delivery {
            queue: queue.clone(),
            copy,
            at,
            kept: declared && self.kept.contains(queue),
            seen: None,
        };
        self.delivered.insert(tag, delivery);
        Ok(())
    }

    pub(super) fn settled(&mut self, tag: Tag, copy: u64, how: How) -> Result<(), String> {
        let whose = self.whose.get(&tag.0).copied();
        let verb = self.verbs.remove(&tag).map(|(verb, _)| verb);
        let unknown = || format!("{tag:?} was never delivered");
        let Delivery {
            queue,
            copy: it,
            seen,
            kept,
            ..
        } = self.delivered.remove(&tag).ok_or_else(unknown)?;
        let counts = match (whose, how, verb) {
            (_, How::Requeue, _) => return Ok(()),
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Ack)) => Vec::new(),
            (Some(Whose::Client(_)), How::Ack, Some(Verb::Dead)) => {
                vec![seen.unwrap_or_default().and_rejected(&queue)]
            }
            (Some(Whose::Intake), How::Ack, None) => told_in(&queue, &it),
            (Some(Whose::Client(_)), How::RejectDrop, Some(Verb::Dead)) if kept => {
                let queue = String::from_utf8_lossy(&queue);
                return Err(format!(
                    "a reject from {queue} was forwarded, although the broker does not know its target"
                ));
            }
            // The broker deals with it: `close-wait` has passed, or the publisher was away for too long.
            (Some(Whose::Client(_)), How::RejectDrop, Some(Verb::Dead)) => return Ok(()),
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
        let mut by_itself = None;
        for counts in counts {
            let death = self.deaths.get(&(it.body.clone(), counts))?;
            if death.confirmed > death.settled {
                death.settled += 1;
                return Ok(());
            }
            by_itself = Some(death.by_itself);
        }
        let Some(by_itself) = by_itself else {
            return Ok(());
        };
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
