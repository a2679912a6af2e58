//! A bounded number of facts, each of which is believed for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::machine::Mono;

/// Facts trusted for a while. If full, drops expired ones; if none are expired, all.
#[derive(Clone, Debug)]
pub struct Believed<K, V> {
    facts: BTreeMap<K, (V, Mono)>,
    lasting: Duration,
    most: usize,
}

// === impl Believed ===

impl<K: Ord, V> Believed<K, V> {
    pub fn new(lasting: Duration, most: usize) -> Believed<K, V> {
        Believed {
            facts: BTreeMap::new(),
            lasting,
            most,
        }
    }

    pub fn insert(&mut self, key: K, value: V, now: Mono) {
        if self.facts.len() >= self.most && !self.facts.contains_key(&key) {
            self.facts.retain(|_, (_, until)| *until > now);
            if self.facts.len() >= self.most {
                self.facts.clear();
            }
        }
        self.facts.insert(key, (value, now.after(self.lasting)));
    }

    pub fn get(&self, key: &K, now: Mono) -> Option<&V> {
        self.facts
            .get(key)
            .filter(|(_, until)| *until > now)
            .map(|(value, _)| value)
    }

    pub fn forget(&mut self, key: &K) {
        self.facts.remove(key);
    }

    pub fn clear(&mut self) {
        self.facts.clear();
    }
}
