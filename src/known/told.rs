//! A dead letter that came to its end, as the API and the hook tell of it: metadata only. A name that is no printable text is escaped.

use serde::Serialize;
use utoipa::ToSchema;

use crate::letter::rfc_3339_millis;
use crate::machine::{Cause, DeadLetter, Outcome, Rejecter, Wall};

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Told {
    /// When its publication came to its end.
    time: String,
    queue: String,
    reason: &'static str,
    /// Where it went, or should have gone.
    exchange: String,
    routing_key: String,
    /// How many bytes its body has.
    bytes: usize,
    outcome: &'static str,
    /// Of an outcome that is not `confirmed`.
    cause: Option<&'static str>,
    rejected_by: Option<RejectedBy>,
}

/// Who rejected its message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
struct RejectedBy {
    consumer: Option<String>,
    connection: Option<String>,
    user: Option<String>,
    host: String,
    held_ms: u64,
}

// === impl Told ===

impl Told {
    pub(crate) fn of(at: Wall, dead: &DeadLetter) -> Told {
        let DeadLetter {
            queue,
            reason,
            exchange,
            routing_key,
            bytes,
            outcome,
            by,
        } = dead;
        let (outcome, cause) = match outcome {
            Outcome::Confirmed => ("confirmed", None),
            Outcome::Parked(cause) => ("parked", Some(cause)),
            Outcome::Dropped(cause) => ("dropped", Some(cause)),
            Outcome::Refused(cause) => ("refused", Some(cause)),
        };
        Told {
            time: rfc_3339_millis(at),
            queue: queue.to_string(),
            reason: reason.as_str(),
            exchange: exchange.to_string(),
            routing_key: routing_key.to_string(),
            bytes: *bytes,
            outcome,
            cause: cause.copied().map(Cause::as_str),
            rejected_by: by.as_deref().map(RejectedBy::of),
        }
    }
}

// === impl RejectedBy ===

impl RejectedBy {
    fn of(by: &Rejecter) -> RejectedBy {
        let connection = &by.connection;
        RejectedBy {
            consumer: by.consumer.as_ref().map(ToString::to_string),
            connection: connection.name.as_ref().map(ToString::to_string),
            user: connection.user.as_ref().map(ToString::to_string),
            host: connection.host.to_string(),
            held_ms: u64::try_from(by.held.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
