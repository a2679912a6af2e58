//! What proxies say to each other of alterations, and what they do in the queues that they make anew. Of messages it concerns only those that
//! are moved aside and back: each is acked when its copy is confirmed, and that is what it was.

use std::collections::{BTreeMap, BTreeSet};

use dlx_proxy::objects::OwnObject;

use super::super::proxy::names;
use super::super::rulings::Target;
use super::declares::{Declares, Process};
use super::{Accounts, Bytes, Conn, Fact, How, Tag, Whose, id};

#[derive(Default)]
pub(super) struct Alterations {
    /// Processes that took no part in one.
    pub(super) uninformed: BTreeSet<Process>,
    /// What they have been given: a publish of the same number moves it.
    given: BTreeMap<Tag, Given>,
    /// Those whose publish is confirmed, and which are not acked.
    moved: BTreeSet<Tag>,
}

/// A copy, its queue, and how often that says that it came back.
struct Given {
    copy: u64,
    queue: Bytes,
    counts: [Option<u64>; 2],
}

impl Accounts {
    /// `None`: it has nothing to do with an alteration. An error: what it has to do with one may not be.
    pub(super) fn is_of_alteration(&mut self, fact: &Fact) -> Option<Result<(), String>> {
        let done = Some(Ok(()));
        let of_one = |conn: &Conn| self.alters(*conn);
        match fact {
            Fact::Published {
                conn,
                channel,
                publish,
                body,
                into,
                ..
            } if of_one(conn) => {
                self.publishing = Some(*conn);
                match into.iter().all(|queue| is_its_own(queue)) {
                    true => done,
                    false => Some(self.moves((*conn, *channel, *publish), body)),
                }
            }
            Fact::Queued { queue, .. } | Fact::Dropped { queue, .. } if is_its_own(queue) => done,
            Fact::Confirmed {
                conn,
                channel,
                tag,
                nacked: false,
            } if of_one(conn) => {
                self.alterations.moved.insert((*conn, *channel, *tag));
                done
            }
            Fact::Delivered {
                conn,
                channel,
                tag,
                queue,
                copy,
                counts,
                ..
            } if of_one(conn) => {
                let given = Given {
                    copy: *copy,
                    queue: queue.clone(),
                    counts: *counts,
                };
                let tag = (*conn, *channel, *tag);
                self.alterations.given.insert(tag, given);
                done
            }
            Fact::Settled {
                conn,
                channel,
                tag,
                copy,
                how,
                body,
                ..
            } if of_one(conn) => match how {
                // What a proof is given goes back; and what was on its way when a move ended.
                How::Requeue => done,
                How::Ack if self.alterations.moved.remove(&(*conn, *channel, *tag)) => {
                    Some(self.gone(*copy).map(drop))
                }
                _ => {
                    let body = String::from_utf8_lossy(body);
                    Some(Err(format!("an alteration settles {body} by {how:?}")))
                }
            },
            _ => None,
        }
    }

    /// A copy of what it was given enters another queue.
    ///
    /// # Errors
    /// It is not what it was given.
    fn moves(&mut self, tag: Tag, body: &Bytes) -> Result<(), String> {
        let given = self.alterations.given.get(&tag);
        let copy = given.and_then(|given| Some((given, self.copies.get(&given.copy)?)));
        let Some((given, copy)) = copy.filter(|(_, copy)| copy.body == id(body)) else {
            let body = String::from_utf8_lossy(body);
            return Err(format!(
                "an alteration publishes {body}, and was not given it"
            ));
        };
        self.entering = copy.clone();
        if aside_of(&given.queue).is_none() {
            self.entering.goes_aside(&given.queue, given.counts);
        }
        self.count.set_aside += 1;
        Ok(())
    }

    /// A queue that was away for an alteration is there again, made by whoever came first. With other arguments than it had, nothing counts of
    /// what was recorded before.
    pub(crate) fn is_there_again(&mut self, queue: &str, target: Option<Target>) {
        let Declares {
            made, once_made, ..
        } = &mut self.declares;
        let before = made.insert(queue.into(), target.clone());
        if let Some(before) = before.filter(|before| *before != target) {
            once_made.entry(queue.into()).or_default().insert(before);
        }
    }

    /// It is a connection of an alteration.
    pub(crate) fn alters(&self, conn: Conn) -> bool {
        self.whose.get(&conn) == Some(&Whose::Alteration)
    }

    /// Whose client was given that copy last.
    pub(crate) fn holder(&self, copy: u64) -> Option<Conn> {
        let mut held = self.delivered.iter().rev();
        held.find_map(|(tag, of)| (of.number == copy).then_some(tag.0))
    }

    pub(crate) fn is_client(&self, conn: Conn) -> bool {
        matches!(self.whose.get(&conn), Some(Whose::Client(_)))
    }

    /// An alteration is under way, and that process is not counted: it may not know what becomes of the queue.
    pub(crate) fn takes_no_part(&mut self, proxy: usize) {
        self.alterations
            .uninformed
            .insert(self.declares.process(proxy));
    }

    pub(crate) fn all_take_part(&self) -> bool {
        self.alterations.uninformed.is_empty()
    }

    /// A declare on that connection may say what its proxy does not know to be altered.
    pub(super) fn may_be_strict(&self, conn: Conn) -> bool {
        self.is_gone(conn) || self.is_uninformed(conn)
    }

    /// Its proxy took no part in an alteration.
    pub(super) fn is_uninformed(&self, conn: Conn) -> bool {
        let process = self.declares.conns.get(&conn);
        process.is_some_and(|of| self.alterations.uninformed.contains(of))
    }

    /// Its client is lost. What that had sent may still come to the broker.
    pub(crate) fn is_gone(&self, conn: Conn) -> bool {
        self.crashed.contains_key(&conn)
    }
}

/// The queue whose messages wait there.
pub(crate) fn aside_of(queue: &[u8]) -> Option<&[u8]> {
    match names().parse(queue) {
        Some(OwnObject::Aside(of)) => Some(of),
        _ => None,
    }
}

/// Orders, trials, claims, and where those that take part are told.
pub(crate) fn is_its_own(queue: &[u8]) -> bool {
    use OwnObject::{Claim, Follower, Order, Trial};
    let own = names().parse(queue);
    let own = own.map(|own| matches!(own, Order(_) | Trial(_) | Claim(_) | Follower(_)));
    own.unwrap_or_default()
}
