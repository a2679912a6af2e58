//! A fact with its source and its age; and which of two facts counts.

use crate::machine::Mono;

/// The most direct source last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Refusal,
    Management,
    Declare,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    pub value: T,
    pub source: Source,
    pub at: Mono,
}

// === impl Fact ===

impl<T> Fact<T> {
    /// The newer fact counts, whatever its source: arguments never change, but a queue may be
    /// replaced. At equal times the more direct source counts.
    pub(super) fn learn(known: &mut Option<Fact<T>>, told: Fact<T>) {
        let rank = |fact: &Fact<T>| (fact.at, fact.source);
        if known
            .as_ref()
            .is_none_or(|known| rank(known) <= rank(&told))
        {
            *known = Some(told);
        }
    }
}
