use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties::{Change, Edit, Properties, Property, has_headers};

/// The properties from content-type to cluster-id, each as it is on the wire or absent.
type Values = [Option<Vec<u8>>; 14];

const HEADERS: usize = 2;
const EXPIRATION: usize = 7;
const USER_ID: usize = 11;

fn shortstr() -> BoxedStrategy<Vec<u8>> {
    vec(any::<u8>(), 0..9)
        .prop_map(|text| [&[text.len() as u8][..], &text].concat())
        .boxed()
}

fn longstr() -> BoxedStrategy<Vec<u8>> {
    vec(any::<u8>(), 0..30)
        .prop_map(|text| [&(text.len() as u32).to_be_bytes()[..], &text].concat())
        .boxed()
}

fn values() -> impl Strategy<Value = Values> {
    let at = |slot: usize| {
        let value = match slot {
            HEADERS => longstr(),
            3 | 4 => any::<u8>().prop_map(|octet| vec![octet]).boxed(),
            9 => any::<[u8; 8]>().prop_map(|octets| octets.to_vec()).boxed(),
            _ => shortstr(),
        };
        prop::option::of(value)
    };
    let slots: [_; 14] = std::array::from_fn(at);
    slots.prop_map(|values| values)
}

/// Slow and obvious.
fn encode(values: &Values) -> Vec<u8> {
    let mut flags = 0u16;
    let mut out = Vec::new();
    for (slot, value) in values.iter().enumerate() {
        if let Some(value) = value {
            flags |= 1 << (15 - slot);
            out.extend_from_slice(value);
        }
    }
    [&flags.to_be_bytes()[..], &out].concat()
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Keep),
        Just(Change::Remove),
        vec(any::<u8>(), 0..40).prop_map(Change::Set)
    ]
}

fn apply(value: &mut Option<Vec<u8>>, change: &Change, length: usize) {
    match change {
        Change::Keep => {}
        Change::Remove => *value = None,
        Change::Set(text) => {
            let size = (text.len() as u32).to_be_bytes();
            *value = Some([&size[4 - length..], text].concat());
        }
    }
}

proptest! {
    /// Whatever an edit does to three of them, the other eleven are the same octets in the same order.
    #[test]
    fn an_edit_changes_what_it_names(values in values(), headers in change(), expiration in change(), user_id in change()) {
        let raw = encode(&values);
        let parsed = Properties::parse(&raw).unwrap();
        prop_assert_eq!(has_headers(&raw), values[HEADERS].is_some());
        prop_assert_eq!(parsed.headers(), values[HEADERS].as_ref().map(|value| &value[4..]));
        prop_assert_eq!(parsed.get(Property::Expiration), values[EXPIRATION].as_ref().map(|value| &value[1..]));
        prop_assert_eq!(parsed.get(Property::UserId), values[USER_ID].as_ref().map(|value| &value[1..]));
        prop_assert_eq!(&parsed.edit(&Edit::default())[..], &raw[..]);

        let mut expected = values.clone();
        apply(&mut expected[HEADERS], &headers, 4);
        apply(&mut expected[EXPIRATION], &expiration, 1);
        apply(&mut expected[USER_ID], &user_id, 1);
        let edited = parsed.edit(&Edit { headers, expiration, user_id, ..Edit::default() });
        prop_assert_eq!(&edited[..], &encode(&expected)[..]);
    }

    #[test]
    fn cut_or_too_long_is_malformed(values in values(), at in any::<prop::sample::Index>()) {
        let raw = encode(&values);
        prop_assert!(Properties::parse(&raw[..at.index(raw.len())]).is_err());
        prop_assert!(Properties::parse(&[&raw[..], &[0]].concat()).is_err());
    }

    #[test]
    fn no_bytes_break_it(raw in vec(any::<u8>(), 0..60)) {
        if let Ok(parsed) = Properties::parse(&raw) {
            prop_assert_eq!(&parsed.edit(&Edit::default())[..], &raw[..]);
        }
        has_headers(&raw);
    }
}

#[test]
fn flags_that_no_property_has_count_for_nothing() {
    for flags in 0..4 {
        let raw = [0, 0x10 | flags, 1, b'u'];
        let parsed = Properties::parse(&raw).unwrap();
        assert_eq!(parsed.get(Property::UserId), Some(&b"u"[..]));
        assert_eq!(&parsed.edit(&Edit::default())[..], raw);
        let anew = Edit {
            headers: Change::Set(Vec::new()),
            ..Edit::default()
        };
        assert_eq!(parsed.edit(&anew).get(..2), Some(&[0x20, 0x10][..]));
    }
    assert!(Properties::parse(&[0, 1, 0, 0]).is_err(), "no more flags");
}

#[test]
fn a_user_id_that_is_too_long_is_cut() {
    let user_id = Change::Set(vec![b'u'; 300]);
    let edited = Properties::parse(&[0, 0]).unwrap().edit(&Edit {
        user_id,
        ..Edit::default()
    });
    assert_eq!(
        Properties::parse(&edited).unwrap().get(Property::UserId),
        Some(&[b'u'; 255][..])
    );
}
