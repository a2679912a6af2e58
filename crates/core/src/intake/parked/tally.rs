//! What became of the messages of a lap, and why those that did not go were parked.

use std::collections::BTreeMap;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::dead_letter::proof::PARKED_CAUSE;

/// Causes per pass; publishers to the queue may invent them.
const MOST_CAUSES: usize = 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) moved: usize,
    pub(super) waiting: usize,
    pub(super) staying: usize,
    /// Of messages that stay.
    pub(super) causes: BTreeMap<ShortStr, usize>,
}

pub(super) fn cause(properties: &[u8]) -> ShortStr {
    let properties = Properties::parse(properties).ok();
    let headers = properties.as_ref().and_then(Properties::headers);
    let cause = Table(headers.unwrap_or_default()).get(PARKED_CAUSE);
    let cause = cause.ok().flatten().and_then(|cause| cause.as_longstr());
    cause.and_then(ShortStr::copy).unwrap_or_default()
}

// === impl Tally ===

impl Tally {
    pub(super) fn caused(&mut self, cause: &ShortStr) {
        let is_known = self.causes.contains_key(cause) || self.causes.len() < MOST_CAUSES;
        let cause = cause.clone();
        let cause = if is_known { cause } else { ShortStr::EMPTY };
        *self.causes.entry(cause).or_default() += 1;
    }
}
