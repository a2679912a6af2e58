//! By which keys dead letters go.

use std::collections::BTreeMap;

use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Value};

/// Queues that set one, with it.
#[derive(Default)]
pub(super) struct SetKeys(pub BTreeMap<Bytes, Bytes>);

impl SetKeys {
    /// Where a key is set, no other brings a dead letter anywhere (S2.2, S3.3).
    ///
    /// # Errors
    /// This one, published with `key`, has others.
    pub(super) fn check(&self, key: &Bytes, letter: &Frame) -> Result<(), String> {
        let queue = letter.newest_death().and_then(|death| death.get("queue"));
        let set = match queue {
            Some(Value::Text(queue)) => self.0.get(queue),
            _ => None,
        };
        let has = |name: &&str| letter.headers().is_some_and(|of| of.get(name).is_some());
        let others = ["CC", "BCC"].iter().any(has);
        match set {
            Some(set) if set != key || others => Err(format!(
                "a dead letter goes by other keys than the set one: {letter}"
            )),
            _ => Ok(()),
        }
    }
}
