//! Declares that differ from their queue in where its dead letters go: which of them may count, in which proxy, since when.
//!
//! A declare may count anywhere from the moment at which its client sends it. When it is answered, it counts in the proxy that answered it, and
//! stands in the record, unless that proxy has said that it cannot write it: so it counts in each process that begins later, before that does
//! anything; and in the others as soon as they have read the record. What was answered before a declare began that counts does not count any more.
//! Of two that were under way at the same time either may be the later one, and one that is never answered may come at any time, as long as its
//! process lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::codec::frame::Frame;
use super::super::codec::value::Bytes;
use super::super::model::Conn;
use super::super::net::Micros;
use super::super::proxy::names;
use super::super::redeclares::Saying;
use super::super::rulings::Target;
use super::entries::Entry;
use super::rules::Window;
use super::{Accounts, Tag, Whose};

/// One process: a proxy, and how many it was before.
pub(super) type Process = (usize, usize);

/// The queue, which declare of it, and what that says.
type Open = (Bytes, Option<usize>, Saying);

/// All of them.
#[derive(Default)]
pub(super) struct Declares {
    /// In the order in which they were sent, by queue. Of other queues none may differ.
    queues: BTreeMap<Bytes, Vec<Declare>>,
    /// When each process began, by proxy.
    processes: BTreeMap<usize, Vec<Micros>>,
    pub(super) conns: BTreeMap<Conn, Process>,
    /// What is not answered yet, by channel.
    open: BTreeMap<(Conn, u16), VecDeque<Open>>,
    /// Of the last publication.
    entering: Option<Entry>,
    /// The entries of each queue, in the order of the record.
    written: BTreeMap<Bytes, Vec<Written>>,
    /// What queues were made with, since that is known: the declare that makes one may never be answered.
    pub(super) made: BTreeMap<Bytes, Option<Target>>,
    /// The same of earlier ones, of queues that were made anew by others than who altered them.
    pub(super) once_made: BTreeMap<Bytes, BTreeSet<Option<Target>>>,
    /// By copy: its queue.
    entries: BTreeMap<u64, Bytes>,
    /// Who has read which copy, and when.
    read: BTreeMap<(Process, u64), Micros>,
    /// Processes that do something before they have read what was recorded: they have said so, or waited for long enough.
    without_record: BTreeSet<Process>,
    /// Declares that proxies said they could not record, by queue.
    unrecorded: BTreeMap<Bytes, usize>,
}

/// One declare of a client.
#[derive(Debug)]
struct Declare {
    said: Option<Target>,
    sent: Micros,
    answered: Option<Micros>,
    by: Process,
    /// Its entry, or one that says the same: its copy, and since when it stands in the record.
    recorded: Option<(u64, Micros)>,
    /// When the first of these was written.
    appeared: Option<Micros>,
    /// Whatever is recorded says the same, or nothing is: so it need not be.
    agrees: bool,
}

/// An entry of a queue, with its copy, who wrote it, and when.
#[derive(Debug)]
struct Written {
    copy: u64,
    by: Process,
    at: Micros,
    entry: Entry,
}

// === impl Declare ===

impl Declare {
    /// It was sent; and what is not in the record only the process of its client can know.
    fn may_be_known(&self, process: Process, window: &Window) -> bool {
        let agrees = || self.answered.filter(|_| self.agrees);
        let since = match self.by == process {
            true => Some(self.sent),
            false => self.appeared.or_else(agrees),
        };
        since.is_some_and(|since| since <= *window.end())
    }

    /// The entry that makes one of its own needless: one that said the same while this declare was under way; or a later one of its process, as of
    /// two that are under way there the later one stands for both.
    fn stood_for_by<'a>(&self, written: &'a [Written]) -> Option<&'a Written> {
        let until = |at: usize| written.get(at + 1).map_or(Micros::MAX, |next| next.at);
        let stands_for = |(at, of): &(usize, &Written)| {
            let says_so = of.entry.said == self.said && until(*at) >= self.sent;
            let is_later = of.by == self.by && of.at >= self.sent;
            says_so || is_later
        };
        let mut entries = written.iter().enumerate();
        entries.rfind(stands_for).map(|(_, of)| of)
    }

    /// Since when a process that begins knows it.
    fn stands(&self) -> Option<Micros> {
        let answered = self.answered?;
        match self.recorded {
            Some((_, recorded)) => Some(answered.max(recorded)),
            None => self.agrees.then_some(answered),
        }
    }
}

