//! Whatever bytes a client may have sent: nothing panics, nothing else changes, nothing takes long.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::{ArrayBuilder, Field, Table, TableBuilder, Value};
use crate::dead_letter::headers::{X_DEATH, X_FIRST_DEATH};
use crate::dead_letter::history::NewDeath;
use crate::dead_letter::proof::{self, Original};
use crate::dead_letter::{Bridges, Dialect, Disposal, Target, compact, plan, private, signal};
use crate::machine::{Publication, Reason};

use super::anything::{self, table, x_death};
use super::away::{OWN, returned};
use super::message::{content, deaths};
use super::walk::rules;

const DIALECTS: [Dialect; 3] = [Dialect::V3, Dialect::V3_13, Dialect::V4];

fn with_headers(headers: Vec<u8>) -> Content {
    content(&Edit {
        headers: Change::Set(headers),
        expiration: Change::Set(b"5".to_vec()),
        user_id: Change::Set(b"bob".to_vec()),
        ..Edit::default()
    })
}

fn planned(dialect: Dialect, content: &Content, recorded: bool) -> Option<Publication> {
    let queue = name("a");
    let target = Target {
        exchange: ShortStr::EMPTY,
        routing_key: None,
        at_least_once: true,
    };
    let mut death = returned(&queue, ("x", "a"), content).death;
    (death.reason, death.recorded) = (Reason::Expired, recorded);
    let verdict = plan(&death, &target, &rules(dialect), 9);
    assert_eq!(verdict, plan(&death, &target, &rules(dialect), 9));
    match verdict.ok()? {
        Disposal::Publish(publication) | Disposal::Park(publication, _) => Some(publication),
        other => panic!("of an at-least-once queue: {other:?}"),
    }
}

fn headers(properties: &[u8]) -> Vec<u8> {
    Properties::parse(properties)
        .unwrap()
        .headers()
        .unwrap()
        .to_vec()
}

fn fields(table: &[u8]) -> Vec<Field<'_>> {
    Table(table).fields().map(|field| field.unwrap()).collect()
}

/// The members that no rule names, as they are.
fn others(table: &[u8]) -> Vec<Field<'_>> {
    let ruled = |name: &[u8]| name.starts_with(b"x-") || [&b"CC"[..], b"BCC"].contains(&name);
    fields(table)
        .into_iter()
        .filter(|field| !ruled(field.name))
        .collect()
}

