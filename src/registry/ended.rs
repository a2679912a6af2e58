//! Which queues have ended, as far as any session of this process saw it: what one session knows of a queue another may have deleted, and a
//! third made another of that name.
//!
//! An end is seen when it may come: a delete is asked for, a consumer cancelled by the broker, an auto-delete queue's last consumer gone. So
//! [`super::shared`], which counts where the broker cannot be asked, forgets a queue only when a delete was confirmed.
//!
//! A number for each hash of a name, since thousands of sessions share it without a lock. Two queues of one hash end together; but an end
//! only means that the broker is asked again, and such a queue is found to be there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A power of two.
const SLOTS: usize = 16 * 1024;

/// How often queues have ended, by the hash of their names.
#[derive(Clone, Debug)]
pub struct Ended(Arc<[AtomicU32]>);

/// From a queue's first accepted declare to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u32);

impl Default for Ended {
    fn default() -> Self {
        Ended((0..SLOTS).map(|_| AtomicU32::new(0)).collect())
    }
}

/// A hash that is the same in each run. Whoever wants two names of one hash finds some.
pub fn fnv1a<'a>(octets: impl IntoIterator<Item = &'a u8>) -> u64 {
    octets
        .into_iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
        })
}

// === impl Ended ===

impl Ended {
    /// The life that such a queue has now.
    pub fn life(&self, vhost: &[u8], queue: &[u8]) -> Life {
        Life(
            self.slot(vhost, queue)
                .map_or(0, |ended| ended.load(Ordering::Acquire)),
        )
    }

    /// It ends.
    pub fn end(&self, vhost: &[u8], queue: &[u8]) {
        if let Some(ended) = self.slot(vhost, queue) {
            ended.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn slot(&self, vhost: &[u8], queue: &[u8]) -> Option<&AtomicU32> {
        // Neither name has an octet that separates them, but both have at most 255 octets.
        let length = [vhost.len() as u8];
        let hash = fnv1a(length.iter().chain(vhost).chain(queue));
        self.0.get((hash ^ hash >> 32) as usize & (SLOTS - 1))
    }
}
