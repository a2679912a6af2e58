//! What is written of each fact, and how loudly. `error`: someone must act; `warn`: degraded and handled; `info`: life cycle; `debug`: one
//! session. Each line counts in `dlx_proxy_events_total` under the name that stands before it; those without one are counted by a metric of their
//! own. The table of events in docs/reference/metrics.md is made from this file.

use tracing::Level;

/// For lines with the same fact, place and cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    Always,
    /// Once a minute, with the number of suppressed lines.
    Minutely,
    Never,
}

#[derive(Debug)]
pub struct Fact {
    /// Its label in `dlx_proxy_events_total`.
    pub event: Option<&'static str>,
    pub(super) level: Level,
    pub(super) repeats: Repeats,
    pub words: &'static str,
}

/// `CONSTANT, "event" level repeats "words";`
macro_rules! facts {
    ($($name:ident $($event:literal)? $level:ident $repeats:ident $words:literal;)+) => {
        $(pub(super) const $name: Fact = Fact {
            event: facts!(@event $($event)?),
            level: Level::$level,
            repeats: Repeats::$repeats,
            words: $words,
        };)+

        pub const ALL: &[Fact] = &[$($name),+];
    };
    (@event) => { None };
    (@event $event:literal) => { Some($event) };
}

/// Counts a fact and logs it, unless the line would repeat another one.
macro_rules! line {
    ($metrics:expr, $fact:ident, $place:expr, $cause:expr $(, $($fields:tt)+)?) => {{
        let fact = &$crate::telemetry::facts::$fact;
        if let Some(held_back) = $metrics.happened(fact, || $place, $cause) {
            match fact.level {
                tracing::Level::ERROR => tracing::error!($($($fields)+,)? held_back, "{}", fact.words),
                tracing::Level::WARN => tracing::warn!($($($fields)+,)? held_back, "{}", fact.words),
                tracing::Level::INFO => tracing::info!($($($fields)+,)? held_back, "{}", fact.words),
                _ => tracing::debug!($($($fields)+,)? held_back, "{}", fact.words),
            }
        }
    }};
}

