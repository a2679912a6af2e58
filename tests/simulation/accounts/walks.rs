//! Redrives and purges: what they take and remove, and what they leave.

use std::collections::{BTreeMap, BTreeSet};

use dlx_proxy::console::redrives::{Shown, State};
use dlx_proxy::walk::REORDERED;

use super::super::model::MessageView;
use super::super::operator::Wanted;
use super::duties::Duty;
use super::{
    Accounts, Bytes, Conn, Copy, Delivery, FAULT_SHOWS, Fact, How, Micros, Tag, Whose, Why,
};

/// By the operator's numbers.
#[derive(Default)]
pub(super) struct Walks(pub(super) BTreeMap<u64, Account>);

/// One of them.
pub(super) struct Account {
    pub(super) wanted: Wanted,
    begun: Micros,
    /// What was in its queue when it began, in order, as long as nobody else has had a hand in it; and what was meant of that.
    stood: Option<Vec<u64>>,
    meant: Vec<u64>,
    /// Those of them that had come back to a quorum queue: if a walk takes only some, these come to stand behind the others (S12.9).
    came_back: BTreeSet<u64>,
    /// What it has had of its queue since it last began to take, by the channel on which that came.
    taken: (Option<(Conn, u16)>, BTreeSet<u64>),
    /// It has put some of them behind the others.
    is_mixed: bool,
    /// As many messages as the broker has told it.
    counted: Option<u64>,
    /// Copies that it has removed.
    gone: Vec<u64>,
    /// What the proxy says of it at its end.
    shown: Option<Shown>,
}

impl Accounts {
    // --- the operator

    /// `stood`: what is in its queue, if nobody else has any of it.
    pub(crate) fn begins_walk(
        &mut self,
        wanted: Wanted,
        stood: Option<Vec<MessageView>>,
        at: Micros,
    ) {
        let came_back = stood.iter().flatten().filter(|message| message.returned);
        let came_back = came_back.map(|message| message.copy).collect();
        let copies = |all: Vec<MessageView>| all.iter().map(|message| message.copy).collect();
        let stood: Option<Vec<u64>> = stood.map(copies);
        let is_meant = |copy: &&u64| {
            self.copies
                .get(copy)
                .is_some_and(|of| wanted.takes(&of.body))
        };
        let account = Account {
            begun: at,
            meant: stood.iter().flatten().filter(is_meant).copied().collect(),
            stood,
            came_back,
            taken: Default::default(),
            is_mixed: false,
            counted: None,
            gone: Vec::new(),
            shown: None,
            wanted,
        };
        self.count.walks += 1;
        self.walks.0.insert(account.wanted.number, account);
    }