// === impl Declares ===

impl Declares {
    pub(super) fn may_differ(&mut self, queue: Bytes) {
        self.queues.insert(queue, Vec::new());
    }

    pub(super) fn are_lenient(&self, queue: &[u8]) -> bool {
        self.queues.contains_key(queue)
    }

    pub(super) fn begins(&mut self, proxy: usize, at: Micros) {
        self.processes.entry(proxy).or_default().push(at);
    }

    pub(super) fn belongs(&mut self, conn: Conn, proxy: usize) {
        self.conns.insert(conn, self.process(proxy));
    }

    pub(super) fn process(&self, proxy: usize) -> Process {
        let all = self.processes.get(&proxy).map_or(0, Vec::len);
        (proxy, all.saturating_sub(1))
    }

    fn began(&self, (proxy, number): Process) -> Micros {
        let all = self.processes.get(&proxy);
        all.and_then(|all| all.get(number)).copied().unwrap_or(0)
    }

    /// `None`: it lives.
    fn ended(&self, (proxy, number): Process) -> Option<Micros> {
        self.processes.get(&proxy)?.get(number + 1).copied()
    }

    /// From when on what that process knows of it counts there; not before it has to.
    fn counts_in(&self, process: Process, declare: &Declare) -> Option<Micros> {
        let stands = declare.stands()?;
        if declare.by == process {
            return declare.answered;
        }
        let began = self.began(process);
        let read_first = stands < began && !self.without_record.contains(&process);
        let read = declare
            .recorded
            .and_then(|(copy, _)| self.read.get(&(process, copy)))
            .map(|read| stands.max(*read));
        let at_first = read_first.then_some(began);
        [at_first, read].into_iter().flatten().min()
    }

    /// When a process that did something before has read the entry: then it counts there, and not what its own clients have said since.
    fn is_read_late(&self, process: Process, declare: &Declare) -> Option<Micros> {
        let (copy, _) = declare.recorded?;
        let read = self.read.get(&(process, copy)).copied();
        read.filter(|_| self.without_record.contains(&process))
    }

    /// After that, no other declare that begins can be the earlier one: its process may write again what it was answered with.
    fn is_over(&self, declare: &Declare, written: &[Written]) -> Option<Micros> {
        let recorded = declare.recorded.map(|(_, recorded)| recorded);
        let over = declare.stands().or(recorded);
        let says_so = |of: &&Written| of.by == declare.by && of.entry.said == declare.said;
        let again = written.iter().rfind(says_so).map(|of| of.at);
        over.map(|over| again.map_or(over, |again| over.max(again)))
            .or_else(|| self.ended(declare.by))
    }

    /// All that may have been said last of that queue, as its proxy knows it. `None`: all declares say the same.
    pub(super) fn argued(
        &self,
        conn: Conn,
        queue: &[u8],
        window: &Window,
    ) -> Option<Vec<Option<Target>>> {
        let (all, made) = (self.queues.get(queue)?, self.made.get(queue));
        if let Some(once) = self.once_made.get(queue) {
            return Some(any_life(all, once, made, window));
        }
        let written = self.written.get(queue).map_or(&[][..], Vec::as_slice);
        let process = self.conns.get(&conn).copied()?;
        let counts = |declare: &&Declare| {
            let since = self.counts_in(process, declare);
            since.is_some_and(|since| since < *window.start())
        };
        let last = all.iter().filter(counts).map(|declare| declare.sent).max();
        let may_count = |declare: &&Declare| {
            let known = match made {
                Some(_) => declare.may_be_known(process, window),
                None => declare.sent <= *window.end(),
            };
            let over = self.is_over(declare, written);
            let is_read_late = || self.is_read_late(process, declare) >= last;
            known && (over.is_none() || last.is_none() || over >= last || is_read_late())
        };
        let made = made.filter(|_| last.is_none());
        let mut argued: Vec<Option<Target>> = made.cloned().into_iter().collect();
        for declare in all.iter().filter(may_count) {
            if !argued.contains(&declare.said) {
                argued.push(declare.said.clone());
            }
        }
        Some(argued)
    }

