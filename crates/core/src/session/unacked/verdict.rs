//! Verdicts, each with the copy of its delivery.

use crate::amqp::ids::DeliveryTag;
use crate::dead_letter::verdict::Verdict;

use super::Unacked;

// === impl Unacked ===

impl Unacked {
    pub(crate) fn verdict(&self, tag: DeliveryTag) -> Option<&Verdict> {
        // Most channels have none, and are not searched.
        let judged = self.judged.then(|| self.copies.get(&tag.0));
        judged.flatten()?.verdict.as_deref()
    }

    /// For a delivery with a copy. Returns the bytes of the verdict before.
    pub(crate) fn set_verdict(&mut self, tag: DeliveryTag, verdict: Option<Box<Verdict>>) -> usize {
        let Some(retained) = self.copies.get_mut(&tag.0) else {
            return 0;
        };
        self.judged |= verdict.is_some();
        let before = std::mem::replace(&mut retained.verdict, verdict);
        before.map_or(0, |before| before.bytes())
    }

    /// Takes the headers of a verdict away, and returns their bytes. `None`: it has none.
    pub(crate) fn drop_headers(&mut self, tag: DeliveryTag) -> Option<usize> {
        let verdict = self.copies.get_mut(&tag.0)?.verdict.as_deref_mut()?;
        let before = verdict.bytes();
        verdict.drop_headers().then(|| before - verdict.bytes())
    }

    /// Whether a delivery of this channel has ever had a verdict: then each settlement needs a look.
    pub(crate) fn was_judged(&self) -> bool {
        self.judged
    }
}
