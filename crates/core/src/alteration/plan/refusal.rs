//! Why a queue cannot be made anew.

use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::objects::Names;
use crate::registry::adoption::ListedQueue;

use super::{QUORUM, Seen, TYPE, Wish};

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("there is no such queue")]
    Missing,
    #[error("nothing would change")]
    Unchanged,
    #[error("a stream keeps its messages")]
    Stream,
    #[error("an exclusive queue ends with its connection: change what declares it")]
    Exclusive,
    #[error("an auto-delete queue goes with its last consumer: change what declares it")]
    AutoDelete,
    #[error("the broker generated its name: change what declares it")]
    ServerNamed,
    #[error("it is an object of the proxy's own")]
    Ours,
    #[error("an earlier alteration of it is not finished: try again")]
    Unfinished,
    #[error("a queue can become `classic` or `quorum`")]
    Type,
    #[error(
        "a quorum queue cannot become a classic one: RabbitMQ ends the connections of clients that have read from it and do so again (541)"
    )]
    EndsConnections,
    #[error("a quorum queue is durable, and this queue is not")]
    Transient,
    #[error(
        "channels with a prefetch for all of the channel (`basic.qos` with `global`): {0}. They could not consume from a quorum queue"
    )]
    GlobalPrefetch(usize),
    #[error("`{0}` is no text, number or boolean")]
    Value(String),
    #[error("its name is too long: {0} bytes more than the proxy needs for names of its own")]
    NameTooLong(usize),
    #[error(
        "its binding to the exchange {0} has an argument that is no text or boolean, whose exact type the management API does not show"
    )]
    BindingArguments(String),
    #[error("the exchange {0} gives each new binding its last messages (x-recent-history)")]
    RecentHistory(String),
    #[error(
        "the broker itself dead-letters messages of the queue {0} into it: hand that one over to the proxy first (`queues adopt`)"
    )]
    FedBy(String),
    #[error("clients with another protocol go past the proxy: {0}")]
    OtherProtocol(String),
    #[error(
        "the node {0} has a replica of it and is down, so that clients would wait for 5 s: start the node first"
    )]
    MemberDown(String),
    #[error("it delays returned messages itself, and these cannot be counted")]
    DelaysItself,
    #[error(
        "{messages} messages are ready, and nobody reads them: clients would wait for about {} s until they are moved aside and back, and `max-pause` is {} s. Let consumers read them first, or allow more",
        .pause.as_secs(), .max_pause.as_secs()
    )]
    Backlog {
        messages: u64,
        pause: Duration,
        max_pause: Duration,
    },
}

/// What is against it by its kind.
pub(super) fn of_queue(
    listed: &ListedQueue,
    wish: &Wish,
    seen: &Seen,
    names: &Names,
) -> Vec<Refusal> {
    let queue = listed.name.as_bytes();
    let delays = |arguments: &Value| {
        let mut named = arguments.as_object().into_iter().flatten();
        named.any(|(name, _)| name.starts_with("x-delayed-retry-"))
    };
    let room = names.prefix().len() + ".altering/".len();
    let listed_type = listed.queue_type.as_deref();
    let wanted = wish.queue_type();
    let is_type = |it: &str| ["classic", QUORUM].contains(&it);
    let becomes_quorum = wanted == Some(QUORUM) && listed_type != Some(QUORUM);
    let becomes_classic = wanted == Some("classic") && listed_type == Some(QUORUM);
    let reasons = [
        (names.is_ours(queue), Refusal::Ours),
        (listed_type == Some("stream"), Refusal::Stream),
        (listed.exclusive, Refusal::Exclusive),
        (listed.auto_delete, Refusal::AutoDelete),
        (queue.starts_with(b"amq."), Refusal::ServerNamed),
        (
            wish.unset.contains(TYPE) || wanted.is_some_and(|it| !is_type(it)),
            Refusal::Type,
        ),
        (becomes_classic, Refusal::EndsConnections),
        (becomes_quorum && !listed.durable, Refusal::Transient),
        (
            becomes_quorum && seen.global_prefetches > 0,
            Refusal::GlobalPrefetch(seen.global_prefetches),
        ),
        (
            listed_type == Some(QUORUM) && delays(&listed.arguments),
            Refusal::DelaysItself,
        ),
        (
            queue.len() + room > 255,
            Refusal::NameTooLong((queue.len() + room).saturating_sub(255)),
        ),
    ];
    let holds = reasons.into_iter().filter(|(holds, _)| *holds);
    let holds = holds.map(|(_, refusal)| refusal);
    // The broker waits 5 s for a node that is down before it deletes a queue, and clients would wait, too (S12.13).
    let down = listed.members.difference(&listed.online).next();
    holds
        .chain(down.cloned().map(Refusal::MemberDown))
        .collect()
}
