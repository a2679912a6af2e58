//! What the settings of each proxy say, and since when.
//!
//! A proxy decides at some moment between the one at which it could first hear of a message (the client's word, the delivery to its intake) and the
//! one at which the broker reads what it publishes, or its own word. What held at any moment of that window may have been decided by; what held
//! before or after it may not. So only a change that races with a message on its way leaves a choice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::super::rulings::{Ruling, Rulings, Target};
use super::declares::Declares;
use super::{Accounts, Bytes, Conn, Micros, Tag, Whose};

/// From the moment at which a proxy could decide first until the last one.
pub(super) type Window = RangeInclusive<Micros>;

/// All of them.
#[derive(Default)]
pub(super) struct Rules {
    /// By proxy, in order.
    settings: BTreeMap<usize, Vec<(Micros, Rulings)>>,
    /// By proxy, in order: what it knows of the broker's. Of one that is not among them: nothing.
    brokers: BTreeMap<usize, Vec<(Micros, Rulings)>>,
    /// Whose a connection is, and when it began.
    conns: BTreeMap<Conn, (usize, Micros)>,
    /// What arguments name, by queue. Of others nothing is known.
    argued: BTreeMap<Bytes, Option<Target>>,
}

// === impl Rules ===

impl Rules {
    pub(super) fn argue(&mut self, queue: Bytes, target: Option<Target>) {
        self.argued.insert(queue, target);
    }

    pub(super) fn change(&mut self, proxy: usize, rulings: &Rulings, at: Micros) {
        let all = self.settings.entry(proxy).or_default();
        all.push((at, rulings.clone()));
    }

    /// Nothing: it will read them.
    pub(super) fn knows_of_broker(&mut self, proxy: usize, told: Option<&Rulings>, at: Micros) {
        let told = told.cloned().unwrap_or_default();
        self.brokers.entry(proxy).or_default().push((at, told));
    }

    pub(super) fn belongs(&mut self, conn: Conn, proxy: usize, at: Micros) {
        self.conns.insert(conn, (proxy, at));
    }

    pub(super) fn is_of(&self, conn: Conn, proxy: usize) -> bool {
        self.conns.get(&conn).is_some_and(|(of, _)| *of == proxy)
    }

    /// When a connection began.
    pub(super) fn began(&self, conn: Conn) -> Micros {
        self.conns.get(&conn).map_or(0, |(_, began)| *began)
    }

    /// What its policy says of a queue in that window, by the settings of the proxy of that connection.
    pub(super) fn in_force(&self, conn: Conn, queue: &[u8], window: &Window) -> Vec<Ruling> {
        self.held(&self.settings, conn, queue, window)
    }

    /// What the broker's policy says of it, as far as that proxy knows.
    fn brokers_in_force(&self, conn: Conn, queue: &[u8], window: &Window) -> Vec<Ruling> {
        let known = self.held(&self.brokers, conn, queue, window);
        if known.is_empty() {
            vec![Ruling::default()]
        } else {
            known
        }
    }

    fn held(
        &self,
        all: &BTreeMap<usize, Vec<(Micros, Rulings)>>,
        conn: Conn,
        queue: &[u8],
        window: &Window,
    ) -> Vec<Ruling> {
        let settings = self.conns.get(&conn);
        let settings = settings.and_then(|(proxy, _)| all.get(proxy));
        let settings = settings.map_or(&[][..], Vec::as_slice);
        let ends = settings.iter().skip(1).map(|(since, _)| *since);
        let ends = ends.chain([Micros::MAX]);
        let held = settings.iter().zip(ends);
        let held = held.filter(|((since, _), end)| since <= window.end() && end >= window.start());
        let mut rulings: Vec<Ruling> = held.map(|((_, all), _)| of_queue(all, queue)).collect();
        rulings.dedup();
        rulings
    }

    /// The same at any time, by the settings of any proxy.
    pub(super) fn ever(&self, queue: &[u8]) -> Vec<Ruling> {
        let all = self.settings.values().flatten();
        let mut rulings: Vec<Ruling> = all.map(|(_, all)| of_queue(all, queue)).collect();
        rulings.dedup();
        rulings
    }

