//! A bounded number of facts, each of which is believed for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::machine::Mono;

/// Facts that are believed for a while. When there is no room for another one, those go whose time is over; if no time is over yet, all go.
#[derive(Clone, Debug)]
pub struct Believed<K, V> {
    facts: BTreeMap<K, (V, Mono)>,
    lasting: Duration,
    most: usize,
}

// === impl Believed ===

impl<K: Ord, V> Believed<K, V> {
    /// Holds at most `most` facts, and believes each for the time `lasting`.
    pub fn new(lasting: Duration, most: usize) -> Believed<K, V> {
        Believed {
            facts: BTreeMap::new(),
            lasting,
            most,
        }
    }

    /// Believes a fact from now on.
    pub fn insert(&mut self, key: K, value: V, now: Mono) {
        if self.facts.len() >= self.most && !self.facts.contains_key(&key) {
            self.facts.retain(|_, (_, until)| *until > now);
            if self.facts.len() >= self.most {
                self.facts.clear();
            }
        }
        self.facts.insert(key, (value, now.after(self.lasting)));
    }

    /// The fact, if it is believed at this moment.
    pub fn get(&self, key: &K, now: Mono) -> Option<&V> {
        self.facts
            .get(key)
            .filter(|(_, until)| *until > now)
            .map(|(value, _)| value)
    }

    /// Stops believing a fact.
    pub fn forget(&mut self, key: &K) {
        self.facts.remove(key);
    }

    /// Stops believing all facts.
    pub fn clear(&mut self) {
        self.facts.clear();
    }
}
