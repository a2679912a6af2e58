//! How far a queue was looked at, and what was found.

use serde::Serialize;
use utoipa::ToSchema;

use crate::amqp::ids::ShortStr;
use crate::console::admin::parameters::Place;
use crate::console::count::count;
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
            notes: notes(walked, is_full),
            found,
        }
    }
}

/// What a user must know. `is_full`: all that was asked for was found.
pub(in crate::console::admin::listing) fn notes(walked: &Summary, is_full: bool) -> Vec<String> {
    let seen = walked.seen;
    let why = match walked.stopped {
        Stopped::Messages => "one search takes no more messages",
        Stopped::Bytes => "one search takes no more bytes",
        Stopped::Time => "the time was up",
        Stopped::Enough | Stopped::Paused => "the search was interrupted",
        Stopped::End => "consumers hold or took the others",
    };
    let is_part = !is_full && (walked.stopped != Stopped::End || walked.is_shared());
    let mut notes = Vec::new();
    match walked.ready {
        Some(ready) if seen == 0 && ready > 0 && walked.stopped == Stopped::Time => {
            let ready = count(ready, "message");
            notes.push(format!(
                "None of {ready} arrived in time. Is another consumer the single active consumer of this queue?"
            ));
        }
        Some(ready) if is_part && seen < ready => {
            notes.push(format!(
                "The search ended after {} of {ready}: {why}.",
                count(seen, "message")
            ));
        }
        None if is_part && walked.stopped != Stopped::End => {
            notes.push(format!(
                "The search ended after {}: {why}. The total needs the permission to configure the queue.",
                count(seen, "message")
            ));
        }
        _ => {}
    }
    if walked.counted {
        notes.push(format!(
            "This counted as a failed delivery of {}. At its delivery limit, the queue removes a message.",
            count(walked.taken, "message")
        ));
    }
    if walked.reordered {
        notes.push(REORDERED.to_owned());
    }
    match walked.consumers {
        None | Some(0) => {}
        Some(1) => notes.push(
            "A consumer takes messages from this queue. Those that it holds are not shown."
                .to_owned(),
        ),
        Some(many) => notes.push(format!(
            "{many} consumers take messages from this queue. Those that they hold are not shown."
        )),
    }
    notes
}