#[test]
fn of_very_many_deaths_so_many_are_read() {
    let mut deaths = ArrayBuilder::default();
    for _ in 0..100_500 {
        deaths.table(&TableBuilder::default());
    }
    let mut members = TableBuilder::default();
    members.array(X_DEATH, &deaths);
    let content = with_headers(members.finish());
    for dialect in DIALECTS {
        let publication = planned(dialect, &content, false).unwrap();
        let after = headers(&publication.content.properties);
        let x_death = Table(&after).get(X_DEATH).unwrap().unwrap();
        let entries: Vec<_> = x_death.as_array().unwrap().values().collect();
        let [_, Ok(grouped)] = entries[..] else {
            panic!("this death, and those that say nothing");
        };
        let count = grouped.as_table().unwrap().get(b"count").unwrap().unwrap();
        assert_eq!(count.as_integer(), Some(100_000));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..80), key in vec(any::<u8>(), 0..9)) {
        let content = Content { properties: Bytes::from(bytes), body: Bytes::new() };
        for dialect in DIALECTS {
            planned(dialect, &content, false);
            let _ = private::on_publish(&content.properties, b"", &rules(dialect));
        }
        // A prefix that is nowhere missing: everything is looked into.
        let _ = Bridges::new(ShortStr::EMPTY).on_delivery(&content.properties, OWN, Dialect::V3);
        let _ = private::on_delivery(&content.properties, OWN);
        let _ = proof::prove(&content.properties, OWN, None);
        let _ = signal(&key, &content);
    }

    #[test]
    fn no_headers_panic_and_others_stay(table in table(), recorded: bool) {
        let content = with_headers(table.clone());
        for dialect in DIALECTS {
            let publication = planned(dialect, &content, recorded).unwrap();
            let properties = Properties::parse(&publication.content.properties).unwrap();
            prop_assert_eq!(properties.get(Property::Expiration), None);
            prop_assert_eq!(properties.get(Property::UserId), Some(&b"bob"[..]));
            let after = headers(&publication.content.properties);
            prop_assert_eq!(others(&after), others(&table));
            let _ = private::on_publish(&content.properties, b"", &rules(dialect));
        }
        let bridges = Bridges::new(ShortStr::EMPTY);
        // A history that is one string becomes a table there, with the same deaths. So does a second one, which nobody reads.
        let before = fields(&table);
        let mut histories = before.iter().filter(|field| field.name == private::HISTORY);
        let is_text = |value: Value<'_>| value.as_longstr().and_then(compact::read).is_some();
        if !histories.any(|field| is_text(field.value)) {
            prop_assert_eq!(&*bridges.content(&content), &content, "nothing to put right");
        }
        if let Some(properties) = private::on_delivery(&content.properties, OWN) {
            let after = headers(&properties);
            prop_assert!(fields(&after).iter().all(|field| !field.name.starts_with(private::PREFIX)));
            prop_assert_eq!(others(&after), others(&table));
        }
        let hidden = proof::prove(&content.properties, OWN, None).unwrap();
        let hidden = Properties::parse(&hidden).unwrap();
        prop_assert_eq!(proof::proven(&hidden, OWN), Some(Original(Some(&b"bob"[..]))));
        let _ = signal(b"k", &content);
    }

    /// What is accepted has one spelling: a client that writes another one has written nothing.
    #[test]
    fn a_string_is_read_as_what_is_written_so(text in anything::compact()) {
        if let Some(read) = compact::read(text.as_bytes()) {
            prop_assert_eq!(compact::write(read.table().as_table()), Some(text.into()));
        }
    }

    /// What the broker and the proxy write, whatever the names are, but for the two octets that part them.
    #[test]
    fn what_was_written_as_a_string_is_read_as_it_was(
        names in vec(vec(any::<u8>(), 0..6), 3..9),
        entries in vec((any::<[usize; 3]>(), any::<i64>(), any::<u64>(), vec(any::<usize>(), 0..4)), 1..5),
        expiration in prop::option::of("[0-9]{1,5}"),
    ) {
        let name = |at: usize| &*names[at % names.len()];
        let mut x_death = ArrayBuilder::default();
        for ([queue, reason, exchange], count, time, keys) in &entries {
            let keys: Vec<_> = keys.iter().map(|key| name(*key)).collect();
            let death = NewDeath {
                queue: name(*queue),
                reason: name(*reason),
                time: *time,
                exchange: name(*exchange),
                routing_keys: &keys,
                original_expiration: expiration.as_deref().map(str::as_bytes),
            };
            x_death.raw_table(Table(&death.fields(Dialect::V4, *count)));
        }
        let mut copy = TableBuilder::default();
        copy.array(X_DEATH, &x_death);
        for (at, first) in X_FIRST_DEATH.into_iter().enumerate() {
            copy.longstr(first, name(at));
        }
        let text = compact::write(copy.as_table());
        let back = text.as_deref().map(|text| compact::read(text).unwrap().table().finish());
        let parts = names.iter().flatten().any(|octet| b"|\n".contains(octet));
        prop_assert!(parts || text.is_some());
        prop_assert!(back.is_none_or(|back| back == copy.finish()));
    }

    /// Invariant 9 for histories that clients made up.
    #[test]
    fn a_made_up_history_becomes_a_sound_one(
        published in x_death(),
        private in x_death(),
        recorded: bool,
        sorted: bool,
        is_text: bool,
    ) {
        let mut members = TableBuilder::default();
        members.array(X_DEATH, &deaths(&published, false));
        let mut copy = TableBuilder::default();
        copy.array(X_DEATH, &deaths(&private, sorted));
        for name in X_FIRST_DEATH {
            copy.longstr(name, b"of a client");
        }
        match compact::write(copy.as_table()).filter(|_| is_text) {
            Some(text) => members.longstr(private::HISTORY, &text),
            None => members.table(private::HISTORY, &copy),
        };
        let content = with_headers(members.finish());
        for dialect in DIALECTS {
            let publication = planned(dialect, &content, recorded).unwrap();
            let after = headers(&publication.content.properties);
            let array = Table(&after).get(X_DEATH).unwrap().and_then(Value::as_array).unwrap();
            let text = |entry: Value<'_>, name: &[u8]| {
                entry.as_table().unwrap().get(name).unwrap().unwrap().as_longstr().unwrap().to_vec()
            };
            let entries: Vec<_> = array.values().map(|entry| entry.unwrap()).collect();
            let mut keys: Vec<_> = entries.iter().map(|e| (text(*e, b"queue"), text(*e, b"reason"))).collect();
            if !recorded {
                prop_assert_eq!(&keys[0], &(b"a".to_vec(), b"expired".to_vec()));
                let whole = keys.len();
                keys.sort();
                keys.dedup();
                prop_assert_eq!(keys.len(), whole, "one entry for each queue and reason");
            }
        }
    }

    /// What a client published is what a client gets, if nothing dies between.
    #[test]
    fn a_passing_message_comes_out_as_it_went_in(table in table(), published in x_death()) {
        let mut members = TableBuilder::default();
        for field in fields(&table) {
            // BCC is the broker's to remove.
            if !field.name.starts_with(private::PREFIX) && field.name != b"BCC" && field.name != X_DEATH {
                members.raw(&field);
            }
        }
        members.array(X_DEATH, &deaths(&published, false));
        let content = with_headers(members.finish());
        for dialect in DIALECTS {
            let inside = private::on_publish(&content.properties, b"", &rules(dialect));
            prop_assert_eq!(inside.is_some(), dialect != Dialect::V3);
            if let Some(inside) = inside {
                prop_assert_eq!(private::on_delivery(&inside, OWN), Some(content.properties.clone()));
            }
        }
        let hidden = proof::prove(&content.properties, OWN, None).unwrap();
        prop_assert_eq!(private::on_delivery(&hidden, OWN), Some(content.properties.clone()));
    }
}

