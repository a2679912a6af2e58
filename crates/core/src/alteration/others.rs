//! The other proxies of the vhost, whose clients have to wait, too; and what they and the proxy that makes the queue anew say to each other.
//!
//! ```text
//! a proxy finds the order ─▶ "I take part" ─▶ the exclusive queue of the claim, which the one at work reads
//! the one at work: hold, settle, cancel, over ─▶ the exclusive queue of each other one ─▶ "my clients are so far"
//! ```
//! After each attempt they say anew that they take part: so one that is gone is not waited for twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::amqp::content::Content;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::properties::Properties;
use crate::amqp::reply;
use crate::dead_letter::proof::{prove, proven};
use crate::link::Link;
use crate::machine::Now;
use crate::mover::Delivery;
use crate::session::Ready;

use super::{Alteration, Effects, State, Told};

/// From the one at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// It is at work, the queue is as it was, and clients go on.
    Waits,
    Told(Told),
    Ended,
}

/// From another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reply {
    /// Where it is to be told.
    pub(super) queue: String,
    /// What its clients are; or it takes part.
    pub(super) ready: Option<Ready>,
    /// In which attempt.
    pub(super) attempt: u32,
    /// [`Order::mark`](super::Order::mark) of the one that it has found.
    pub(super) order: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbered {
    pub(super) attempt: u32,
    pub(super) word: Word,
}

/// By the names of their queues: what their clients are. `None`: they have not said again that they take part.
#[derive(Debug, Default)]
pub(super) struct Others(BTreeMap<ShortStr, Option<Stage>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    TakesPart,
    Is(Ready),
}

// === impl Others ===

impl Others {
    pub(super) fn join(&mut self, queue: ShortStr) {
        self.0.insert(queue, Some(Stage::TakesPart));
    }

    pub(super) fn hear(&mut self, queue: &ShortStr, ready: Ready) {
        if let Some(Some(stage)) = self.0.get_mut(queue) {
            *stage = Stage::Is(ready);
        }
    }

    /// An attempt is over: they take part in the next one if they say so.
    pub(super) fn release(&mut self) {
        for stage in self.0.values_mut() {
            *stage = None;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.values().flatten().count()
    }

    /// How many of those that take part are not so far.
    pub(super) fn behind(&self, ready: Ready) -> usize {
        let stages = self.0.values().flatten();
        stages.filter(|stage| **stage != Stage::Is(ready)).count()
    }

    /// To all that ever took part.
    pub(super) fn tell(&self, channel: ChannelId, link: &Link, word: Numbered, fx: &mut Effects) {
        for queue in self.0.keys() {
            send(channel, link, queue, &word, fx);
        }
    }
}

// === impl Alteration ===

impl Alteration {
    /// To the other proxies.
    pub(super) fn say(&self, word: Word, fx: &mut Effects) {
        let word = self.numbered(word);
        self.others.tell(self.channel, &self.link, word, fx);
    }

    /// To one of them.
    fn answer(&self, queue: &ShortStr, word: Word, fx: &mut Effects) {
        let word = self.numbered(word);
        send(self.channel, &self.link, queue, &word, fx);
    }

    fn numbered(&self, word: Word) -> Numbered {
        let attempt = self.altered.attempts;
        Numbered { attempt, word }
    }

    pub(super) fn hear(&mut self, reply: &Reply, now: Now, fx: &mut Effects) {
        let Some(queue) = ShortStr::copy(reply.queue.as_bytes()) else {
            return;
        };
        match reply.ready {
            // It has an older list of orders, and will find this one.
            None if reply.order != self.order().mark() => self.answer(&queue, Word::Ended, fx),
            None => {
                self.others.join(queue.clone());
                if self.state.is_within_pause() {
                    self.undo("another proxy came".to_owned(), now, fx);
                } else if self.held.is_some() {
                    // The queue may be missing: its clients have nothing of it, and would declare it.
                    self.answer(&queue, Word::Told(Told::Hold), fx);
                } else if self.state == State::Waiting {
                    self.answer(&queue, Word::Waits, fx);
                }
            }
            Some(ready) if reply.attempt == self.altered.attempts => {
                self.others.hear(&queue, ready);
                self.go_on(now, fx);
            }
            Some(_) => {}
        }
    }
}

pub(super) fn send(
    channel: ChannelId,
    link: &Link,
    queue: &[u8],
    what: &impl Serialize,
    fx: &mut Effects,
) {
    if let Some(content) = written(what, link.user()) {
        let out = fx.broker.build(&[]);
        reply::publish(out, channel, b"", queue, false);
        content.put(out, channel, link.frame_max());
    }
}

/// With the proof: who else may write there could say anything. `None`: it cannot be built, which does not happen.
pub(super) fn written(what: &impl Serialize, own_user: &[u8]) -> Option<Content> {
    Some(Content {
        properties: prove(&[0, 0], own_user, None)?,
        body: Bytes::from(serde_json::to_vec(what).ok()?),
    })
}

/// `None`: it says nothing, or no proxy of this user wrote it.
pub(super) fn read<T: for<'a> Deserialize<'a>>(delivery: &mut Delivery, link: &Link) -> Option<T> {
    let content = delivery.content()?;
    let properties = Properties::parse(&content.properties).ok()?;
    proven(&properties, link.user())?;
    serde_json::from_slice(&content.body).ok()
}
