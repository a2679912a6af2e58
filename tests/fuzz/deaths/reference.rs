//! The rules of deaths once more, slow and obvious: plain vectors, every search a loop, one rule a line (S4, S5 and the private history).

use dlx_proxy::dead_letter::{Dialect, Rules, private};

use super::super::reference::with_shown_cc;
use super::FIRST;
use super::tables::{Member, array, get, raw, table};

type Members = Vec<Member<'static>>;

/// One member of x-death: its fields.
#[derive(Clone, Debug, PartialEq)]
struct Entry(Members);

/// A death, and what counts for it.
pub(crate) struct Happened<'a> {
    pub(crate) rules: Rules,
    /// The broker has written it already.
    pub(crate) recorded: bool,
    pub(crate) reason: &'a [u8],
    pub(crate) queue: &'a [u8],
    pub(crate) exchange: &'a [u8],
    pub(crate) key: &'a [u8],
    /// The target sets a key.
    pub(crate) keyed: bool,
    pub(crate) expiration: Option<&'a [u8]>,
    pub(crate) now: u64,
}

/// What is known of the deaths of before.
#[derive(Default)]
struct Past {
    entries: Vec<Entry>,
    since: Vec<Entry>,
    /// Headers of the first death that were remembered.
    first: Members,
}

fn owned(members: &[Member<'_>]) -> Members {
    let copies = members
        .iter()
        .map(|member| Member::new(&member.name, member.tag, &member.data));
    copies.collect()
}

fn same_value(a: Option<&Member<'_>>, b: Option<&Member<'_>>) -> bool {
    a.map(|a| (a.tag, &a.data)) == b.map(|b| (b.tag, &b.data))
}

/// The members of an array and one more, `None`, if something behind them is not sound.
fn members(value: Option<&Member<'_>>) -> Option<Vec<Option<Member<'static>>>> {
    let value = value.filter(|value| value.tag == b'A')?;
    let (members, sound) = array(&value.data);
    let mut all: Vec<_> = members
        .iter()
        .map(|member| Some(Member::nameless(member.tag, &member.data)))
        .collect();
    all.extend((!sound).then_some(None));
    Some(all)
}

/// S4.4: what is no array is an empty list; a member that is no sound table is dropped.
fn read(x_death: Option<&Member<'_>>) -> Vec<Entry> {
    let mut entries = Vec::new();
    for member in members(x_death).unwrap_or_default().into_iter().flatten() {
        let (fields, sound) = table(&member.data);
        if member.tag == b'F' && sound {
            entries.push(Entry(owned(&fields)));
        }
    }
    entries
}

fn position(entries: &[Entry], of: &Entry) -> Option<usize> {
    entries.iter().position(|entry| entry.key() == of.key())
}

fn clamped(number: i128) -> i64 {
    number.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn total(entries: &[Entry]) -> i64 {
    entries.iter().fold(0, |sum, entry| {
        clamped(i128::from(sum) + i128::from(entry.deaths()))
    })
}

/// S4.4: one entry per {queue, reason}, the first; without a count it counts its fellows.
fn group(entries: &[Entry]) -> Vec<Entry> {
    let mut grouped: Vec<Entry> = Vec::new();
    for entry in entries {
        if position(&grouped, entry).is_some() {
            continue;
        }
        let fellows = entries
            .iter()
            .filter(|other| other.key() == entry.key())
            .count();
        let mut entry = entry.clone();
        if get(&entry.0, b"count").is_none() {
            entry.set_count(fellows as i64);
        }
        grouped.push(entry);
    }
    grouped
}

/// Whether all whole entries of `older` are in `newer`, as old and counted at least as high, and with one more death if one happened.
fn goes_on(newer: &[Entry], older: &[Entry], died: bool) -> bool {
    let whole: Vec<&Entry> = older.iter().filter(|entry| entry.is_whole()).collect();
    let found = whole.iter().all(|entry| {
        let now = position(newer, entry).map(|at| &newer[at]);
        now.is_some_and(|now| {
            now.deaths() >= entry.deaths()
                && same_value(get(&now.0, b"time"), get(&entry.0, b"time"))
                && same_value(get(&now.0, b"exchange"), get(&entry.0, b"exchange"))
        })
    });
    let whole: Vec<Entry> = whole.into_iter().cloned().collect();
    found && !whole.is_empty() && (!died || total(newer) > total(&whole))
}

/// Those of `newer`, then the rest of `older`. Of an entry in both: as it is in `older`, counts added.
fn merged(newer: &[Entry], older: &[Entry]) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut rest = older.to_vec();
    for entry in newer {
        match position(&rest, entry) {
            None => all.push(entry.clone()),
            Some(at) => {
                let mut known = rest.remove(at);
                known.set_count(clamped(
                    i128::from(known.deaths()) + i128::from(entry.deaths()),
                ));
                all.push(known);
            }
        }
    }
    all.extend(rest);
    all
}

/// What is known of a message with a private history; `still`: x-death is as it was published.
fn remembered(headers: &[Member<'_>], died: bool) -> Option<(Past, bool, bool)> {
    let x_death = get(headers, b"x-death");
    let history = get(headers, private::HISTORY).filter(|history| history.tag == b'F')?;
    let (copy, _) = table(&history.data);
    let forget = get(&copy, b"forget").and_then(Member::integer);
    let published = get(&copy, b"x-death");
    let still = match forget {
        None => same_value(x_death, published),
        Some(number) => members(x_death).is_some_and(|deaths| {
            let newest = |all: Option<Vec<Option<Member<'static>>>>| all?.into_iter().next()?;
            number == deaths.len() as i128 && newest(Some(deaths)) == newest(members(published))
        }),
    };
    let newer = group(&read(x_death));
    let older = group(&read(published.filter(|_| forget.is_none())));
    let mut first = Members::new();
    for member in owned(&copy) {
        if FIRST.contains(&&*member.name) && get(&first, &member.name).is_none() {
            first.push(member);
        }
    }
    let same_first = FIRST
        .iter()
        .all(|name| same_value(get(&copy, name), get(headers, name)));
    let past = if older.is_empty() {
        Past {
            entries: newer.clone(),
            since: newer,
            first: Members::new(),
        }
    } else if same_first && goes_on(&newer, &older, died) {
        let is_new = |entry: &&Entry| {
            position(&older, entry).is_none_or(|at| older[at].deaths() < entry.deaths())
        };
        let missing = older
            .iter()
            .filter(|entry| position(&newer, entry).is_none());
        Past {
            entries: newer.iter().chain(missing).cloned().collect(),
            since: newer.iter().filter(is_new).cloned().collect(),
            first,
        }
    } else {
        Past {
            entries: merged(&newer, &older),
            since: newer,
            first,
        }
    };
    Some((past, still, forget.is_some()))
}

fn past(headers: &[Member<'_>], happened: &Happened<'_>) -> Past {
    let entries = read(get(headers, b"x-death"));
    let own =
        remembered(headers, happened.recorded).filter(|_| happened.rules.dialect != Dialect::V3);
    match own {
        // Nothing died since: what is there is all, or it shall be forgotten.
        Some((_, true, forgotten)) if !happened.recorded => Past {
            entries: if forgotten {
                Vec::new()
            } else {
                group(&entries)
            },
            ..Past::default()
        },
        Some((past, ..)) => past,
        None => {
            let entries = match happened.rules.dialect {
                _ if happened.recorded => entries,
                // S4.2: two or more are turned around; one is left as it is.
                Dialect::V3 if entries.len() < 2 => entries,
                Dialect::V3 => group(&entries).into_iter().rev().collect(),
                // S5.3
                Dialect::V3_13 if !happened.rules.continue_history => {
                    entries.into_iter().filter(Entry::is_whole).collect()
                }
                _ => group(&entries),
            };
            Past {
                since: entries.clone(),
                entries,
                first: Members::new(),
            }
        }
    }
}

/// S3.2
fn original_expiration(dialect: Dialect, text: &[u8]) -> Vec<u8> {
    let digits = text
        .strip_prefix(b"+")
        .or(text.strip_prefix(b"-"))
        .unwrap_or(text);
    if dialect == Dialect::V3 || digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return text.to_vec();
    }
    let number: u64 = String::from_utf8_lossy(digits).parse().expect("digits");
    number.to_string().into_bytes()
}

/// S4.1, S4.2
fn record(entries: &mut Vec<Entry>, keys: &[Vec<u8>], happened: &Happened<'_>) {
    let dialect = happened.rules.dialect;
    let keys: Members = keys.iter().map(|key| Member::nameless(b'S', key)).collect();
    let mut new = vec![
        Member::long(b"count", 1),
        Member::longstr(b"reason", happened.reason),
        Member::longstr(b"queue", happened.queue),
        Member::new(b"time", b'T', &happened.now.to_be_bytes()),
        Member::longstr(b"exchange", happened.exchange),
        Member::new(b"routing-keys", b'A', &raw(&keys)),
    ];
    if let Some(text) = happened.expiration {
        let expiration =
            Member::longstr(b"original-expiration", &original_expiration(dialect, text));
        let at = if dialect == Dialect::V3 { new.len() } else { 0 };
        new.insert(at, expiration);
    }
    let mut new = Entry(new);
    let sorted = dialect == Dialect::V3 && !entries.is_empty();
    if let Some(at) = position(entries, &new) {
        new = entries.remove(at);
        let before = get(&new.0, b"count").and_then(Member::integer).unwrap_or(0);
        new.set_count(clamped(before + 1));
    }
    if sorted {
        new.0.sort_by_key(|field| field.name.to_vec());
    }
    entries.insert(0, new);
}

/// The oldest beyond `max-history` go: the last ones, but on 3.x, where each death turns the older ones around, those in the middle.
fn cut(entries: &mut Vec<Entry>, rules: &Rules) {
    let most = rules.max_history.max(1);
    let behind = if rules.dialect == Dialect::V3 {
        most / 2
    } else {
        0
    };
    while entries.len() > most {
        entries.remove(entries.len() - 1 - behind);
    }
}

fn x_death(entries: &[Entry]) -> Member<'static> {
    let entries: Members = entries
        .iter()
        .map(|entry| Member::nameless(b'F', &raw(&entry.0)))
        .collect();
    Member::new(b"x-death", b'A', &raw(&entries))
}

/// Each in the place of the first of its name, or at the end.
fn set(headers: &mut Members, member: Member<'static>) {
    match headers.iter().position(|header| header.name == member.name) {
        Some(at) => headers[at] = member,
        None => headers.push(member),
    }
}

/// What must be sound for the proxy to look into it.
fn is_sound(headers: &[Member<'_>]) -> bool {
    let history = get(headers, private::HISTORY).filter(|history| history.tag == b'F');
    history.is_none_or(|history| table(&history.data).1)
}

/// What a client is shown. None: nothing can be told.
pub(crate) fn shown(headers: &[Member<'_>]) -> Option<Members> {
    if !is_sound(headers) {
        return None;
    }
    let mut shown = owned(headers);
    if let Some((past, false, false)) = remembered(headers, false) {
        set(&mut shown, x_death(&past.entries));
        past.first
            .into_iter()
            .for_each(|member| set(&mut shown, member));
    }
    shown.retain(|member| !member.name.starts_with(private::PREFIX));
    Some(with_shown_cc(shown, headers))
}

/// The headers of the dead letter, but for the lap. None: they are the broker's to deal with.
pub(crate) fn after(headers: &[Member<'_>], happened: &Happened<'_>) -> Option<Members> {
    let dialect = happened.rules.dialect;
    if dialect != Dialect::V3 && !is_sound(headers) {
        return None;
    }
    let mut past = past(headers, happened);
    let before = get(headers, b"x-death");
    // S5.1; what is remembered of a first death is older.
    let is_first = !happened.recorded
        && past.first.is_empty()
        && match dialect {
            Dialect::V3 => before.is_none(),
            Dialect::V3_13 => before.is_none_or(|before| before.tag != b'A'),
            Dialect::V4 => past.entries.is_empty(),
        };
    // S2.5: whether the keys of CC still count.
    let cc = members(get(headers, b"CC"))
        .unwrap_or_default()
        .into_iter()
        .flatten();
    let told: Vec<Vec<u8>> = cc
        .filter(|key| key.tag == b'S')
        .map(|key| key.data.to_vec())
        .collect();
    let same_key = past
        .since
        .iter()
        .all(|entry| entry.keys().first().is_some_and(|key| key == happened.key));
    let same_cc = past
        .since
        .first()
        .is_none_or(|newest| newest.keys().get(1..).unwrap_or_default() == told);
    let counts = dialect == Dialect::V3 || (same_key && same_cc);
    let cc = if counts { told.clone() } else { Vec::new() };
    if !happened.recorded {
        let keys = [&[happened.key.to_vec()], &cc[..]].concat();
        record(&mut past.entries, &keys, happened);
    }
    cut(&mut past.entries, &happened.rules);

    let mut after = owned(headers);
    let words = [happened.reason, happened.queue, happened.exchange];
    set(&mut after, x_death(&past.entries));
    for (name, word) in FIRST.iter().zip(words).filter(|_| is_first) {
        set(&mut after, Member::longstr(name, word));
    }
    past.first
        .into_iter()
        .for_each(|member| set(&mut after, member));
    let last: [&[u8]; 3] = [
        b"x-last-death-reason",
        b"x-last-death-queue",
        b"x-last-death-exchange",
    ];
    for (name, word) in last
        .iter()
        .zip(words)
        .filter(|_| dialect != Dialect::V3 && !happened.recorded)
    {
        set(&mut after, Member::longstr(name, word));
    }
    // S3.3, and keys that do not count may not be there.
    let gone = happened.keyed || (cc.is_empty() && !told.is_empty());
    if let Some(shown) = get(headers, b"CC").filter(|_| gone && dialect != Dialect::V3) {
        set(&mut after, Member::new(private::CC, shown.tag, &shown.data));
    }
    let of_the_queue: [&[u8]; 2] = [b"x-delivery-count", b"x-acquired-count"];
    after.retain(|member| {
        let name = &*member.name;
        !(gone && name == b"CC")
            && name != b"BCC"
            && !of_the_queue.contains(&name)
            && name != private::HISTORY
            && name != private::BCC
            && name != private::LAP
    });
    if dialect != Dialect::V3 {
        let mut copy = Members::new();
        for member in &after {
            let known = *member.name == *b"x-death" || FIRST.contains(&&*member.name);
            if known && get(&copy, &member.name).is_none() {
                copy.push(member.clone());
            }
        }
        after.push(Member::new(private::HISTORY, b'F', &raw(&copy)));
    }
    Some(after)
}

// === impl Entry ===

impl Entry {
    /// Queue and reason by their values: texts and numbers of whatever type are the same (`x_death_event_key`).
    fn key(&self) -> [Option<(u8, Vec<u8>)>; 2] {
        [b"queue".as_slice(), b"reason"].map(|name| {
            let value = get(&self.0, name)?;
            Some(match (value.tag, value.integer()) {
                (b'S' | b'x', _) => (b'S', value.data.to_vec()),
                (_, Some(number)) => (b'l', number.to_be_bytes().to_vec()),
                (tag, None) => (tag, value.data.to_vec()),
            })
        })
    }

    fn deaths(&self) -> i64 {
        get(&self.0, b"count")
            .and_then(Member::integer)
            .map_or(1, clamped)
    }

    /// In the place of the first one, else in front.
    fn set_count(&mut self, count: i64) {
        let count = Member::long(b"count", count);
        match self.0.iter().position(|field| *field.name == *b"count") {
            Some(at) => self.0[at] = count,
            None => self.0.insert(0, count),
        }
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let routing_keys = self
            .0
            .iter()
            .filter(|field| *field.name == *b"routing-keys");
        let first = routing_keys.clone().find(|field| field.tag == b'A');
        let keys = members(first).unwrap_or_default().into_iter().flatten();
        keys.filter(|key| key.tag == b'S')
            .map(|key| key.data.to_vec())
            .collect()
    }

    /// S5.3
    fn is_whole(&self) -> bool {
        let has = |name: &[u8], tags: &[u8]| {
            get(&self.0, name).is_some_and(|field| tags.contains(&field.tag))
        };
        has(b"queue", b"S")
            && has(b"reason", b"S")
            && get(&self.0, b"count").and_then(Member::integer).is_some()
            && get(&self.0, b"exchange").is_some()
            && has(b"time", b"TbBsuIilL")
            && self
                .0
                .iter()
                .any(|field| *field.name == *b"routing-keys" && field.tag == b'A')
    }
}