/// lapin's parser overflows the stack at a thousand.
#[test]
fn twenty_thousand_nested_tables_are_walked() {
    let mut nested: Vec<u8> = Vec::new();
    for _ in 0..20_000 {
        let mut outer = vec![1, b'n', b'F'];
        outer.extend((nested.len() as u32).to_be_bytes());
        outer.append(&mut nested);
        nested = outer;
    }
    let mut in_death = TableBuilder::default();
    let mut array = ArrayBuilder::default();
    array.raw_table(Table(&nested));
    in_death.members(&nested).array(X_DEATH, &array);
    let content = with_headers(in_death.finish());
    for dialect in DIALECTS {
        let publication = planned(dialect, &content, false).unwrap();
        assert!(publication.content.properties.len() > nested.len());
        let published = private::on_publish(&content.properties, b"", &rules(dialect));
        assert_eq!(published.is_some(), dialect != Dialect::V3);
    }
}

/// As many entries and keys as a header of a frame can have: each pass over them is linear, or the proxy would stand still.
#[test]
fn a_header_full_of_entries_and_keys_takes_no_time() {
    let mut array = ArrayBuilder::default();
    let mut keys = ArrayBuilder::default();
    for n in 0..20_000u32 {
        let mut entry = TableBuilder::default();
        entry
            .longstr(b"queue", &n.to_be_bytes())
            .longstr(b"reason", b"expired");
        array.table(&entry);
        keys.longstr(&n.to_be_bytes());
    }
    let mut members = TableBuilder::default();
    members
        .array(X_DEATH, &array)
        .array(b"CC", &keys)
        .array(private::BCC, &keys);
    let mut copy = TableBuilder::default();
    copy.array(X_DEATH, &array).boolean(b"other", true);
    members.table(private::HISTORY, &copy);
    let content = with_headers(members.finish());
    let begun = cpu_time();
    for dialect in DIALECTS {
        planned(dialect, &content, false).unwrap();
        planned(dialect, &content, true).unwrap();
    }
    // Seconds even without optimization; a quadratic pass takes minutes.
    let took = cpu_time() - begun;
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}

/// What this thread has computed so far, however busy the machine is.
fn cpu_time() -> std::time::Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = schedstat.split(' ').next().unwrap();
    std::time::Duration::from_nanos(nanoseconds.parse().unwrap())
}