    /// Whose walk that connection is.
    pub(crate) fn walk(&self, conn: Conn) -> Option<u64> {
        match self.whose.get(&conn)? {
            Whose::Walk(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn queue_of(&self, number: u64) -> String {
        let account = self.walks.0.get(&number);
        account.map_or_else(String::new, |account| account.wanted.queue.clone())
    }

    /// Somebody else has a hand in its queue.
    pub(crate) fn is_disturbed(&mut self, number: u64) {
        if let Some(account) = self.walks.0.get_mut(&number) {
            account.stood = None;
        }
    }

    // --- what the broker says

    /// The broker says how many messages there are. The first time counts.
    pub(crate) fn counted_by_walk(&mut self, conn: Conn, messages: u64) {
        let number = self.walk(conn);
        if let Some(account) = number.and_then(|number| self.walks.0.get_mut(&number)) {
            account.counted.get_or_insert(messages);
        }
    }

    pub(super) fn disturbs_walks(&mut self, fact: &Fact) {
        let (queue, conn) = match fact {
            Fact::Consumed { queue, conn }
            | Fact::Delivered { queue, conn, .. }
            | Fact::Settled { queue, conn, .. } => (queue, Some(*conn)),
            Fact::Dropped { why: Why::Full, .. } => return,
            Fact::Died { queue, .. } | Fact::Dropped { queue, .. } => (queue, None),
            _ => return,
        };
        let walk = conn.and_then(|conn| self.walk(conn));
        let others = self.walks.0.values_mut();
        for account in others.filter(|of| Some(of.wanted.number) != walk) {
            if account.wanted.queue.as_bytes() == queue {
                account.stood = None;
            }
        }
    }

    pub(super) fn taken_by_walk(&mut self, tag: Tag, queue: &Bytes, id: u64, copy: &Copy) {
        let Some(number) = self.walk(tag.0) else {
            return;
        };
        if let Some(account) = self.walks.0.get_mut(&number) {
            account.takes((tag.0, tag.1), id);
        }
        for duty in self.redrives(number, queue, copy) {
            self.deaths
                .heard(copy.body.clone(), duty, (0, copy.mark + 1), None);
        }
    }

    /// # Errors
    /// It was not to go, or it is nowhere else.
    pub(super) fn settled_by_walk(
        &mut self,
        number: u64,
        delivery: &Delivery,
        copy: u64,
        how: How,
    ) -> Result<(), String> {
        let body = String::from_utf8_lossy(&delivery.copy.body);
        let duties = self.redrives(number, &delivery.queue, &delivery.copy);
        let confirmed = duties
            .into_iter()
            .map(|duty| (delivery.copy.body.clone(), duty));
        let is_confirmed = |of: &(Bytes, Duty)| {
            let death = self.deaths.find(of);
            death.is_some_and(|death| death.confirmed > death.settled)
        };
        let confirmed = confirmed.into_iter().find(is_confirmed);
        let Some(account) = self.walks.0.get_mut(&number) else {
            return Err(format!("{body} is settled by nobody's walk"));
        };
        let wrong = |what: &str| Err(format!("redrive {number}, {body}: {what}"));
        match how {
            How::RejectDrop => return wrong("it is rejected"),
            How::Requeue => {
                account.gives_back(copy);
                return self.stays(number, confirmed);
            }
            How::Ack => {}
        }
        account.gone.push(copy);
        let gone = account.gone.len() as u64;
        let wanted = &account.wanted;
        if !wanted.takes(&delivery.copy.body) {
            return wrong("it goes, and was not meant");
        }
        if gone > wanted.most || account.counted.is_none_or(|counted| gone > counted) {
            let (most, counted) = (wanted.most, account.counted);
            let what = format!("{gone} go, and not at most {most} of {counted:?}");
            return wrong(&what);
        }
        match (&wanted.to, confirmed) {
            (None, _) => self.count.purged += 1,
            (Some(_), Some(of)) => self.deaths.get(&of)?.settled += 1,
            (Some(_), None) => return wrong("it goes, and no redrive of it is confirmed"),
        }
        self.gone(copy)?;
        Ok(())
    }

    /// A message is back in its queue. `confirmed`: it was sent back, too.
    fn stays(&self, number: u64, confirmed: Option<(Bytes, Duty)>) -> Result<(), String> {
        match confirmed {
            Some((body, duty)) if !self.is_troubled(number) => {
                let body = String::from_utf8_lossy(&body);
                Err(format!("{body} stays, and {duty} is confirmed"))
            }
            _ => Ok(()),
        }
    }

    /// Something has gone wrong that may concern it.
    fn is_troubled(&self, number: u64) -> bool {
        let begun = self.walks.0.get(&number).map_or(0, |account| account.begun);
        let since = begun.saturating_sub(FAULT_SHOWS);
        self.faults.iter().any(|fault| *fault >= since)
    }

    // --- its end

    /// # Errors
    /// The proxy says of it what is not so.
    pub(crate) fn walk_ended(&mut self, number: u64, shown: Shown) -> Result<(), String> {
        self.count.completed += usize::from(shown.state == State::Completed);
        self.count.failed += usize::from(shown.state == State::Failed);
        let Some(account) = self.walks.0.get_mut(&number) else {
            return Ok(());
        };
        let (ready, counted) = (shown.ready, account.counted);
        account.shown = Some(shown);
        match ready.is_some() && ready != counted {
            true => Err(format!(
                "redrive {number} began with {counted:?}, not {ready:?}"
            )),
            false => Ok(()),
        }
    }

    /// Nothing of it is under way any more. `stands`: what is in its queue.
    ///
    /// # Errors
    /// It has moved what it should not, or not what it should, or what stays is in another order.
    pub(crate) fn judge_walk(&mut self, number: u64, stands: &[u64]) -> Result<(), String> {
        let tags = self.delivered.keys().copied();
        let held: Vec<Tag> = tags
            .filter(|tag| self.walk(tag.0) == Some(number))
            .collect();
        for tag in held {
            let Some(delivery) = self.delivered.remove(&tag) else {
                continue;
            };
            let duties = self.redrives(number, &delivery.queue, &delivery.copy);
            let all = duties
                .into_iter()
                .map(|duty| (delivery.copy.body.clone(), duty));
            let confirmed = all.into_iter().find(|of| {
                let death = self.deaths.find(of);
                death.is_some_and(|death| death.confirmed > death.settled)
            });
            self.stays(number, confirmed)?;
        }
        let troubled = self.is_troubled(number);
        let Some(account) = self.walks.0.get_mut(&number) else {
            return Ok(());
        };
        let wrong = |what: String| Err(format!("redrive {number}: {what}"));
        let gone = account.gone.len() as u64;
        let told = account.shown.as_ref().map(|shown| shown.gone);
        if told.is_some_and(|told| told < gone || told > gone && !troubled) {
            return wrong(format!("{gone} are gone, and it says {told:?}"));
        }
        let Some(stood) = account.stood.take() else {
            return Ok(());
        };
        let stays: Vec<u64> = stood
            .iter()
            .copied()
            .filter(|of| !account.gone.contains(of))
            .collect();
        let stands: Vec<u64> = stands
            .iter()
            .copied()
            .filter(|of| stood.contains(of))
            .collect();
        let is_kept = account.keeps_the_order();
        let same = |one: &[u64], other: &[u64]| match is_kept {
            true => one == other,
            false => one.iter().collect::<BTreeSet<_>>() == other.iter().collect(),
        };
        if !same(&stays, &stands) {
            return wrong(format!(
                "there should be {stays:?}, and there is {stands:?}"
            ));
        }
        self.count.in_order += usize::from(is_kept && stays.len() > 1);
        if account.wanted.to.is_some() {
            return Ok(());
        }
        let mut goes = account.gone.iter().zip(&account.meant);
        let are_meant = match is_kept {
            true => goes.all(|(gone, meant)| gone == meant),
            false => account.gone.iter().all(|gone| account.meant.contains(gone)),
        };
        if !are_meant {
            return wrong(format!(
                "{:?} are gone of {:?}",
                account.gone, account.meant
            ));
        }
        let shown = account.shown.as_ref();
        let is_completed = shown.is_some_and(|shown| shown.state == State::Completed);
        let least = account.wanted.most.min(account.meant.len() as u64);
        match is_completed && gone < least {
            true => wrong(format!("{gone} are gone, and not {least}")),
            false => Ok(()),
        }
    }
}

// === impl Account ===

impl Account {
    fn takes(&mut self, on: (Conn, u16), copy: u64) {
        if self.taken.0 != Some(on) {
            self.taken = (Some(on), BTreeSet::new());
        }
        self.taken.1.insert(copy);
    }

    /// From now on this one stands with those that had come back.
    fn gives_back(&mut self, copy: u64) {
        self.is_mixed |= !self.has_all_that_came_back();
        self.came_back.insert(copy);
    }

    /// Of what had come back it puts back all or none, or says that it does not; one that fails says nothing.
    fn keeps_the_order(&self) -> bool {
        let shown = self.shown.as_ref();
        match shown.filter(|shown| shown.state != State::Failed) {
            Some(shown) => !shown.notes.iter().any(|note| note == REORDERED),
            None => !self.is_mixed && self.has_all_that_came_back(),
        }
    }

    fn has_all_that_came_back(&self) -> bool {
        let taken = |of: &u64| self.taken.1.contains(of) || self.gone.contains(of);
        self.came_back.iter().all(taken)
    }
}
