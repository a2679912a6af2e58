//! The book of redrives: which are at work, and what became of the last ones. It begins none by itself, so whoever drives walks can keep it.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::shown::Entry;
use super::{NotBegun, Order, Shown};
use crate::amqp::ids::Vhost;
use crate::machine::{Limits, Wall};
use crate::objects::Names;
use crate::walk::{Ended, Failure, Input, Progress};

const MOST_ENDED: usize = 100;

#[derive(Default)]
pub struct Book {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

pub(super) type Watch = (watch::Receiver<Progress>, CancellationToken);

// === impl Book ===

impl Book {
    /// `most`: running at once. `begin`: starts the walk with its progress channel, and returns its
    /// sender.
    ///
    /// # Errors
    /// Another one works in that queue, too many run, or the destination is forbidden.
    pub fn begin(
        &mut self,
        order: &Order,
        names: &Names,
        most: usize,
        now: Wall,
        begin: impl FnOnce(watch::Sender<Progress>) -> mpsc::Sender<Input>,
    ) -> Result<u64, NotBegun> {
        if let Some(name) = order.goes_to().filter(|name| names.is_ours(name)) {
            return Err(NotBegun::Ours(name.clone()));
        }
        let in_the_way = |entry: &Entry| {
            let is_here = entry.vhost == order.login.vhost && entry.queue == order.queue;
            is_here && entry.ended.is_none()
        };
        if let Some((id, _)) = self.entries.iter().find(|(_, entry)| in_the_way(entry)) {
            return Err(NotBegun::Busy(*id));
        }
        let at_work = self.entries.values().filter(|entry| entry.ended.is_none());
        let of_user = at_work.clone().filter(|entry| entry.by == order.login.user);
        if at_work.count() >= most || of_user.count() >= Limits::of_one_user(most) {
            return Err(NotBegun::TooMany);
        }
        self.last += 1;
        let id = self.last;
        let (told, progress) = watch::channel(Progress::default());
        let entry = Entry {
            vhost: order.login.vhost.clone(),
            queue: order.queue.clone(),
            by: order.login.user.clone(),
            to: order.to(),
            is_published: order.to.is_some(),
            most: order.most,
            begun: now,
            progress,
            tell: begin(told),
            paused: false,
            cancelled: false,
            ended: None,
            over: CancellationToken::new(),
        };
        self.entries.insert(id, entry);
        Ok(id)
    }

    /// The newest first. `is_blocked`: whether an alarm blocks the publisher of a vhost.
    pub fn list(&self, is_blocked: impl Fn(&Vhost) -> bool) -> Vec<Shown> {
        let entries = self.entries.iter().rev();
        entries
            .map(|(id, entry)| entry.show(*id, entry.is_published && is_blocked(&entry.vhost)))
            .collect()
    }

    pub fn show(&self, id: u64, is_blocked: impl Fn(&Vhost) -> bool) -> Option<Shown> {
        let entry = self.entries.get(&id)?;
        Some(entry.show(id, entry.is_published && is_blocked(&entry.vhost)))
    }

    pub(super) fn watch(&self, id: u64) -> Option<Watch> {
        let entry = self.entries.get(&id)?;
        Some((entry.progress.clone(), entry.over.clone()))
    }

    pub(super) fn failure(&self, id: u64) -> Option<Failure> {
        match &self.entries.get(&id)?.ended {
            Some((_, Err(failure))) => Some(failure.clone()),
            _ => None,
        }
    }

    /// False: it has ended, or never was.
    pub fn pause(&mut self, id: u64, pause: bool) -> bool {
        self.tell(id, Input::Pause(pause), |entry| entry.paused = pause)
    }

    /// Messages in flight still arrive. False: it has ended, or never was.
    pub fn cancel(&mut self, id: u64) -> bool {
        self.tell(id, Input::Enough, |entry| entry.cancelled = true)
    }

    fn tell(&mut self, id: u64, input: Input, note: impl FnOnce(&mut Entry)) -> bool {
        let entry = self.entries.get_mut(&id);
        let Some(entry) = entry.filter(|entry| entry.ended.is_none()) else {
            return false;
        };
        let told = entry.tell.try_send(input).is_ok();
        if told {
            note(entry);
        }
        told
    }

    /// `ended`: `None` if it did not end in time.
    pub fn ended(&mut self, id: u64, ended: Option<Ended>, now: Wall) -> Option<Shown> {
        let entry = self.entries.get_mut(&id)?;
        entry.cancelled |= ended.is_none();
        let ended = ended.unwrap_or_else(|| Ok(Default::default()));
        entry.ended = Some((now, ended));
        entry.over.cancel();
        let shown = entry.show(id, false);
        let ended = self.entries.iter();
        let ended = ended.filter(|(_, entry)| entry.ended.is_some());
        let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
        for id in ended.iter().rev().skip(MOST_ENDED) {
            self.entries.remove(id);
        }
        Some(shown)
    }
}
