//! Sets of delivery tags.

use std::collections::BTreeMap;

use crate::amqp::ids::DeliveryTag;

/// A set of tags with 64 of them per word.
pub(in crate::session) type Bits = BTreeMap<u64, u64>;

pub(in crate::session) fn set(words: &mut Bits, tag: u64) {
    *words.entry(tag >> 6).or_default() |= 1 << (tag & 63);
}

pub(in crate::session) fn clear(words: &mut Bits, tag: u64) {
    if let Some(word) = words.get_mut(&(tag >> 6)) {
        *word &= !(1 << (tag & 63));
        if *word == 0 {
            words.remove(&(tag >> 6));
        }
    }
}

pub(in crate::session) fn has(words: &Bits, tag: u64) -> bool {
    words
        .get(&(tag >> 6))
        .is_some_and(|word| word & 1 << (tag & 63) != 0)
}

/// Removes all tags up to this one, and reports them.
pub(in crate::session) fn clear_up_to(
    words: &mut Bits,
    tag: u64,
    mut cleared: impl FnMut(u64, u64),
) {
    let last = tag >> 6;
    while let Some(first) = words.first_entry().filter(|entry| *entry.key() < last) {
        let (word, set) = first.remove_entry();
        cleared(word, set);
    }
    if let Some(word) = words.get_mut(&last) {
        let below = *word & u64::MAX >> (63 - (tag & 63));
        *word &= !below;
        cleared(last, below);
        if *word == 0 {
            words.remove(&last);
        }
    }
}

pub(in crate::session) fn first(words: &Bits) -> Option<DeliveryTag> {
    let (word, set) = words.first_key_value()?;
    bits(*word, *set).next().map(DeliveryTag)
}

pub(in crate::session) fn bits(word: u64, mut set: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < 64).then_some(word << 6 | u64::from(bit))
    })
}
