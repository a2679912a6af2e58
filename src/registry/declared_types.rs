//! Which queues are quorum queues, as any session of this process has seen them declared.
//!
//! Only the `redelivered` of a dead letter depends on it (S3.6), so an error costs no more than that bit. Thousands of sessions share it without
//! a lock: each slot has what was declared last of those queues whose names have the same hash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ended::fnv1a;

/// A power of two.
const SLOTS: usize = 16 * 1024;
/// The lowest bit of a slot says what the queue is, the others which one it is.
const QUORUM: u32 = 1;

/// By the hash of their names. Clones are the same.
#[derive(Clone, Debug)]
pub struct DeclaredTypes(Arc<[AtomicU32]>);

impl Default for DeclaredTypes {
    fn default() -> Self {
        DeclaredTypes((0..SLOTS).map(|_| AtomicU32::new(0)).collect())
    }
}

// === impl DeclaredTypes ===

impl DeclaredTypes {
    /// The broker has accepted a declare: the queue is a quorum queue, or it is not.
    pub fn learn(&self, vhost: &[u8], queue: &[u8], quorum: bool) {
        let (slot, mark) = self.slot(vhost, queue);
        if let Some(slot) = slot {
            slot.store(mark | u32::from(quorum), Ordering::Relaxed);
        }
    }

    /// Whether the queue is a quorum queue; `None`: nobody has declared it here.
    pub fn is_quorum(&self, vhost: &[u8], queue: &[u8]) -> Option<bool> {
        let (slot, mark) = self.slot(vhost, queue);
        let known = slot?.load(Ordering::Relaxed);
        (known & !QUORUM == mark).then_some(known & QUORUM != 0)
    }

    /// A slot, and what stands there of this queue.
    fn slot(&self, vhost: &[u8], queue: &[u8]) -> (Option<&AtomicU32>, u32) {
        // Neither name has an octet that separates them, but both have at most 255 octets.
        let length = [vhost.len() as u8];
        let hash = fnv1a(length.iter().chain(vhost).chain(queue));
        // An empty slot is no queue's.
        let mark = (hash >> 32) as u32 & !QUORUM | 2;
        (self.0.get(hash as usize & (SLOTS - 1)), mark)
    }
}

#[cfg(test)]
mod tests {
    use super::DeclaredTypes;

    #[test]
    fn a_queue_is_what_it_was_declared_as_last() {
        let types = DeclaredTypes::default();
        assert_eq!(types.is_quorum(b"/", b"a"), None);
        types.clone().learn(b"/", b"a", true);
        types.learn(b"/", b"b", false);
        assert_eq!(types.is_quorum(b"/", b"a"), Some(true));
        assert_eq!(types.is_quorum(b"/", b"b"), Some(false));
        assert_eq!(types.is_quorum(b"other", b"a"), None);
        types.learn(b"/", b"a", false);
        assert_eq!(types.is_quorum(b"/", b"a"), Some(false));
    }
}
