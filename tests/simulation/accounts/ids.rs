//! Ids of copies (docs/reference/dead-letters.md, "Copies of one message"): what a proxy publishes once more has the id that it had, and no two
//! messages have the same.

use std::collections::{BTreeMap, BTreeSet};

use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Value};
use super::duties::Duty;
use super::targets::died_in;
use super::{Accounts, Tag};

#[derive(Default)]
pub(super) struct Ids {
    /// Whose each of them is.
    bodies: BTreeMap<Bytes, Bytes>,
    /// By message, and by what was done with it.
    given: BTreeMap<(Bytes, Duty), BTreeSet<Bytes>>,
    /// Of publications without a confirm.
    open: BTreeMap<Tag, Bytes>,
    /// How many a publisher refused while it could publish nothing, by queue: what their sessions keep is published later with another id
    /// (docs/reference/dead-letters.md, "Copies of one message").
    in_doubt: BTreeMap<Bytes, usize>,
}

/// Nothing: proxies do not stamp.
pub(super) fn id_of(content: &Frame) -> Option<&Bytes> {
    match content.headers()?.get("x-copy-id")? {
        Value::Text(id) => Some(id),
        _ => None,
    }
}

// === impl Ids ===

impl Ids {
    /// A proxy publishes that. `heard`: so often it was to be done, at most; of several copies of a message some may have no id.
    ///
    /// # Errors
    /// It has the id of another message, or a new one where it has one.
    pub(super) fn published(
        &mut self,
        tag: Tag,
        of: &(Bytes, Duty),
        (content, parked): (&Frame, bool),
        heard: usize,
    ) -> Result<(), String> {
        let Some(id) = id_of(content) else {
            return Ok(());
        };
        self.open.insert(tag, id.clone());
        let (body, duty) = of;
        let queue = match duty {
            Duty::Dies(_) => died_in(content),
            Duty::Leaves(stay) | Duty::Returns(stay) => Some(stay.queue.clone()),
            Duty::Redriven(_) => None,
        };
        let in_doubt = queue.and_then(|queue| self.in_doubt.get(&queue));
        let most = heard + in_doubt.copied().unwrap_or_default();
        let text = String::from_utf8_lossy;
        let is_new = !self.bodies.contains_key(id);
        let whose = self.bodies.entry(id.clone()).or_insert(body.clone());
        if whose != body {
            let whose = text(whose);
            return Err(format!("{} has the id of {whose}", text(body)));
        }
        if parked {
            return Ok(());
        }
        let given = self.given.entry(of.clone()).or_default();
        given.insert(id.clone());
        let ids = given.len();
        if ids > most {
            let body = text(body);
            return Err(format!("{body}, {duty}: {ids} ids, heard of {heard} times"));
        }
        let keeps = match duty {
            Duty::Redriven(_) => true,
            Duty::Returns(stay) => {
                let left = (body.clone(), Duty::Leaves(stay.clone()));
                let ids = self.given.get(&left);
                heard == 1 && ids.is_some_and(|ids| !ids.is_empty())
            }
            Duty::Dies(_) | Duty::Leaves(_) => false,
        };
        match keeps && is_new {
            true => Err(format!("{}, {duty}: it has a new id", text(body))),
            false => Ok(()),
        }
    }

    /// What no queue has taken may have another one the next time.
    pub(super) fn answered(&mut self, tag: Tag, of: &(Bytes, Duty), nacked: bool) {
        if let Some(id) = self.open.remove(&tag).filter(|_| nacked)
            && let Some(given) = self.given.get_mut(of)
        {
            given.remove(&id);
        }
    }
}

// === impl Accounts ===

impl Accounts {
    /// A publisher has refused one: it could publish nothing for too long, and what it sent before may have arrived.
    pub(crate) fn publisher_away(&mut self, queue: &[u8]) {
        *self.ids.in_doubt.entry(queue.to_vec()).or_default() += 1;
    }
}
