//! The private history: a copy of the headers that RabbitMQ forgets when a message dies that a client published (S4.5), and how it is
//! put together with what the broker has written since.
//!
//! `x-dlx-proxy-history` is a table with raw copies of `x-death` and `x-first-death-*` *as they were published*. That is enough to tell
//! what happened since, in each generation, and so to count each death once, however many native ones lie between:
//! - x-death equals its copy: nothing. All is in it.
//! - x-death extends its copy, and the first death is the same: the broker took it over and went on counting (3.13 does, and writes it anew
//!   even when nothing died; also a message that 3.13 took over before it was upgraded to 4.x). All is in it, but for the members that 3.13
//!   dropped.
//! - else the broker began anew (4.x; 3.13 without its feature flag `message_containers_deaths_v2`): two lists of different deaths, to be
//!   merged.
//!
//! A history that is to be forgotten need only be recognised later. For that its newest entry and the number of its entries are enough, and they
//! fit beside the new history.
//!
//! What cannot be told apart: a list begun anew that repeats the old one to the second, queue by queue, from the same first death. For a
//! signal, which has one death more for certain, that one is counted all the same; else a native death in the second of the first one is
//! counted once less.
//!
//! 3.x forgets nothing, so nothing is written or read there.
//!
//! The table is read in a second form, too, and written so where [`HistoryForm`] says it: see [`compact`].

use crate::amqp::cursor::Malformed;
use crate::amqp::table::{Array, ArrayBuilder, Table, TableBuilder, Value};

use super::compact;
use super::headers::{HeaderEdit, X_DEATH, X_FIRST_DEATH};
use super::history::{self, Entry, NewDeath};
use super::private::HISTORY;
use super::{Death, Dialect, HistoryForm, Rules};

/// In a private history: the published x-death does not count (`history = "broker"` on 4.x). The
/// number of entries; x-death has only the newest one.
const FORGET: &[u8] = b"forget";

/// What is known of a message before its current death (for a signal: including it).
#[derive(Debug)]
pub(super) struct Past<'a> {
    pub(super) whole: Whole<'a>,
    /// The current death is the first one for x-first-death-* (S5.1).
    pub(super) is_first: bool,
}

#[derive(Debug)]
pub(super) struct Whole<'a> {
    /// Newest first.
    pub(super) entries: Vec<Entry<'a>>,
    /// Entries added by the broker since the last publish by a client or the proxy, as far as
    /// known. `None`: all are.
    since: Option<Vec<Entry<'a>>>,
    /// `since` is everything the broker knows.
    pub(super) anew: bool,
    /// Headers of the first death, if older than x-first-death-*.
    pub(super) first: Vec<(&'static [u8], Value<'a>)>,
}

struct Remembered<'a> {
    deaths: Deaths<'a>,
    first: Vec<(&'static [u8], Value<'a>)>,
    /// Equal to the current x-first-death-*.
    same_first: bool,
}

