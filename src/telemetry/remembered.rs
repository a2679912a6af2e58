//! What is remembered for people who ask how a queue is handled, and is no number: why its declare was left to the broker, and which
//! version that is.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Metrics;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::version::Version;
use crate::machine::Fallback;

const MOST: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Until a declare of the queue is taken over.
    declares_left: Mutex<BTreeMap<(Vhost, ShortStr), Fallback>>,
    /// Version and address.
    broker: Mutex<(Option<String>, Option<String>)>,
}

// === impl Metrics ===

impl Metrics {
    /// Without a cause: it was taken over.
    pub(super) fn declare_left(&self, vhost: &Vhost, queue: &ShortStr, cause: Option<Fallback>) {
        let mut left = lock(&self.inner().remembered.declares_left);
        if left.len() >= MOST {
            left.clear();
        }
        match cause {
            None if left.is_empty() => {}
            None => drop(left.remove(&(vhost.clone(), queue.clone()))),
            Some(cause) => drop(left.insert((vhost.clone(), queue.clone()), cause)),
        }
    }

    pub fn declares_left(&self, vhost: &Vhost) -> BTreeMap<ShortStr, Fallback> {
        let left = lock(&self.inner().remembered.declares_left);
        let here = left.iter().filter(|((of, _), _)| of == vhost);
        here.map(|((_, queue), cause)| (queue.clone(), *cause))
            .collect()
    }

    pub(super) fn broker_is(&self, version: String, node: Option<String>) {
        *lock(&self.inner().remembered.broker) = (Some(version), node);
    }

    /// Version and address, as the last link met them.
    pub fn broker(&self) -> (Option<String>, Option<String>) {
        lock(&self.inner().remembered.broker).clone()
    }

    pub fn broker_version(&self) -> Option<Version> {
        Version::parse(self.broker().0?.as_bytes())
    }
}

fn lock<T>(remembered: &Mutex<T>) -> MutexGuard<'_, T> {
    remembered.lock().unwrap_or_else(PoisonError::into_inner)
}
