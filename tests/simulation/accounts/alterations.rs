//! What proxies say to each other of alterations, and what they do in the queues that they make anew: nothing of it concerns a message.

use dlx_proxy::objects::OwnObject;

use super::super::proxy::names;
use super::{Accounts, Conn, Delivery, Fact, How, Whose};

impl Accounts {
    /// `None`: it has nothing to do with an alteration. An error: what it has to do with one may not be.
    pub(super) fn is_of_alteration(&mut self, fact: &Fact) -> Option<Result<(), String>> {
        let done = Some(Ok(()));
        let of_one = |conn: &Conn| self.alters(*conn);
        match fact {
            Fact::Published { conn, .. } if of_one(conn) => {
                self.publishing = Some(*conn);
                done
            }
            Fact::Queued { queue, .. } | Fact::Dropped { queue, .. } if is_its_own(queue) => done,
            // What a proof is given goes back.
            Fact::Delivered { conn, .. } if of_one(conn) => done,
            Fact::Settled { conn, how, .. } if of_one(conn) => match how {
                How::Requeue => done,
                _ => Some(Err(format!("an alteration settles by {how:?}"))),
            },
            _ => None,
        }
    }

    /// It is a connection of an alteration.
    pub(crate) fn alters(&self, conn: Conn) -> bool {
        self.whose.get(&conn) == Some(&Whose::Alteration)
    }

    /// Whose client has that message.
    pub(crate) fn holder(&self, queue: &[u8], body: &[u8]) -> Option<Conn> {
        let mut held = self.delivered.iter();
        let is_it = |of: &Delivery| of.queue == queue && body.starts_with(&of.copy.body);
        held.find_map(|(tag, of)| is_it(of).then_some(tag.0))
    }

    pub(crate) fn is_client(&self, conn: Conn) -> bool {
        matches!(self.whose.get(&conn), Some(Whose::Client(_)))
    }

    /// An alteration is under way, and that process is not counted: it may not know what becomes of the queue.
    pub(crate) fn takes_no_part(&mut self, proxy: usize) {
        self.uninformed.insert(self.declares.process(proxy));
    }

    pub(crate) fn all_take_part(&self) -> bool {
        self.uninformed.is_empty()
    }

    /// A declare on that connection may say what its proxy does not know to be altered.
    pub(super) fn may_be_strict(&self, conn: Conn) -> bool {
        let process = self.declares.conns.get(&conn);
        self.is_gone(conn) || process.is_some_and(|of| self.uninformed.contains(of))
    }

    /// Its client is lost. What that had sent may still come to the broker.
    pub(crate) fn is_gone(&self, conn: Conn) -> bool {
        self.crashed.contains_key(&conn)
    }
}

/// Orders, trials, claims, and where those that take part are told.
pub(crate) fn is_its_own(queue: &[u8]) -> bool {
    use OwnObject::{Claim, Follower, Order, Trial};
    let own = names().parse(queue);
    let own = own.map(|own| matches!(own, Order(_) | Trial(_) | Claim(_) | Follower(_)));
    own.unwrap_or_default()
}