enum Deaths<'a> {
    Copied(Option<Value<'a>>),
    Compact(Vec<Entry<'a>>),
    /// To be forgotten: an array with the newest entry, and the number of all.
    Forgotten(Option<Value<'a>>, i64),
}

pub(super) fn remember(
    headers: Vec<u8>,
    forget: bool,
    form: HistoryForm,
) -> Result<Vec<u8>, Malformed> {
    let text = text(Table(&headers), forget, form);
    let copy = match text {
        Some(_) => None,
        None => copy(Table(&headers), forget, form)?,
    };
    let mut out = TableBuilder::onto(headers);
    match (text, copy) {
        (Some(text), _) => drop(out.longstr(HISTORY, &text)),
        (None, Some(copy)) => drop(out.members(copy.as_table().0)),
        (None, None) => {}
    }
    Ok(out.finish())
}

fn text(headers: Table<'_>, forget: bool, form: HistoryForm) -> Option<Vec<u8>> {
    match form {
        HistoryForm::Compact if !forget => compact::write(headers),
        HistoryForm::Table | HistoryForm::Compact => None,
    }
}

/// A private history as a member of the headers.
pub(super) fn copy(
    headers: Table<'_>,
    forget: bool,
    form: HistoryForm,
) -> Result<Option<TableBuilder>, Malformed> {
    let (mut member, mut copy) = (TableBuilder::default(), TableBuilder::default());
    if forget {
        let Some(entries) = headers.get(X_DEATH)?.and_then(Value::as_array) else {
            return Ok(None);
        };
        let Some(newest) = entries.values().next().transpose()? else {
            return Ok(None);
        };
        let mut alone = ArrayBuilder::default();
        alone.value(&newest);
        copy.array(X_DEATH, &alone);
        copy.long(FORGET, number_of(entries));
        member.table(HISTORY, &copy);
        return Ok(Some(member));
    }
    if let Some(text) = text(headers, forget, form) {
        member.longstr(HISTORY, &text);
        return Ok(Some(member));
    }
    let mut seen = [false; 4];
    for field in headers.fields() {
        let field = field?;
        let names = std::iter::once(X_DEATH).chain(X_FIRST_DEATH);
        for (name, seen) in names.zip(&mut seen) {
            if field.name == name && !std::mem::replace(seen, true) {
                copy.raw(&field);
            }
        }
    }
    member.table(HISTORY, &copy);
    Ok(seen[0].then_some(member))
}

fn first_death<'a>(table: Table<'a>) -> Result<[Option<Value<'a>>; 3], Malformed> {
    table.find(X_FIRST_DEATH)
}

fn number_of(entries: Array<'_>) -> i64 {
    i64::try_from(entries.values().count()).unwrap_or(i64::MAX)
}

/// Whether x-death was published by a client and does not count (`history = "broker"`).
pub(super) fn is_forgotten(headers: Table<'_>) -> Result<bool, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let remembered = Remembered::read(headers)?;
    Ok(remembered.is_some_and(|published| published.is_forgotten() && published.is_still(x_death)))
}

pub(super) fn has_changed(headers: Table<'_>) -> Result<bool, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let remembered = Remembered::read(headers)?;
    Ok(remembered.is_some_and(|published| !published.is_still(x_death)))
}

/// The client's view of a message with a private history. `None`: x-death is complete.
pub(super) fn restored(headers: Table<'_>) -> Result<Option<Whole<'_>>, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let Some(published) = Remembered::read(headers)? else {
        return Ok(None);
    };
    if published.is_forgotten() || published.is_still(x_death) {
        return Ok(None);
    }
    Ok(Some(published.and(history::read(x_death), false)))
}

/// Writes the client's view, if x-death is not complete.
pub(super) fn restore<'a>(edit: &mut HeaderEdit<'a>, headers: Table<'a>) -> Result<(), Malformed> {
    if let Some(whole) = restored(headers)? {
        edit.array(X_DEATH, &history::write(&whole.entries));
        for (name, value) in &whole.first {
            edit.value(name, value);
        }
    }
    Ok(())
}

// === impl Past ===

impl<'a> Past<'a> {
    /// With this death, unless the broker has recorded it.
    pub(super) fn and(mut self, death: &Death<'_>, rules: &Rules, event: NewDeath<'a>) -> Past<'a> {
        if !death.recorded {
            self.whole.record(rules.dialect, event);
        }
        self
    }

    /// Reads x-death and the private history. `recorded`: the broker has just changed x-death.
    pub(super) fn read(
        headers: Table<'a>,
        rules: &Rules,
        recorded: bool,
    ) -> Result<Past<'a>, Malformed> {
        let x_death = headers.get(X_DEATH)?;
        let remembered = match rules.dialect {
            Dialect::V3 => None,
            Dialect::V3_13 | Dialect::V4 => Remembered::read(headers)?,
        };
        let read = history::read(x_death);
        let whole = match remembered {
            None => Whole {
                entries: as_the_broker_reads(read, rules, recorded),
                since: None,
                anew: false,
                first: Vec::new(),
            },
            Some(published) if !recorded && published.is_still(x_death) => Whole {
                entries: match published.is_forgotten() {
                    true => Vec::new(),
                    false => history::group(read),
                },
                since: Some(Vec::new()),
                anew: false,
                first: Vec::new(),
            },
            Some(published) => published.and(read, recorded),
        };
        // What is remembered of a first death is older.
        let is_first = !recorded
            && whole.first.is_empty()
            && match rules.dialect {
                // `update_x_death_header`: a header of another type is thrown away, but was there.
                Dialect::V3 => x_death.is_none(),
                // `record_death`: deaths were taken over from any array, even if none of its members was.
                Dialect::V3_13 => x_death.and_then(Value::as_array).is_none(),
                Dialect::V4 => whole.entries.is_empty(),
            };
        Ok(Past { whole, is_first })
    }
}

