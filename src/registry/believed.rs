//! Facts that are believed for a while, and no more than so many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::machine::Mono;

/// Facts that are believed for a while. At the bound those go that are not believed any more; if there are none, all.
#[derive(Debug)]
pub struct Believed<K, V> {
    facts: BTreeMap<K, (V, Mono)>,
    lasting: Duration,
    most: usize,
}

// === impl Believed ===

impl<K: Ord, V> Believed<K, V> {
    /// So many, for so long each.
    pub fn new(lasting: Duration, most: usize) -> Believed<K, V> {
        Believed {
            facts: BTreeMap::new(),
            lasting,
            most,
        }
    }

    /// It is so.
    pub fn insert(&mut self, key: K, value: V, now: Mono) {
        if self.facts.len() >= self.most && !self.facts.contains_key(&key) {
            self.facts.retain(|_, (_, until)| *until > now);
            if self.facts.len() >= self.most {
                self.facts.clear();
            }
        }
        self.facts.insert(key, (value, now.after(self.lasting)));
    }

    /// What is believed now.
    pub fn get(&self, key: &K, now: Mono) -> Option<&V> {
        self.facts
            .get(key)
            .filter(|(_, until)| *until > now)
            .map(|(value, _)| value)
    }

    /// It is not so any more.
    pub fn forget(&mut self, key: &K) {
        self.facts.remove(key);
    }

    /// None of it is.
    pub fn clear(&mut self) {
        self.facts.clear();
    }
}