facts! {
    // === clients
    CLIENT_REFUSED "client_refused" WARN Minutely "client refused: the broker cannot be reached";
    HEADER_REFUSED "header_refused" WARN Minutely "client refused: its connection to `listen-proxy-protocol` did not begin with a valid PROXY header";
    HANDSHAKE_FAILED "tls_handshake_failed" INFO Minutely "the TLS handshake with a client failed";
    // As a probe of a load balancer does.
    HANDSHAKE_ENDED "tls_handshake_ended" DEBUG Always "a client left during the TLS handshake";
    EXTERNAL_REFUSED "external_refused" WARN Minutely "client refused: it chose EXTERNAL, and the broker would log it in as the user of the proxy's own certificate";
    NAME_REFUSED "name_refused" WARN Minutely "a client named an object of the proxy's own and was refused";
    CLIENT_FAULT "client_fault" INFO Minutely "a client violated the protocol";
    BROKER_FAULT "broker_fault" WARN Minutely "the broker violated the protocol";
    PROBE_OVER_LIMIT "probe_over_limit" WARN Minutely "a probe of the proxy met a limit on channels: the broker closed the client's connection, and the proxy opens no more probes for that user for a day";
    CANNOT_ACCEPT "cannot_accept" WARN Minutely "cannot accept a connection";
    LIMIT_MET WARN Minutely "a limit was met";

    // === queues and their declares
    REDECLARED "redeclared" INFO Always "a declare changed where the dead letters of its queue go";
    REDECLARED_REJECTS "redeclared" WARN Always "a declare changed where the rejected messages of its queue go; what expires or overflows still goes by the queue's own arguments and the broker's policies";
    PREFETCH_OF_CHANNEL "prefetch_of_channel" WARN Minutely "a client sets a prefetch for a whole channel (`basic.qos` with `global`): RabbitMQ from 4.3 on gives it to each consumer, unless its deprecated feature `global_qos` is permitted";
    DECLARE_DIFFERS "declare_differs" INFO Minutely "a declare differs from its queue, which keeps what it has: `dlx-proxy queues alter QUEUE` changes it";
    REJECTS_ONLY WARN Never "a policy of the proxy acts on the rejected messages of a queue only; what expires or overflows still goes by the queue's own arguments and the broker's policies";
    NOT_RECORDED "not_recorded" WARN Minutely "what a declare said is not recorded yet: other proxies do not know it";
    RECORD_UNREAD "record_unread" WARN Minutely "the record of redeclared queues cannot be read: only what is declared here counts";
    RECORD_FOREIGN "record_foreign" WARN Minutely "the record of redeclared queues has messages that no proxy with this user wrote: somebody publishes to its stream, which takes room there";
    RETRIES_IN_VAIN "retries_in_vain" WARN Minutely "arguments of a queue ask for retries in vain";
    GOES_WITH_MESSAGES "goes_with_messages" WARN Minutely "a queue goes with the messages that wait in it";
    STILL_WAITING "still_waiting" WARN Minutely "messages that wait for a retry are not in the queue that was purged or deleted, and come back: `dlx-proxy retries purge NAME` removes them";

    // === rejects and returns
    LEFT WARN Minutely "left to the broker";
    LEFT_NO_PERMISSION WARN Minutely "left to the broker: its user may not write to the intake exchange";
    // What the client or somebody before it chose: nothing is degraded.
    LEFT_ON_PURPOSE DEBUG Always "left to the broker";
    UNDECLARED WARN Always "nobody declared the queue here, and it cannot be asked what it is: what is rejected there is left to the broker. `dlx-proxy queues` says what can be done";
    CRASH_NOT_COUNTED WARN Minutely "a client was lost, and what it had not settled goes back uncounted";
    KEPT WARN Minutely "a reject or a return is kept: its message stays unsettled until the proxy can publish it";
    KEPT_RETURNED "kept_returned" WARN Minutely "a message that was kept unsettled went back to its queue";
    VERDICT_UNUSED "verdict_unused" INFO Minutely "a verdict of a client, or a part of it, has no effect";
    TAKEN_BACK INFO Minutely "a message was taken back from a client that held it for longer than the ack timeout of its queue";
    SETTLED_LATE "settled_late" DEBUG Always "a client settled what had been taken back after the ack timeout: that has no effect";
    EDIT_DROPPED "edit_dropped" DEBUG Always "a header of the proxy's own would not fit the frame and was dropped";

    // === dead letters and retries
    PARKED WARN Minutely "dead letter parked";
    DROPPED WARN Minutely "dead letter dropped";
    NOT_PUBLISHED WARN Minutely "dead letter not published";
    // Even the parking queue does not take it: it closes connections until somebody looks at it.
    POISON ERROR Minutely "dead letter not published";
    QUEUE_FULL WARN Minutely "a message that comes back finds no room in its queue: it waits, and is not counted";
    NOT_DELAYED WARN Minutely "a message could not be published to its delay queue: it stays unsettled, or is parked if it had waited in a delay queue before";
    PUBLISH_NOT_DELAYED "publish_not_delayed" WARN Minutely "a publish could not be published to its delay queue: a client with confirms gets a nack";
    PUBLISH_ASTRAY "publish_astray" WARN Minutely "a delayed publish did not reach a queue when it was due";
    DELIVERY_TIME_DROPPED "delivery_time_dropped" WARN Minutely "a message goes on without its x-opt-delivery-time, which is more than 100 years ahead";
    INTERNAL_EXCHANGE "internal_exchange" INFO Minutely "the dead-letter exchange is internal: it is reached over a bridge";
    CLOSES_CONNECTION "closes_connection" WARN Minutely "dead letters to this target close the connection: they are tried alone on a connection of their own, and parked after give-up-after";
    PARKED_MOVED "parked_moved" INFO Always "parked messages went to their targets";

    // === the proxy's own links and queues
    LINK_UP "link_up" INFO Always "link is up";
    LINK_LOST WARN Always "link lost";
    LINK_NOT_OPENED WARN Minutely "link cannot be opened";
    BROKER_NEWER "broker_newer" WARN Minutely "the broker is newer than those that the proxy was tested with, and is treated as the newest of these";
    VHOST_NATIVE WARN Always "the proxy's user may not use this vhost: its queues stay native";
    OTHER_USER ERROR Always "proxies with another user work in this vhost: each parks what the other ones delay or park, as `implausible`. Give all of them the same user, or each user a `prefix`";
    OTHER_USER_GONE INFO Always "no proxies with another user work in this vhost any more";
    BLOCKED "blocked" WARN Always "the broker blocks the publisher (a memory or disk alarm): dead letters wait";
    UNBLOCKED INFO Always "the broker unblocked the publisher";
    CHANNEL_CLOSED "channel_closed" WARN Minutely "the broker closed a channel of a link";
    CONSUMING INFO Always "intake consumer";
    HANDED_OVER "handed_over" WARN Always "nothing can be published: the intake queue is left to other proxies";
    OWN_QUEUE_TROUBLE "own_queue_trouble" ERROR Always "a queue of the proxy's own does not do its work";
    OWN_QUEUE_WELL INFO Always "the queue does its work again";
    OWN_QUEUE_GONE "own_queue_deleted" WARN Always "somebody deleted a queue of the proxy's own, with all that was in it: it is made again";

    // === the broker
    NODE_SILENT WARN Minutely "a node of the broker does not answer";
    NODE_ANSWERS INFO Always "a node of the broker answers again";
    UPSTREAM_TLS_FAILED "upstream_tls_failed" WARN Minutely "no TLS with the broker";
    ALARM WARN Always "the broker has an alarm: it takes no messages until that is over, so dead letters and retries wait";
    ALARM_OVER INFO Always "the broker has no alarm any more";
    // The reading itself writes why.
    MANAGEMENT_FAILED "management_failed" DEBUG Always "the management API could not be read";
}
