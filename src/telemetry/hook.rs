//! What the hook counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Metrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    outcome: &'static str,
}

pub(super) type Outcomes = Family<OutcomeLabels, Counter>;

impl Metrics {
    /// Sets how many dead letters wait for the hook.
    pub fn hook_waiting(&self, letters: usize) {
        let letters = i64::try_from(letters).unwrap_or(i64::MAX);
        self.inner().hook_waiting.set(letters);
    }

    /// It was posted to once, and took it or not.
    pub fn hook_posted(&self, taken: bool) {
        let outcome = if taken { "taken" } else { "failed" };
        let posts = &self.inner().hook_posts;
        posts.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// It has taken so many dead letters.
    pub fn hook_taken(&self, letters: usize) {
        self.hook_ended("taken", letters);
    }

    /// It is not told of so many dead letters.
    pub fn hook_dropped(&self, letters: usize) {
        self.hook_ended("dropped", letters);
    }

    fn hook_ended(&self, outcome: &'static str, letters: usize) {
        let ended = &self.inner().hook_dead_letters;
        let counter = ended.get_or_create(&OutcomeLabels { outcome });
        counter.inc_by(letters as u64);
    }
}
