//! What is left to the broker: nothing of a queue that a proxy knows, unless somebody says so. And who may know a queue that nobody declares.

use std::collections::{BTreeMap, BTreeSet};

use dlx_proxy::machine::Fallback;

use super::super::rulings::Target;
use super::declares::Process;
use super::{Accounts, Bytes, Conn, Micros, Tag};

/// What is known of that.
#[derive(Default)]
pub(super) struct Unknown {
    /// Connections of clients that declare nothing.
    strangers: BTreeSet<Conn>,
    /// Rejects that proxies said they leave to the broker, by queue.
    left: BTreeMap<Bytes, usize>,
    /// Queues that a process said it does not know, and until when.
    nameless: BTreeMap<(Process, Bytes), Micros>,
    /// The broker always says what a queue is, to everybody.
    pub askable: bool,
    /// Sessions know as few queues as their settings say.
    pub few_queues: bool,
}

impl Accounts {
    /// What is drawn for a world.
    pub(crate) fn is_as_drawn(&mut self, askable: bool, few_queues: bool) {
        (self.unknown.askable, self.unknown.few_queues) = (askable, few_queues);
    }

    /// An operator makes a queue.
    pub(crate) fn is_made_with(&mut self, queue: &str, said: Option<Target>) {
        self.declares.made.insert(queue.into(), said);
    }

    pub(crate) fn becomes_stranger(&mut self, conn: Conn) {
        self.count.strangers += 1;
        self.unknown.strangers.insert(conn);
    }

    pub(super) fn is_stranger(&self, conn: Conn) -> bool {
        self.unknown.strangers.contains(&conn)
    }

    /// The session of that connection may not know the arguments of that queue: its client declares nothing, or has no answer to that.
    pub(super) fn may_not_know(&self, conn: Conn, queue: &Bytes) -> bool {
        let asks = self.unknown.askable && !self.declares_left && !self.gone_once.contains(queue);
        let declared = self.declared.contains(&(conn, queue.clone()));
        !asks && (self.is_stranger(conn) || !declared)
    }

    /// A proxy says that it leaves a reject to the broker.
    pub(crate) fn leaves(&mut self, queue: &[u8]) {
        *self.unknown.left.entry(queue.to_vec()).or_default() += 1;
    }

    /// A proxy says that it does not know, or does not know any more, what a queue is.
    pub(crate) fn does_not_know(&mut self, proxy: usize, queue: &[u8], cause: Fallback) {
        if let Fallback::Undeclared | Fallback::Stale = cause {
            let process = self.declares.process(proxy);
            let place = (process, queue.to_vec());
            self.unknown.nameless.insert(place, Micros::MAX);
        }
    }

    /// A client of a process reads that its declare was accepted.
    pub(super) fn knows_again(&mut self, conn: Conn, queue: &Bytes, at: Micros) {
        if let Some(process) = self.declares.conns.get(&conn).copied()
            && let Some(until) = self.unknown.nameless.get_mut(&(process, queue.clone()))
        {
            *until = at.min(*until);
        }
    }

    /// A reject comes to the broker, of a message that was delivered then.
    ///
    /// # Errors
    /// It was the proxy's to do, and nobody said that it is not.
    pub(super) fn left_to_broker(
        &mut self,
        tag: Tag,
        queue: &Bytes,
        (since, declared): (Micros, bool),
        at: Micros,
    ) -> Result<(), String> {
        // Who does not wait for the answer to a declare of his own reads from what is not known yet.
        let knows = declared || self.is_stranger(tag.0);
        if !knows || self.unknown.few_queues {
            return Ok(());
        }
        let blind = self.may_not_know(tag.0, queue);
        let window = since..=at;
        let targets = self
            .rules
            .targets(&self.declares, tag.0, queue, &window, (blind, false));
        let has_target = targets.is_some_and(|targets| !targets.contains(&None));
        let process = self.declares.conns.get(&tag.0).copied();
        let nameless = process.and_then(|of| self.unknown.nameless.get(&(of, queue.clone())));
        let wrong = [tag.1, 0]
            .iter()
            .any(|of| self.wrong.contains(&(tag.0, *of)));
        let explained = nameless.is_some_and(|until| since <= *until)
            || self.gone_once.contains(queue)
            || wrong
            || self.impatient
            || self.crashed.contains_key(&tag.0);
        if !has_target || explained {
            return Ok(());
        }
        let said = self.unknown.left.get_mut(queue).filter(|said| **said > 0);
        match said {
            Some(said) => {
                *said -= 1;
                self.count.left += 1;
                Ok(())
            }
            None => Err(format!(
                "a reject from {} was left to the broker, and nobody said why: {tag:?}",
                String::from_utf8_lossy(queue)
            )),
        }
    }
}