    /// Where dead letters of that queue could go. `None` among them: nowhere. `blind`: also for those who do not know its arguments; `signalled`: also
    /// where the broker has used the key of its policy, or there was none when the message died. Nothing at all: nobody knows that queue.
    pub(super) fn targets(
        &self,
        declares: &Declares,
        conn: Conn,
        queue: &[u8],
        window: &Window,
        (blind, signalled): (bool, bool),
    ) -> Option<BTreeSet<Option<Target>>> {
        let once = self.argued.get(queue)?;
        let argued = declares.argued(conn, queue, window);
        let argued = argued.unwrap_or_else(|| vec![once.clone()]);
        let rulings = self.in_force(conn, queue, window);
        let mut brokers = self.brokers_in_force(conn, queue, window);
        if signalled {
            let keyless = brokers.clone().into_iter();
            brokers.extend(keyless.map(|broker| Ruling {
                key: None,
                ..broker
            }));
        }
        let argued = argued.iter().map(Option::as_ref);
        let argued: Vec<_> = argued.chain(blind.then_some(None)).collect();
        let of_ruling = |ruling: &Ruling| {
            let all = argued.iter().flat_map(|argued| {
                let brokers = brokers.iter();
                brokers.map(|broker| ruling.target_beside(*argued, broker))
            });
            all.collect::<Vec<_>>()
        };
        Some(rulings.iter().flat_map(of_ruling).collect())
    }

    /// What they said at first.
    pub(super) fn at_first(&self, queue: &[u8]) -> Ruling {
        let first = self.settings.values().next();
        let first = first.and_then(|settings| settings.first());
        first.map_or_else(Ruling::default, |(_, all)| of_queue(all, queue))
    }

    /// Where dead letters of that queue went at first.
    pub(super) fn first_target(&self, queue: &[u8]) -> Option<Target> {
        let argued = self.argued.get(queue)?.as_ref();
        self.at_first(queue).target(argued)
    }

    /// Its arguments name no target.
    pub(super) fn is_targetless(&self, queue: &[u8]) -> bool {
        self.argued.get(queue).is_some_and(Option::is_none)
    }

    /// Only the proxy knows a target of that queue, all the time since the connection began: its session has seen the declare as one of a queue
    /// with a target.
    pub(super) fn keeps(&self, conn: Conn, queue: &[u8], until: Micros) -> bool {
        let window = self.began(conn)..=until;
        let mut rulings = self.in_force(conn, queue, &window).into_iter();
        let brokers = self.brokers_in_force(conn, queue, &window);
        let told = brokers.iter().any(|broker| broker.exchange.is_some());
        let has_target = |ruling: Ruling| ruling.target(None).is_some();
        !told && self.is_targetless(queue) && rulings.all(has_target)
    }

    /// Only proxies ever know a target of it.
    pub(super) fn may_keep(&self, queue: &[u8]) -> bool {
        let mut ever = self.ever(queue).into_iter();
        self.is_targetless(queue) && ever.any(|ruling| ruling.target(None).is_some())
    }
}

// === impl Accounts ===

impl Accounts {
    /// A process begins, with these settings.
    pub(crate) fn begins(&mut self, proxy: usize, rulings: &Rulings, at: Micros) {
        self.rules.change(proxy, rulings, at);
        self.declares.begins(proxy, at);
    }

    /// SIGHUP: the policies of a proxy are others. What its clients have said and it has not dealt with is dealt with by these.
    pub(crate) fn reloaded(&mut self, proxy: usize, rulings: &Rulings, at: Micros) {
        self.count.reloads += 1;
        let open = self.delivered.keys().copied();
        let open: Vec<Tag> = open.filter(|tag| self.rules.is_of(tag.0, proxy)).collect();
        let before: Vec<_> = open.iter().map(|tag| self.open_returns(*tag, at)).collect();
        self.rules.change(proxy, rulings, at);
        for (tag, before) in open.into_iter().zip(before) {
            self.hear_of_new(tag, &before, at);
        }
    }

    /// A proxy is told of the broker's policies, or has still to read them.
    pub(crate) fn knows_of_broker(&mut self, proxy: usize, told: Option<&Rulings>, at: Micros) {
        self.rules.knows_of_broker(proxy, told, at);
    }

    /// Whether it is one of the proxy's clients, whose rejects the broker must not see all this time.
    pub(super) fn is_kept(&self, tag: Tag, queue: &Bytes, at: Micros) -> bool {
        let client = matches!(self.whose.get(&tag.0), Some(Whose::Client(_)));
        // Of a queue whose declares differ it is not known what the broker knows; nor of one that was altered while this proxy took no part.
        let is_unsure = self.declares.are_lenient(queue) || self.is_uninformed(tag.0);
        client && !is_unsure && self.rules.keeps(tag.0, queue, at)
    }
}

fn of_queue(all: &Rulings, queue: &[u8]) -> Ruling {
    let name = String::from_utf8_lossy(queue);
    all.get(&*name).cloned().unwrap_or_default()
}
