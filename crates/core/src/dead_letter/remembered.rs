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

use crate::amqp::cursor::Malformed;
use crate::amqp::table::{Array, ArrayBuilder, Field, Table, TableBuilder, Value};

use super::headers::{X_DEATH, X_FIRST_DEATH};
use super::history::{self, Entry, NewDeath};
use super::private::HISTORY;
use super::{Dialect, Rules};

/// In a private history: what was published does not count (`history = "broker"` on 4.x). The number of entries; x-death is the newest alone.
const FORGET: &[u8] = b"forget";

/// What is known of a message's life before the death that is being handled (of a signal: with it).
#[derive(Debug)]
pub(super) struct Past<'a> {
    pub(super) whole: Whole<'a>,
    /// The death that is being recorded is the first one, as far as x-first-death-* goes (S5.1).
    pub(super) is_first: bool,
}

/// All that is known of a message's deaths.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    /// Newest first.
    pub(super) entries: Vec<Entry<'a>>,
    /// Those that the broker added since a client or the proxy last published the message, as far as that can be told.
    pub(super) since: Vec<Entry<'a>>,
    /// `since` is all that the broker itself knows.
    pub(super) anew: bool,
    /// The headers of the first death, when that is older than what x-first-death-* show now.
    pub(super) first: Vec<Field<'a>>,
}

/// A private history as it is in a message.
struct Remembered<'a> {
    x_death: Option<Value<'a>>,
    first: Vec<Field<'a>>,
    /// What x-first-death-* show now is the same.
    same_first: bool,
    /// How many entries there were of which `x_death` has but the newest.
    forget: Option<i64>,
}

/// Puts the copy beside these headers, which will be published, if there is something to remember.
pub(super) fn remember(headers: Vec<u8>, forget: bool) -> Result<Vec<u8>, Malformed> {
    let Some(copy) = copy(Table(&headers), forget)? else {
        return Ok(headers);
    };
    let mut out = TableBuilder::onto(headers);
    out.table(HISTORY, &copy);
    Ok(out.finish())
}

/// The copy to put beside these headers when they are published; none when there is nothing to remember.
pub(super) fn copy(headers: Table<'_>, forget: bool) -> Result<Option<TableBuilder>, Malformed> {
    let mut copy = TableBuilder::with_capacity(headers.0.len());
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
        return Ok(Some(copy));
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
    Ok(seen[0].then_some(copy))
}

fn number_of(entries: Array<'_>) -> i64 {
    i64::try_from(entries.values().count()).unwrap_or(i64::MAX)
}

/// Whether what x-death shows was published by a client, and does not count (`history = "broker"`).
pub(super) fn is_forgotten(headers: Table<'_>) -> Result<bool, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let remembered = Remembered::read(headers)?;
    Ok(remembered
        .is_some_and(|published| published.forget.is_some() && published.is_still(x_death)))
}

/// Whether the broker has written another x-death since the copy was made.
pub(super) fn has_changed(headers: Table<'_>) -> Result<bool, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let remembered = Remembered::read(headers)?;
    Ok(remembered.is_some_and(|published| !published.is_still(x_death)))
}

/// What a client sees of a message with a private history: `None` when x-death tells it all.
pub(super) fn restored(headers: Table<'_>) -> Result<Option<Whole<'_>>, Malformed> {
    let x_death = headers.get(X_DEATH)?;
    let Some(published) = Remembered::read(headers)? else {
        return Ok(None);
    };
    if published.forget.is_some() || published.is_still(x_death) {
        return Ok(None);
    }
    Ok(Some(published.and(history::read(x_death), false)))
}

// === impl Past ===

impl<'a> Past<'a> {
    /// Reads x-death and the private history. `recorded`: the broker has just written x-death, so it cannot be what was published.
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
            None => {
                let entries = as_the_broker_reads(read, rules, recorded);
                Whole {
                    since: entries.clone(),
                    entries,
                    anew: false,
                    first: Vec::new(),
                }
            }
            Some(published) if !recorded && published.is_still(x_death) => Whole {
                entries: match published.forget {
                    Some(_) => Vec::new(),
                    None => history::group(read),
                },
                since: Vec::new(),
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

/// What the broker, or what came before it, makes of an x-death at the next death: groups it, filters it, or (a signal) has done so.
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
    pub(super) fn record(&mut self, dialect: Dialect, death: NewDeath<'a>) {
        for list in [&mut self.entries, &mut self.since] {
            *list = history::record(dialect, std::mem::take(list), death);
        }
    }

    /// The entries by which the broker tells a cycle.
    pub(super) fn of_the_broker(&self) -> &[Entry<'a>] {
        if self.anew {
            &self.since
        } else {
            &self.entries
        }
    }
}

// === impl Remembered ===

impl<'a> Remembered<'a> {
    fn read(headers: Table<'a>) -> Result<Option<Remembered<'a>>, Malformed> {
        let Some(copy) = headers.get(HISTORY)?.and_then(|value| value.as_table()) else {
            return Ok(None);
        };
        let mut remembered = Remembered {
            x_death: copy.get(X_DEATH)?,
            first: Vec::new(),
            same_first: true,
            forget: copy.get(FORGET)?.and_then(Value::as_integer),
        };
        for field in copy.fields() {
            let field = field?;
            let known = remembered.first.iter().any(|f| f.name == field.name);
            if X_FIRST_DEATH.contains(&field.name) && !known {
                remembered.first.push(field);
            }
        }
        for name in X_FIRST_DEATH {
            remembered.same_first &= copy.get(name)? == headers.get(name)?;
        }
        Ok(Some(remembered))
    }

    /// Whether x-death is as it was published.
    fn is_still(&self, x_death: Option<Value<'_>>) -> bool {
        let Some(number) = self.forget else {
            return self.x_death == x_death;
        };
        let newest = |value: Value<'a>| value.as_array()?.values().next()?.ok();
        x_death.and_then(Value::as_array).is_some_and(|entries| {
            number_of(entries) == number
                && entries.values().next().and_then(Result::ok) == self.x_death.and_then(newest)
        })
    }

    /// What was published, and what the broker has written since; `died` if that has one death more for certain.
    fn and(self, newer: Vec<Entry<'a>>, died: bool) -> Whole<'a> {
        let newer = history::group(newer);
        let older = match self.forget {
            Some(_) => Vec::new(),
            None => history::group(history::read(self.x_death)),
        };
        if older.is_empty() {
            return Whole {
                entries: newer.clone(),
                since: newer,
                anew: true,
                first: Vec::new(),
            };
        }
        if self.same_first && history::extends(&newer, &older, died) {
            Whole {
                since: history::added(&newer, &older),
                entries: history::complete(newer, older),
                anew: false,
                first: self.first,
            }
        } else {
            Whole {
                entries: history::merge(newer.clone(), older),
                since: newer,
                anew: true,
                first: self.first,
            }
        }
    }
}
