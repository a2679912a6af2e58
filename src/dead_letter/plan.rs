//! From a death to its dead letter, in the order of `rabbit_dead_letter:publish`: record the death, choose the keys, drop what would go
//! round in a circle, write the properties.

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{Table, TableBuilder};
use crate::machine::{Cause, Publication};

use super::cycle::{Automatic, Lap};
use super::headers::{BCC, CC, HeaderEdit, X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, longstrs, routes};
use super::history::{self, NewDeath};
use super::private;
use super::remembered::{self, Past};
use super::route::{self, Keys};
use super::{Death, Dialect, Rules, Target, Verdict};

/// What a quorum queue adds to its deliveries: not the message's own, so not copied (S3.6).
const OF_THE_QUEUE: [&[u8]; 2] = [b"x-delivery-count", b"x-acquired-count"];

/// What becomes of a message that died at `now` (seconds since 1970).
///
/// # Errors
/// When its properties or its header table cannot be walked: then the broker has to deal with it.
pub fn plan(
    death: &Death<'_>,
    target: &Target,
    rules: &Rules,
    now: u64,
) -> Result<Verdict, Malformed> {
    let properties = Properties::parse(&death.content.properties)?;
    let headers = Table(properties.headers().unwrap_or_default());
    let past = Past::read(headers, rules, death.recorded)?;
    let before = Keys::of_death(death, headers, &past, rules)?;

    let expiration = properties
        .get(Property::Expiration)
        .map(|text| route::original_expiration(rules.dialect, text));
    let visible = before.visible();
    let event = NewDeath {
        queue: death.queue,
        reason: death.reason.as_str().as_bytes(),
        time: now,
        exchange: death.exchange,
        routing_keys: &visible,
        original_expiration: expiration.as_deref(),
    };
    let mut whole = past.whole;
    if !death.recorded {
        whole.record(rules.dialect, event);
    }

    let lap = Lap::read(headers)?;
    let carried = lap
        .as_ref()
        .filter(|lap| lap.counts(death, rules.dialect, &whole));
    let automatic = Automatic::of(death, &whole, carried);
    let wanted = before.towards(target);
    let (keys, cycle) = match carried.and_then(|lap| lap.closed_by(death.queue)) {
        Some(late) => (wanted, Some(late)),
        None => without_cycles(wanted, target, &automatic),
    };
    let drops = !target.at_least_once && !carried.is_some_and(|lap| lap.keeps(death));
    if drops && let Some(lap) = cycle {
        return Ok(Verdict::Cycle(lap));
    }
    let set = Lap::set(lap.as_ref(), death, &whole, rules);
    let most = rules.max_history.max(1);
    let history_cut = whole.entries.len() > most;
    history::cut(rules.dialect, &mut whole.entries, most);

    let mut edit = HeaderEdit::default();
    edit.array(X_DEATH, &history::write(&whole.entries));
    for field in whole.first {
        edit.raw(field);
    }
    let words = [event.reason, event.queue, event.exchange];
    if past.is_first {
        set_all(&mut edit, X_FIRST_DEATH, words);
    }
    if rules.dialect != Dialect::V3 && !death.recorded {
        set_all(&mut edit, X_LAST_DEATH, words);
    }
    let keyed = target.routing_key.is_some();
    put_keys(&mut edit, headers, &keys, keyed)?;
    for name in OF_THE_QUEUE {
        edit.remove(name);
    }
    edit.remove(private::HISTORY);
    let queues = automatic.queues().iter().copied();
    let next = Lap {
        queues: queues.take(rules.max_history.max(1)).collect(),
        exchange: &target.exchange,
        routing_key: keys.routing_key,
        deaths: history::deaths(&whole.entries),
        at_least_once: target.at_least_once,
        set,
    };
    put_lap(&mut edit, &next, rules.dialect);
    let mut headers = edit.apply(headers, |_| true)?;
    if rules.dialect != Dialect::V3
        && let Some(copy) = remembered::copy(Table(&headers), false)?
    {
        let mut member = TableBuilder::default();
        member.table(private::HISTORY, &copy);
        headers.extend_from_slice(&member.finish());
    }

    let publication = Publication {
        exchange: target.exchange.clone(),
        routing_key: ShortStr::copy(keys.routing_key).ok_or(Malformed)?,
        content: Content {
            properties: properties.edit(&Edit {
                headers: Change::Set(headers),
                expiration: Change::Remove,
                ..Edit::default()
            }),
            body: death.content.body.clone(),
        },
        queue: death.queue.clone(),
        reason: death.reason,
        at_least_once: target.at_least_once,
        history_cut,
    };
    Ok(match cycle {
        None => Verdict::Publish(publication),
        Some(_) => Verdict::Park(publication, Cause::Cycle),
    })
}

/// The keys without those that only lead into a cycle, and the lap when nothing is left to do but that.
///
/// RabbitMQ drops the copy for one queue; a publisher can only leave out keys. At the default exchange those are the queues. For a named
/// one see [`super::closes()`].
fn without_cycles<'a>(
    keys: Keys<'a>,
    target: &Target,
    automatic: &Automatic<'_>,
) -> (Keys<'a>, Option<Vec<ShortStr>>) {
    if !target.exchange.is_empty() || !keys.all().any(|key| automatic.has(key)) {
        return (keys, None);
    }
    match keys.without(|key| automatic.has(key)) {
        Some(left) => (left, None),
        None => {
            let lap = automatic.lap(keys.routing_key);
            (keys, Some(lap))
        }
    }
}

/// Writes the keys beside the routing key into headers, where the broker looks for them. Keys that do not count for this hop must not be
/// there: the broker would route by them. A set key takes the header away (S3.3), even an empty one.
fn put_keys<'a>(
    edit: &mut HeaderEdit<'a>,
    headers: Table<'a>,
    keys: &Keys<'a>,
    keyed: bool,
) -> Result<(), Malformed> {
    let told = routes(headers, CC)?;
    if keyed || (keys.cc.is_empty() && !told.is_empty()) {
        edit.remove(CC);
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

/// Writes down what this publication could not know, or its broker will forget. 3.x forgets nothing, and at the default exchange all is known.
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
