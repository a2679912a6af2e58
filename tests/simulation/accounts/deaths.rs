//! Deaths that a proxy has to deal with, and what it did about each. Copies of one message that died of the same, as often, are alike: they
//! are counted together.

use std::collections::BTreeMap;

use super::super::codec::value::Bytes;
use super::super::net::Micros;
use super::history::Counts;

/// By message, and by what its dead letter has to tell.
#[derive(Default)]
pub(super) struct Deaths(BTreeMap<(Bytes, Counts), Death>);

/// One death, or several that look the same.
#[derive(Debug, Default)]
pub(super) struct Death {
    /// How often a proxy heard of it: what returns to its queue is heard of again.
    pub heard: usize,
    /// Its dead letters, but for those that were parked: an attempt that fails comes before.
    pub published: Vec<Micros>,
    /// Those that reached a queue, as the proxy knows.
    pub confirmed: usize,
    /// Originals that were settled for them.
    pub settled: usize,
    /// At most so many deaths of it by itself, this one among them, lie behind it since somebody published or rejected it.
    pub by_itself: usize,
}

impl Deaths {
    /// A client has rejected it, or the intake has it.
    pub(super) fn heard(&mut self, body: Bytes, counts: Counts, by_itself: usize) {
        let death = self.0.entry((body, counts)).or_default();
        death.heard += 1;
        death.by_itself = death.by_itself.max(by_itself);
    }

    /// # Errors
    /// It never happened.
    pub(super) fn get(&mut self, of: &(Bytes, Counts)) -> Result<&mut Death, String> {
        if !self.0.contains_key(of) {
            let body = String::from_utf8_lossy(&of.0);
            let same = self.0.keys().filter(|(body, _)| *body == of.0);
            let known: Vec<String> = same.map(|(_, counts)| counts.to_string()).collect();
            return Err(format!(
                "{body} died of {}, says a proxy; it did of {}",
                of.1,
                known.join(" or ")
            ));
        }
        Ok(self.0.get_mut(of).expect("it is there"))
    }
}