    /// A recorder publishes an entry, which has this number now.
    fn recorded(&mut self, process: Process, copy: u64, at: Micros) {
        let Some(entry) = self.entering.take() else {
            return;
        };
        self.entries.insert(copy, entry.queue.clone());
        let declares = self.queues.entry(entry.queue.clone()).or_default();
        for declare in declares {
            // One that is answered and stands in the record is recorded.
            if declare.by == process && declare.said == entry.said && declare.stands().is_none() {
                declare.recorded = Some((copy, at));
                declare.appeared.get_or_insert(at);
            }
        }
        let queue = entry.queue.clone();
        let made = self.made.entry(queue.clone());
        made.or_insert_with(|| entry.argued.clone());
        let written = Written {
            copy,
            by: process,
            at,
            entry,
        };
        self.written.entry(queue).or_default().push(written);
    }
}

/// What may count of a queue that was made anew with other arguments: each session goes by the life that it knows.
fn any_life(
    declares: &[Declare],
    once: &BTreeSet<Option<Target>>,
    made: Option<&Option<Target>>,
    window: &Window,
) -> Vec<Option<Target>> {
    let sent = declares.iter().filter(|of| of.sent <= *window.end());
    let said = sent.map(|of| &of.said);
    let all: BTreeSet<_> = once.iter().chain(made).chain(said).collect();
    all.into_iter().cloned().collect()
}

// === impl Accounts ===

impl Accounts {
    /// A client sends a declare.
    pub(super) fn sends_declare(
        &mut self,
        conn: Conn,
        (channel, queue): (u16, String),
        saying: Saying,
        at: Micros,
    ) {
        let queue: Bytes = queue.into();
        let by = self.declares.conns.get(&conn).copied();
        let declares = self.declares.queues.get_mut(&queue);
        let number = match (&saying, declares, by) {
            (Saying::Target(said), Some(declares), Some(by)) => {
                declares.push(Declare {
                    said: said.clone(),
                    sent: at,
                    answered: None,
                    by,
                    recorded: None,
                    appeared: None,
                    agrees: false,
                });
                Some(declares.len() - 1)
            }
            _ => None,
        };
        let open = self.declares.open.entry((conn, channel)).or_default();
        open.push_back((queue, number, saying));
    }

    /// What was open on that channel is not answered any more.
    pub(super) fn declares_no_more(&mut self, conn: Conn, channel: u16) {
        self.declares.open.remove(&(conn, channel));
    }

    /// The broker refuses something there. True: a declare that has to be refused was on its way.
    pub(super) fn may_be_refused(&self, conn: Conn, channel: u16) -> bool {
        let open = self.declares.open.get(&(conn, channel));
        let mut open = open.into_iter().flatten();
        open.any(|(.., saying)| *saying == Saying::Wrong)
    }

    /// A client reads the answer to a declare.
    ///
    /// # Errors
    /// It should have been refused, or others do not know it.
    pub(crate) fn answered(
        &mut self,
        conn: Conn,
        channel: u16,
        queue: &Bytes,
        at: Micros,
    ) -> Result<(), String> {
        let Some(open) = self.declares.open.get_mut(&(conn, channel)) else {
            return Ok(());
        };
        let Some(first) = open.iter().position(|(of, ..)| of == queue) else {
            return Ok(());
        };
        let Some((_, number, saying)) = open.drain(..=first).next_back() else {
            return Ok(());
        };
        let name = String::from_utf8_lossy(queue).into_owned();
        if saying == Saying::Wrong {
            return Err(format!(
                "a declare of {name} was answered, which should have been refused"
            ));
        }
        let (Some(number), Some(declares)) = (number, self.declares.queues.get_mut(queue)) else {
            return Ok(());
        };
        let written = self.declares.written.get(queue);
        let written = written.map(Vec::as_slice).unwrap_or_default();
        let unrecorded = self.declares.unrecorded.get_mut(queue);
        let declare = &mut declares[number];
        declare.answered = Some(at);
        let (said, by) = (&declare.said, declare.by);
        let (argued, last) = match written.last() {
            Some(newest) => (newest.entry.argued.clone(), newest.entry.said.clone()),
            None if unrecorded.is_some() => return Ok(()),
            None => {
                let made = self.declares.made.entry(queue.clone());
                let made = made.or_insert_with(|| said.clone());
                (made.clone(), made.clone())
            }
        };
        self.count.redeclares += usize::from(*said != argued);
        if declare.recorded.is_some() {
            return Ok(());
        }
        if let Some(written) = declare.stood_for_by(written) {
            declare.recorded = Some((written.copy, at));
            declare.appeared.get_or_insert(written.at);
            return Ok(());
        }
        if *said == last {
            declare.agrees = true;
            return Ok(());
        }
        self.count.unwritten += 1;
        // What the queue was made with is answered at once, and recorded behind that. Without its link a process does not know what others wrote.
        let is_unseen = |it: &Written| it.by != by && super::may_show(&self.faults, it.at, at);
        let unseen = written.last().is_some_and(is_unseen) || self.declares_left;
        // Its declare may have made the queue, which was away.
        let unseen = unseen || self.alterations.uninformed.contains(&by);
        let unseen = unseen || self.declares.once_made.contains_key(queue);
        if *said == argued || unseen || self.declares.without_record.contains(&by) {
            return Ok(());
        }
        match unrecorded.and_then(|count| Some((count.checked_sub(1)?, count))) {
            Some((rest, count)) => {
                *count = rest;
                Ok(())
            }
            None => Err(format!(
                "{name} was declared with {}, and that is not recorded: the record says {}",
                show(said),
                show(&last)
            )),
        }
    }

