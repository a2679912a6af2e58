//! How far a queue was looked at, and what was found.

use serde::Serialize;
use utoipa::ToSchema;

use crate::amqp::ids::ShortStr;
use crate::console::admin::parameters::Place;
use crate::walk::{QueueType, REORDERED, Stopped, Summary};

/// How far a queue was looked at, and what was found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::console::admin) struct Answer<T> {
    #[schema(value_type = String)]
    pub(in crate::console::admin) vhost: ShortStr,
    #[schema(value_type = String)]
    pub(in crate::console::admin) queue: ShortStr,
    pub(in crate::console::admin) queue_type: Option<&'static str>,
    pub(in crate::console::admin) ready: Option<u64>,
    pub(in crate::console::admin) consumers: Option<u64>,
    pub(in crate::console::admin) scanned: u64,
    pub(in crate::console::admin) matched: u64,
    pub(in crate::console::admin) stopped: &'static str,
    pub(in crate::console::admin) notes: Vec<String>,
    #[serde(flatten)]
    pub(in crate::console::admin) found: T,
}

// === impl Answer ===

impl<T> Answer<T> {
    pub(in crate::console::admin) fn new(
        place: Place,
        walked: &Summary,
        is_full: bool,
        matched: u64,
        found: T,
    ) -> Answer<T> {
        Answer {
            vhost: place.vhost,
            queue: place.queue,
            // Nobody asked an empty queue what it is.
            queue_type: (walked.ready != Some(0)).then_some(match walked.queue_type {
                QueueType::Classic => "classic",
                QueueType::Quorum => "quorum",
                QueueType::Stream => "stream",
            }),
            ready: walked.ready,
            consumers: walked.consumers,
            scanned: walked.seen,
            matched,
            stopped: match walked.stopped {
                Stopped::End if !is_full && walked.is_shared() => "others",
                Stopped::End => "end",
                // Of a page without a filter the walk was told its size.
                _ if is_full => "enough",
                // Nobody else ends it: the proxy does, or whoever asked has gone.
                Stopped::Enough | Stopped::Paused => "interrupted",
                Stopped::Messages => "messages",
                Stopped::Bytes => "bytes",
                Stopped::Time => "time",
            },
            notes: notes(walked),
            found,
        }
    }
}

pub(in crate::console::admin::listing) fn notes(walked: &Summary) -> Vec<String> {
    let seen = walked.seen;
    let mut notes = Vec::new();
    match walked.ready {
        Some(ready) if seen == 0 && ready > 0 && walked.stopped == Stopped::Time => {
            notes.push(format!(
                "none of {ready} messages came in time: is another consumer the only active one?"
            ));
        }
        Some(ready) if seen < ready && (walked.stopped != Stopped::End || walked.is_shared()) => {
            notes.push(format!(
                "the first {seen} of {ready} messages were looked at"
            ));
        }
        None if walked.stopped != Stopped::End => {
            notes.push(format!(
                "the first {seen} messages were looked at; to see how many there are takes the right to configure the queue"
            ));
        }
        _ => {}
    }
    let taken = walked.taken;
    if taken > seen {
        notes.push(format!(
            "{taken} messages were taken, and are back in their places"
        ));
    }
    if walked.counted {
        notes.push(format!(
            "each look counts as a failed delivery of each message that it takes ({taken}): the queue's delivery limit may kill messages"
        ));
    }
    if walked.reordered {
        notes.push(REORDERED.to_owned());
    }
    match walked.consumers {
        None | Some(0) => {}
        Some(1) => notes.push(
            "another consumer takes messages from this queue: what it holds is not shown"
                .to_owned(),
        ),
        Some(many) => notes.push(format!(
            "{many} other consumers take messages from this queue: what they hold is not shown"
        )),
    }
    notes
}
