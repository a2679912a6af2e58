//! Writes the dead letter: the headers that RabbitMQ would write, and those of the proxy's own that its next death needs.

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties};
use crate::amqp::table::Table;
use crate::machine::{Publication, Purpose};

use super::cycle::Lap;
use super::headers::{
    BCC, CC, HeaderEdit, OF_THE_QUEUE, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, longstrs, routes,
};
use super::history::{self, NewDeath};
use super::private;
use super::rejected_by;
use super::remembered::{self, Whole};
use super::route::Keys;
use super::{Death, Dialect, Rules, Target};

pub(super) struct Writing<'a> {
    pub(super) death: &'a Death<'a>,
    pub(super) target: &'a Target,
    pub(super) rules: &'a Rules,
    /// Seconds since 1970.
    pub(super) now: u64,
    pub(super) properties: Properties<'a>,
    pub(super) headers: Table<'a>,
    pub(super) event: NewDeath<'a>,
    /// The first one for x-first-death-* (S5.1).
    pub(super) is_first: bool,
    pub(super) whole: Whole<'a>,
    pub(super) keys: Keys<'a>,
    /// See [`super::cycle::Automatic::queues`].
    pub(super) automatic: &'a [&'a [u8]],
    pub(super) set: Vec<&'a [u8]>,
}

// === impl Writing ===

impl Writing<'_> {
    /// # Errors
    /// When headers are malformed, or the key exceeds 255 bytes.
    pub(super) fn publication(mut self) -> Result<Publication, Malformed> {
        let most = self.rules.max_history.max(1);
        let history_cut = self.whole.entries.len() > most;
        history::cut(self.rules.dialect, &mut self.whole.entries, most);
        let headers = self.headers(most)?;
        let Writing {
            death,
            target,
            properties,
            ..
        } = self;
        Ok(Publication {
            exchange: target.exchange.clone(),
            routing_key: match &target.routing_key {
                Some(key) if **key == *self.keys.routing_key => key.clone(),
                _ => ShortStr::copy(self.keys.routing_key).ok_or(Malformed)?,
            },
            content: death.content.with_properties(properties.edit(&Edit {
                headers: Change::Set(headers),
                expiration: Change::Remove,
                ..Edit::default()
            })),
            queue: death.queue.clone(),
            reason: death.reason,
            at_least_once: target.at_least_once,
            history_cut,
            purpose: Purpose::Death,
            by: death.by.cloned().map(Box::new),
        })
    }

    fn headers(&self, most: usize) -> Result<Vec<u8>, Malformed> {
        let dialect = self.rules.dialect;
        let mut edit = HeaderEdit::default();
        edit.array(X_DEATH, &history::write(&self.whole.entries));
        for (name, value) in &self.whole.first {
            edit.value(name, value);
        }
        let words = [self.event.reason, self.event.queue, self.event.exchange];
        if self.is_first {
            set_all(&mut edit, X_FIRST_DEATH, words);
        }
        if dialect != Dialect::V3 && !self.death.recorded {
            set_all(&mut edit, X_LAST_DEATH, words);
        }
        let keyed = self.target.routing_key.is_some();
        put_keys(&mut edit, self.headers, &self.keys, keyed, dialect)?;
        for name in OF_THE_QUEUE {
            edit.remove(name);
        }
        edit.remove(private::HISTORY);
        edit.remove(private::RETRY);
        put_lap(&mut edit, &self.lap(most), dialect);
        let stamp = self.rules.stamp;
        if stamp {
            rejected_by::put(&mut edit, self.death, self.now);
        }
        // A second header of that name would say of another death who it was.
        let keep = |name: &[u8]| !stamp || name != rejected_by::X_REJECTED_BY;
        let headers = edit.apply(self.headers, keep)?;
        match dialect {
            Dialect::V3 => Ok(headers),
            Dialect::V3_13 | Dialect::V4 => {
                remembered::remember(headers, false, self.rules.history_form)
            }
        }
    }

    fn lap(&self, most: usize) -> Lap<'_> {
        Lap {
            queues: self.automatic.iter().copied().take(most).collect(),
            exchange: &self.target.exchange,
            routing_key: self.keys.routing_key,
            deaths: history::deaths(&self.whole.entries),
            at_least_once: self.target.at_least_once,
            set: self.set.clone(),
        }
    }
}

/// Puts the other keys in headers, where the broker looks for them. Removes keys that do not count
/// for this hop, because the broker would route by them. A dead-letter routing key removes the
/// header (S3.3), even an empty key; consumers of 3.13 and later still see it.
fn put_keys<'a>(
    edit: &mut HeaderEdit<'a>,
    headers: Table<'a>,
    keys: &Keys<'a>,
    keyed: bool,
    dialect: Dialect,
) -> Result<(), Malformed> {
    let told = routes(headers, CC)?;
    if keyed || (keys.cc.is_empty() && !told.is_empty()) {
        edit.remove(CC);
        if dialect != Dialect::V3
            && let Some(shown) = headers.get(CC)?
        {
            edit.value(private::CC, &shown);
        }
    } else if keys.cc != told {
        edit.array(CC, &longstrs(&keys.cc));
    }
    if keys.bcc.is_empty() {
        edit.remove(BCC);
        edit.remove(private::BCC);
    } else {
        // Once for this hop, and once more for the next, as the broker takes the first away.
        edit.array(BCC, &longstrs(&keys.bcc));
        let mut kept = vec![keys.routing_key];
        kept.extend(&keys.bcc);
        edit.array(private::BCC, &longstrs(&kept));
    }
    Ok(())
}

/// Adds what this publication did not know, or its broker forgets. 3.x forgets nothing, and behind
/// the default exchange everything is known.
fn put_lap(edit: &mut HeaderEdit<'_>, lap: &Lap<'_>, dialect: Dialect) {
    let told = dialect == Dialect::V3 && lap.exchange.is_empty();
    if lap.queues.is_empty() || told {
        return edit.remove(private::LAP);
    }
    edit.table(private::LAP, &lap.write());
}

fn set_all<'a>(edit: &mut HeaderEdit<'a>, names: [&'a [u8]; 3], values: [&[u8]; 3]) {
    for (name, value) in names.into_iter().zip(values) {
        edit.longstr(name, value);
    }
}
