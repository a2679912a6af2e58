//! What became of the messages of a lap, and why those that did not go were parked.

use std::collections::BTreeMap;

use crate::amqp::ids::ShortStr;
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;
use crate::dead_letter::proof::PARKED_CAUSE;

/// Causes that are told apart in a lap: whoever may write into the queue may make them up.
const MOST_CAUSES: usize = 20;

/// What became of the messages of a lap.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) moved: usize,
    pub(super) waiting: usize,
    pub(super) staying: usize,
    /// Of those that did not go.
    pub(super) causes: BTreeMap<ShortStr, usize>,
}

/// What the message says of why it was parked.
pub(super) fn cause(properties: &[u8]) -> ShortStr {
    let properties = Properties::parse(properties).ok();
    let headers = properties.as_ref().and_then(Properties::headers);
    let cause = Table(headers.unwrap_or_default()).get(PARKED_CAUSE);
    let cause = cause.ok().flatten().and_then(|cause| cause.as_longstr());
    cause.and_then(ShortStr::copy).unwrap_or_default()
}

// === impl Tally ===

impl Tally {
    /// A message that says this cause did not go.
    pub(super) fn caused(&mut self, cause: &ShortStr) {
        let is_known = self.causes.contains_key(cause) || self.causes.len() < MOST_CAUSES;
        let cause = cause.clone();
        let cause = if is_known { cause } else { ShortStr::EMPTY };
        *self.causes.entry(cause).or_default() += 1;
    }
}
