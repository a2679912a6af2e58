//! The types of queues, as any session of this process has seen them declared.
//!
//! On them depend the `redelivered` of a dead letter (S3.6), and whether a queue that the session did not declare can have retries: a stream
//! never has. Thousands of sessions share this without a lock: each slot has what was declared last of those queues whose names have the same
//! hash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::objects::QueueType;

use super::ended::fnv1a;

/// A power of two.
const SLOTS: usize = 16 * 1024;
/// The lowest bits of a slot say what the queue is, the others which one it is. All 0: an empty slot, which is no queue's.
const TYPE: u32 = 0b111;

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
    /// The broker has accepted a declare of that type.
    pub fn learn(&self, vhost: &[u8], queue: &[u8], queue_type: QueueType) {
        let (slot, mark) = self.slot(vhost, queue);
        if let Some(slot) = slot {
            let queue_type = match queue_type {
                QueueType::Classic => 1,
                QueueType::Default => 2,
                QueueType::Quorum => 3,
                QueueType::Other => 4,
            };
            slot.store(mark | queue_type, Ordering::Relaxed);
        }
    }

    /// What the queue was declared as last; `None`: nobody has declared it here.
    pub fn get(&self, vhost: &[u8], queue: &[u8]) -> Option<QueueType> {
        let (slot, mark) = self.slot(vhost, queue);
        let known = slot?.load(Ordering::Relaxed);
        match known & TYPE {
            _ if known & !TYPE != mark => None,
            1 => Some(QueueType::Classic),
            2 => Some(QueueType::Default),
            3 => Some(QueueType::Quorum),
            4 => Some(QueueType::Other),
            _ => None,
        }
    }

    /// Whether the queue is a quorum queue; `None`: nobody has declared it here.
    pub fn is_quorum(&self, vhost: &[u8], queue: &[u8]) -> Option<bool> {
        let known = self.get(vhost, queue);
        known.map(|queue_type| queue_type == QueueType::Quorum)
    }

    /// A slot, and what stands there of this queue.
    fn slot(&self, vhost: &[u8], queue: &[u8]) -> (Option<&AtomicU32>, u32) {
        // Neither name has an octet that separates them, but both have at most 255 octets.
        let length = [vhost.len() as u8];
        let hash = fnv1a(length.iter().chain(vhost).chain(queue));
        let mark = (hash >> 32) as u32 & !TYPE;
        (self.0.get(hash as usize & (SLOTS - 1)), mark)
    }
}

#[cfg(test)]
mod tests {
    use super::{DeclaredTypes, QueueType};

    #[test]
    fn a_queue_is_what_it_was_declared_as_last() {
        let types = DeclaredTypes::default();
        assert_eq!(types.get(b"/", b"a"), None);
        for of in [
            QueueType::Classic,
            QueueType::Default,
            QueueType::Quorum,
            QueueType::Other,
        ] {
            types.clone().learn(b"/", b"a", of);
            assert_eq!(types.get(b"/", b"a"), Some(of));
            let quorum = types.is_quorum(b"/", b"a");
            assert_eq!(quorum, Some(of == QueueType::Quorum));
        }
        types.learn(b"/", b"b", QueueType::Quorum);
        assert_eq!(types.get(b"/", b"a"), Some(QueueType::Other));
        assert_eq!(types.is_quorum(b"/", b"b"), Some(true));
        assert_eq!(types.is_quorum(b"other", b"a"), None);
    }
}