    /// A proxy answers a declare, although it could not record it.
    pub(crate) fn not_recorded(&mut self, queue: &[u8]) {
        *self.declares.unrecorded.entry(queue.to_vec()).or_default() += 1;
    }

    /// A proxy begins its work before it has read what was recorded.
    pub(crate) fn does_without_record(&mut self, proxy: usize) {
        let process = self.declares.process(proxy);
        self.declares.without_record.insert(process);
    }

    /// A recorder publishes something.
    ///
    /// # Errors
    /// It has no business there.
    pub(super) fn recorder_publishes(
        &mut self,
        content: &Frame,
        into: &[Bytes],
    ) -> Result<(), String> {
        self.entering = super::Copy::default();
        self.declares.entering = Entry::of(content);
        match into {
            [] => Ok(()),
            [queue] if queue == names().redeclared().as_bytes() => Ok(()),
            _ => Err("a recorder publishes to something else than its stream".into()),
        }
    }

    /// What a recorder publishes stands in the stream.
    pub(super) fn entered(&mut self, conn: Option<Conn>, copy: u64, at: Micros) {
        let process = conn.and_then(|conn| self.declares.conns.get(&conn).copied());
        if let Some(process) = process.filter(|_| self.declares.entering.is_some()) {
            self.count.entries += 1;
            self.declares.recorded(process, copy, at);
        }
    }

    /// A recorder acks what it has read, so that it counts.
    pub(super) fn recorder_reads(&mut self, tag: Tag, copy: u64, at: Micros) {
        let Some(process) = self.declares.conns.get(&tag.0).copied() else {
            return;
        };
        if self.declares.entries.contains_key(&copy) {
            let read = &mut self.declares.read;
            self.count.learned += usize::from(!read.contains_key(&(process, copy)));
            read.entry((process, copy)).or_insert(at);
        }
    }

    /// The intake of a proxy drops a message, as the last declare of its queue named no target.
    ///
    /// # Errors
    /// It named one.
    pub(crate) fn dropped_without_target(
        &mut self,
        proxy: usize,
        queue: &[u8],
        at: Micros,
    ) -> Result<(), String> {
        if !self.declares.are_lenient(queue) {
            return Ok(());
        }
        // The broker may not have missed an earlier process yet.
        let process = self.declares.process(proxy);
        let intake = |tag: &Tag| {
            let of_it = self.whose.get(&tag.0) == Some(&Whose::Intake);
            of_it && self.declares.conns.get(&tag.0) == Some(&process)
        };
        let open = || self.delivered.iter().filter(|(tag, _)| intake(tag));
        // What was away is dropped by what was decided before it left.
        if open().any(|(_, delivery)| delivery.copy.away) {
            return Ok(());
        }
        let Some((tag, first)) = open().min_by_key(|(_, delivery)| delivery.at) else {
            return Ok(());
        };
        let targets = self.rules.targets(
            &self.declares,
            tag.0,
            queue,
            &(first.at..=at),
            (false, true),
        );
        match targets {
            Some(targets) if !targets.contains(&None) => Err(format!(
                "what died in {} was dropped, although it has a target",
                String::from_utf8_lossy(queue)
            )),
            _ => Ok(()),
        }
    }
}

fn show(target: &Option<Target>) -> String {
    let none = || "no target".to_owned();
    target.as_ref().map_or_else(none, Target::to_string)
}
