//! A fact with its source and its age; and which of two facts counts.

use crate::machine::Mono;

/// Who told a fact, the most direct last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The broker refused a declare, and named what the queue has.
    Refusal,
    /// The management API showed it.
    Management,
    /// The broker accepted a declare that says so.
    Declare,
}

/// Something that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    pub value: T,
    pub source: Source,
    /// The moment at which it was so.
    pub at: Mono,
}

// === impl Fact ===

impl<T> Fact<T> {
    /// Takes in what is told. The newer fact counts, whoever told it: an argument never changes, but a queue may be made anew. Of one moment the
    /// more direct source counts.
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
