//! Which letters are meant.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::Wall;

use super::{Id, Letter};

/// Takes the letters that are as each of its parts says; all, if none says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The queue that it died in last: [`Letter::source`].
    pub source: Option<ShortStr>,
    /// Why it died last: [`Letter::reason`].
    pub reason: Option<String>,
    /// The key that it has now, or the one that it was first published with.
    pub routing_key: Option<ShortStr>,
    /// A header of that name has that value, as text. Of several each.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// These octets are in the body, in the part of it that was kept.
    pub body: Option<Vec<u8>>,
    /// It died at least so long ago. What does not say when it died is not taken.
    pub older_than: Option<Duration>,
    /// It is one of these; none: no matter which.
    pub ids: Vec<Id>,
}

impl Filter {
    /// Whether it takes everything.
    pub fn is_all(&self) -> bool {
        *self == Filter::default()
    }

    /// Whether it takes this one.
    pub fn takes(&self, _letter: &Letter, _now: Wall) -> bool {
        true
    }
}