/// Normalizes an x-death like the broker at the next death: grouped and filtered. A signal has this
/// done.
fn as_the_broker_reads<'a>(
    entries: Vec<Entry<'a>>,
    rules: &Rules,
    recorded: bool,
) -> Vec<Entry<'a>> {
    match rules.dialect {
        _ if recorded => entries,
        Dialect::V3 => history::group_as_3_x(entries),
        Dialect::V3_13 if !rules.continue_history => {
            entries.into_iter().filter(Entry::is_whole).collect()
        }
        Dialect::V3_13 | Dialect::V4 => history::group(entries),
    }
}

// === impl Whole ===

impl<'a> Whole<'a> {
    fn record(&mut self, dialect: Dialect, death: NewDeath<'a>) {
        let record = |entries: &mut Vec<Entry<'a>>| {
            *entries = history::record(dialect, std::mem::take(entries), death);
        };
        record(&mut self.entries);
        self.since.as_mut().map(record);
    }

    pub(super) fn since(&self) -> &[Entry<'a>] {
        self.since.as_ref().unwrap_or(&self.entries)
    }

    pub(super) fn of_the_broker(&self) -> &[Entry<'a>] {
        if self.anew {
            self.since()
        } else {
            &self.entries
        }
    }
}

// === impl Remembered ===

impl<'a> Remembered<'a> {
    fn read(headers: Table<'a>) -> Result<Option<Remembered<'a>>, Malformed> {
        let history = headers.get(HISTORY)?;
        let text = history.and_then(Value::as_longstr);
        let (deaths, first) = if let Some(compact) = text.and_then(compact::read) {
            let first = compact.first.map(|text| Some(Value::longstr(text)));
            (Deaths::Compact(compact.entries), first)
        } else if let Some(copy) = history.and_then(Value::as_table) {
            copy.check()?;
            let x_death = copy.get(X_DEATH)?;
            let deaths = match copy.get(FORGET)?.and_then(Value::as_integer) {
                Some(number) => Deaths::Forgotten(x_death, number),
                None => Deaths::Copied(x_death),
            };
            (deaths, first_death(copy)?)
        } else {
            return Ok(None);
        };
        let same_first = first == first_death(headers)?;
        let first = X_FIRST_DEATH.into_iter().zip(first);
        Ok(Some(Remembered {
            deaths,
            first: first.filter_map(|(name, it)| Some((name, it?))).collect(),
            same_first,
        }))
    }

    fn is_forgotten(&self) -> bool {
        matches!(self.deaths, Deaths::Forgotten(..))
    }

    fn is_still(&self, x_death: Option<Value<'_>>) -> bool {
        let (published, number) = match &self.deaths {
            Deaths::Copied(published) => return *published == x_death,
            Deaths::Compact(entries) => {
                return x_death.and_then(Value::as_array)
                    == Some(history::write(entries).as_array());
            }
            Deaths::Forgotten(published, number) => (published, *number),
        };
        let newest = |value: Value<'a>| value.as_array()?.values().next()?.ok();
        x_death.and_then(Value::as_array).is_some_and(|entries| {
            number_of(entries) == number
                && entries.values().next().and_then(Result::ok) == published.and_then(newest)
        })
    }

    /// Combines published and newer entries; `died`: the newer ones surely include one more death.
    fn and(self, newer: Vec<Entry<'a>>, died: bool) -> Whole<'a> {
        let newer = history::group(newer);
        let older = match self.deaths {
            Deaths::Forgotten(..) => Vec::new(),
            Deaths::Copied(x_death) => history::group(history::read(x_death)),
            Deaths::Compact(entries) => history::group(entries),
        };
        if older.is_empty() {
            return Whole {
                entries: newer,
                since: None,
                anew: true,
                first: Vec::new(),
            };
        }
        if self.same_first && history::extends(&newer, &older, died) {
            Whole {
                since: Some(history::added(&newer, &older)),
                entries: history::complete(newer, older),
                anew: false,
                first: self.first,
            }
        } else {
            Whole {
                entries: history::merge(newer.clone(), older),
                since: Some(newer),
                anew: true,
                first: self.first,
            }
        }
    }
}
