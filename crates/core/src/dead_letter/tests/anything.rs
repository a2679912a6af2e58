//! Whatever a client may put into a table: generated.

use proptest::collection::vec;
use proptest::prelude::*;

/// A value with its type code, nested a little.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let long = |tag: u8| {
        move |data: Vec<u8>| [&[tag][..], &(data.len() as u32).to_be_bytes(), &data].concat()
    };
    let flat = prop_oneof![
        vec(any::<u8>(), 0..12).prop_map(long(b'S')),
        prop::sample::select(vec!["a", "b", "expired", "rejected"]).prop_map(move |text| long(
            b'S'
        )(
            text.into()
        )),
        compact().prop_map(move |text| long(b'S')(text.into())),
        any::<[u8; 8]>().prop_map(|data| [&b"l"[..], &data].concat()),
        any::<[u8; 8]>().prop_map(|data| [&b"T"[..], &data].concat()),
        any::<[u8; 4]>().prop_map(|data| [&b"I"[..], &data].concat()),
        Just(b"V".to_vec()),
    ];
    flat.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(move |members| long(b'A')(members.concat())),
            vec(member(inner), 0..8).prop_map(move |members| long(b'F')(members.concat())),
        ]
    })
}

fn member(value: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let names = "queue reason count time exchange routing-keys x-death CC BCC x-first-death-queue \
         x-dlx-proxy-history x-dlx-proxy-bcc x-dlx-proxy-user-id x-dlx-proxy- forget other";
    let names: Vec<_> = names.split(' ').collect();
    (prop::sample::select(names), value)
        .prop_map(|(name, value)| [&[name.len() as u8], name.as_bytes(), &value].concat())
}

pub(super) fn table() -> impl Strategy<Value = Vec<u8>> {
    vec(member(value()), 0..10).prop_map(|members| members.concat())
}

/// An x-death like one that somebody made up with care.
pub(super) fn x_death() -> impl Strategy<Value = String> {
    let entry = (
        "[ab]/(expired|rejected)",
        prop::option::of(-1..9i64),
        1..4u64,
        "[xy]",
    );
    vec(entry, 0..6).prop_map(|entries| {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(key, count, time, exchange)| {
                let count = count.map_or(String::new(), |n| format!("*{n}"));
                format!("{key}{count} t={time} x={exchange} k=[{exchange}]")
            })
            .collect();
        format!("[{}]", entries.join(", "))
    })
}

/// A private history as one string, or nearly one.
pub(super) fn compact() -> impl Strategy<Value = String> {
    "[12]?(|(a|b)?\\|b\\|x?)(\n-?[0-9]{1,2}\\|(expired|rejected)\\|[ab]\\|[0-9]{1,3}\\|[xy]?\\|5?(\\|[ab]?){0,3}){0,4}"
}
