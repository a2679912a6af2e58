//! What a queue's arguments say of dead letters ⇄ the end of the name of the intake exchange that says it to the broker.
//!
//! ```text
//! dlx-proxy/<exchange>          no routing key        dlx-proxy     only a policy of ours gives it a target
//! dlx-proxy/<exchange>/<key>    key set, maybe empty  dlx-proxy+…   the same of a quorum queue
//!                                                     dlx-proxy++…  the same with the strategy at-least-once
//! ```
//! A name stands for the *arguments* alone: what a policy adds is looked up when a message dies, so that a changed policy acts at once
//! and never makes the broker refuse a redeclare. For that it tells the type, on which it may depend which policies fit.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

use crate::amqp::ids::ShortStr;
use crate::dead_letter::Target;

use super::DeclaredTarget;

/// Written as `%XX`: the separator, the escape itself, and unreadable characters. Also the quote,
/// because the broker quotes names in its texts ([`crate::registry::refusal`]). `percent_encode`
/// escapes all bytes over 127 anyway.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%').add(b'\'');

pub(super) fn encode(said: &DeclaredTarget) -> Vec<u8> {
    let parts = match said {
        DeclaredTarget::Policy { .. } => [None, None],
        DeclaredTarget::Target(target) => [Some(&target.exchange), target.routing_key.as_ref()],
    };
    let mut end = Vec::new();
    for part in parts.into_iter().flatten() {
        end.push(b'/');
        for piece in percent_encode(part, ESCAPED) {
            end.extend_from_slice(piece.as_bytes());
        }
    }
    end
}

/// Reads the end of a name. Accepts more than [`encode`] writes: lower-case digits, needless
/// escapes, more parts.
pub(super) fn decode(end: &[u8], at_least_once: bool) -> Option<DeclaredTarget> {
    if end.is_empty() {
        return Some(DeclaredTarget::Policy { at_least_once });
    }
    let mut parts = end.strip_prefix(b"/")?.split(|byte| *byte == b'/');
    let mut part = || match parts.next() {
        None => Some(None),
        Some(part) => ShortStr::new(percent_decode(part).collect::<Vec<_>>()).map(Some),
    };
    Some(DeclaredTarget::Target(Target {
        exchange: part()??,
        routing_key: part()?,
        at_least_once,
    }))
}
