//! A queue that dead letters went to, or may go to: what was published there, and what the broker counts.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::known::published::{Counted, Published};
use crate::known::{DeadLetterQueue, Target};
use crate::machine::Mono;

/// Older counts are not shown. A long list of queues is read every 70 s.
const COUNTS_FOR: Duration = Duration::from_secs(90);
/// Interval for quiet queues: there may be many, and many proxies.
const SELDOM: Duration = Duration::from_secs(600);
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) is_expected: bool,
    pub(super) asked: Option<(Mono, bool)>,
    /// Reached through the default exchange.
    pub(super) by_name: bool,
    pub(super) is_parking: bool,
    pub(super) dead_letters: u64,
    pub(super) published: Published,
    pub(super) counted: Option<Counted>,
}

// === impl Queue ===

impl Queue {
    /// This process published nothing to it.
    pub(super) fn is_quiet(&self) -> bool {
        self.dead_letters == 0
    }

    pub(super) fn is_missing(&self) -> bool {
        self.is_quiet() && self.asked.is_some_and(|(_, is_there)| !is_there)
    }

    pub(super) fn may_go(&self) -> bool {
        self.is_quiet() && self.counted.is_none_or(|it| it.messages == 0)
    }

    pub(super) fn is_due(&self, now: Mono) -> bool {
        !self.is_quiet() || self.asked.is_none_or(|(at, _)| at.after(SELDOM) <= now)
    }

    pub(super) fn missing(self, now: Mono) -> Queue {
        Queue {
            is_expected: self.is_expected,
            asked: Some((now, false)),
            by_name: self.by_name,
            is_parking: self.is_parking,
            ..Queue::default()
        }
    }

    pub(super) fn counted(&mut self, messages: u64, now: Mono) {
        self.asked = Some((now, true));
        let counted = self
            .published
            .counted(messages, self.dead_letters, self.counted, now);
        self.counted = Some(counted);
    }

    pub(super) fn sent(&mut self, now: Mono) {
        self.dead_letters += 1;
        self.published.add(now);
    }

    /// `targets`: those with a named exchange.
    pub(super) fn shown(
        &self,
        name: &ShortStr,
        targets: Vec<Target>,
        now: Mono,
    ) -> DeadLetterQueue {
        let counts_for = if self.is_quiet() {
            2 * SELDOM
        } else {
            COUNTS_FOR
        };
        let counted = self.counted.filter(|it| it.at.after(counts_for) >= now);
        let by_name = self.by_name.then(|| Target {
            exchange: ShortStr::EMPTY,
            routing_key: Some(name.clone()),
        });
        DeadLetterQueue {
            queue: name.clone(),
            parking: self.is_parking,
            targets: by_name.into_iter().chain(targets).collect(),
            dead_letters: self.dead_letters,
            messages: counted.map(|it| it.messages),
            oldest_seconds: counted.and_then(|it| Some(it.oldest?.until(now).as_secs())),
        }
    }
}
