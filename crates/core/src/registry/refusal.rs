//! Understands why the broker refused a probe, and takes the proxy's names out of what the client reads.
//!
//! ```text
//! PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received 'b' but current is 'a'
//!                                                              … received none but current is the value 'a' of type 'longstr'
//!                                                              … received the value 'b' of type 'longstr' but current is none
//! PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_negative,-1}
//! ```
//! The broker names the first argument that differs (`rabbit_misc:assert_args_equivalence`). The order is that of the queue type's
//! `queue_arguments`: exchange, routing key, strategy stand side by side in both types, so what another argument's refusal hides or
//! shows is the same for the client's form and for the rewritten one. (A classic queue compares `x-expires` and `x-message-ttl` before
//! them, a quorum queue all others behind, and a classic queue does not compare the strategy.)

use memchr::memmem;

use crate::amqp::ids::ShortStr;
use crate::amqp::reply_code::{
    ACCESS_REFUSED, NOT_ALLOWED, NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED,
};
use crate::amqp::table::Table;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::arguments::{
    DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments, EXPIRES, ONLY_IF_THERE,
};
use super::redeclared::Existing;
use super::wording::cut;

mod difference;

pub use difference::{Difference, difference};

pub(super) const INEQUIVALENT: &[u8] = b"PRECONDITION_FAILED - inequivalent arg '";
const INVALID: &[u8] = b"PRECONDITION_FAILED - invalid arg '";
const OF_QUEUE_TYPE: &[u8] = b" of queue type ";
const BUT_CURRENT_IS: &[u8] = b" but current is ";

/// Facts from the answer to a declare. Unknown is [`There::Else`], never "no such queue".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// Accepted: the queue exists like this.
    Fits,
    /// Missing; refused only for the argument that prevents its creation
    /// ([`super::arguments::if_there`]). The user may write to the form's exchange.
    Absent,
    /// Refused as intended: the user may write to the exchange; the queue was missing at that time.
    Granted,
    /// Missing; another argument is refused.
    Invalid,
    /// Missing; a dead-letter argument of the client is refused: the vhost's default type is a
    /// stream, or the client named an intake exchange and a key.
    InvalidTarget,
    /// Has this intake exchange: only strategy or type differ, which the broker must judge.
    Ours(ShortStr),
    /// Has an intake exchange for another target.
    OursOtherwise,
    /// Has another dead-letter exchange, not ours or invisible: the text is cut before the end of
    /// its name.
    OtherExchange,
    /// Exists, and differs in other arguments.
    Otherwise,
    /// A permission is missing, perhaps that for the intake exchange.
    Forbidden { intake: bool },
    /// A binding from the default exchange was refused (S7.13): the user may write to the other
    /// exchange.
    MayWrite,
    /// Its node is down, or its process does not answer.
    Unanswered,
    /// Refused for another reason.
    Else,
}

/// `arguments`: of the client's declare, of which a form was refused.
pub fn there(code: u16, text: &[u8], arguments: &DeclareArguments<'_>, names: &Names) -> There {
    let says = |words: &[u8]| memmem::find(text, words).is_some();
    match (code, named(text, INEQUIVALENT), named(text, INVALID)) {
        (ACCESS_REFUSED, ..) if says(b"operation not permitted on the default exchange") => {
            There::MayWrite
        }
        (ACCESS_REFUSED, ..) => There::Forbidden {
            intake: arguments.intake(names).is_some_and(|intake| says(&intake)),
        },
        (PRECONDITION_FAILED, Some(DEAD_LETTER_EXCHANGE), _) => {
            other_exchange(text, arguments, names).unwrap_or(There::OtherExchange)
        }
        // It has the same exchange, which is not ours then; or is a stream, and has none.
        (PRECONDITION_FAILED, Some(DEAD_LETTER_ROUTING_KEY | ONLY_IF_THERE), _) => There::Else,
        (PRECONDITION_FAILED, Some(_), _) => There::Otherwise,
        (PRECONDITION_FAILED, _, Some(ONLY_IF_THERE)) => There::Absent,
        (PRECONDITION_FAILED, _, Some(EXPIRES)) => There::Granted,
        (PRECONDITION_FAILED, _, Some(DEAD_LETTER_EXCHANGE | DEAD_LETTER_ROUTING_KEY)) => {
            There::InvalidTarget
        }
        (PRECONDITION_FAILED, _, Some(_)) => There::Invalid,
        (NOT_FOUND, ..) if !is_of_a_missing_queue(code, text) => There::Unanswered,
        _ => There::Else,
    }
}

/// Whether an argument of a new queue was refused: there is none.
pub fn is_of_a_new_queue(code: u16, text: &[u8]) -> bool {
    code == PRECONDITION_FAILED && named(text, INVALID).is_some()
}

/// Whether the refusal of a known form shows that the queue is gone or replaced. Others only
/// prevent the question, such as a missing permission.
pub fn ends_knowledge(code: u16, text: &[u8]) -> bool {
    match code {
        NOT_FOUND => is_of_a_missing_queue(code, text),
        RESOURCE_LOCKED => true,
        PRECONDITION_FAILED => named(text, INEQUIVALENT).or(named(text, INVALID)).is_some(),
        _ => false,
    }
}

/// There is no such queue. A queue whose node is down or slow gets a 404, too, with other words.
pub fn is_of_a_missing_queue(code: u16, text: &[u8]) -> bool {
    code == NOT_FOUND && text.starts_with(b"NOT_FOUND - no queue '")
}

/// The type of the missing queue, from the refusal of an argument.
pub fn refused_type(code: u16, text: &[u8]) -> Option<QueueType> {
    named(text, INVALID).filter(|_| code == PRECONDITION_FAILED)?;
    let at = memmem::rfind(text, OF_QUEUE_TYPE)? + OF_QUEUE_TYPE.len();
    Some(match text.get(at..)? {
        b"rabbit_classic_queue" => QueueType::Classic,
        b"rabbit_quorum_queue" => QueueType::Quorum,
        _ => QueueType::Other,
    })
}

/// The queue's intake exchange, as far as a refused declare shows it. `Some(None)`: none.
pub fn seen_with(code: u16, text: &[u8], queue: &[u8], names: &Names) -> Option<Option<ShortStr>> {
    let (argument, exchange) = current(code, text, queue)?;
    let is_it = argument == DEAD_LETTER_EXCHANGE;
    is_it.then(|| exchange.filter(|exchange| names.is_intake_exchange(exchange)))
}

/// The queue's dead-letter arguments: `believed`, corrected by the refusal of a declare with these.
/// `None`: another difference, or an invisible value.
pub fn corrected(code: u16, text: &[u8], queue: &[u8], believed: &Existing) -> Option<Existing> {
    let (argument, value) = current(code, text, queue)?;
    let mut existing = believed.clone();
    match &*argument {
        DEAD_LETTER_EXCHANGE => existing.exchange = value,
        DEAD_LETTER_ROUTING_KEY => existing.routing_key = value,
        _ => return None,
    }
    Some(existing)
}

/// The argument that differs, and the queue's text; `None`: it has none.
fn current(code: u16, text: &[u8], queue: &[u8]) -> Option<(Vec<u8>, Option<ShortStr>)> {
    let Difference::Argument(name, member) = difference(code, text, queue)? else {
        return None;
    };
    let value = match member {
        Some(member) => {
            let value = Table(&member).get(&name).ok()??;
            Some(ShortStr::copy(value.as_longstr()?)?)
        }
        None => None,
    };
    Some((name, value))
}

/// Whether a connection was closed because its user or node has reached the channel limit.
///
/// `NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit
/// of (5)`; 4.0 names the node instead of the user. (`channel_max` has another text.)
pub fn is_channel_limit(code: u16, text: &[u8]) -> bool {
    let begins = |words: &str| text.starts_with(words.as_bytes());
    code == NOT_ALLOWED
        && (begins("NOT_ALLOWED - number of channels opened for user ")
            || begins("NOT_ALLOWED - number of channels opened on node "))
}

/// `None`: not an exchange of ours, or invisible.
fn other_exchange(text: &[u8], arguments: &DeclareArguments<'_>, names: &Names) -> Option<There> {
    // The last one: the queue, which is named before, may have any name.
    let at = memmem::rfind(text, BUT_CURRENT_IS)? + BUT_CURRENT_IS.len();
    let current = text.get(at..)?;
    let current = current.strip_prefix(b"the value ").unwrap_or(current);
    // The text may be cut behind the name.
    let current = current.strip_prefix(b"'")?;
    let current = current.get(..memchr::memchr(b'\'', current)?)?;
    let OwnObject::IntakeExchange(intake, _) = names.parse(current)? else {
        return None;
    };
    let differs = |said: DeclaredTarget| !said.is_but_for_the_strategy(&intake);
    if arguments.says().is_none_or(differs) {
        return Some(There::OursOtherwise);
    }
    // What is left to differ are the type and the strategy.
    let sent = arguments.intake(names);
    let current = ShortStr::copy(current).filter(|current| sent.as_ref() != Some(current))?;
    Some(There::Ours(current))
}

/// The first argument in a text that begins like this.
fn named<'t>(text: &'t [u8], begin: &[u8]) -> Option<&'t [u8]> {
    let rest = text.strip_prefix(begin)?;
    rest.get(..memchr::memchr(b'\'', rest)?)
}

/// Replaces names of intake exchanges by the client's exchanges and keys, in any refused declare.
/// `None`: there are none.
pub fn decode_names_in(text: &[u8], names: &Names) -> Option<Vec<u8>> {
    let quoted = [b"'", &**names.prefix()].concat();
    let whole = without_cut_name(text, names);
    let mut out = Vec::with_capacity(text.len());
    let (mut rest, mut found) = (whole, 0);
    while let Some(at) = memmem::find(rest, &quoted) {
        let (before, name) = rest.split_at_checked(at + 1)?;
        out.extend_from_slice(before);
        // No name of ours has a quote in it.
        let end = memchr::memchr(b'\'', name).unwrap_or(name.len());
        let (name, behind) = name.split_at_checked(end)?;
        rest = behind;
        let Some(OwnObject::IntakeExchange(said, _)) = names.parse(name) else {
            out.extend_from_slice(name);
            continue;
        };
        match said {
            DeclaredTarget::Policy { .. } => out.extend_from_slice(b"none"),
            DeclaredTarget::Target(target) => {
                out.extend_from_slice(&target.exchange);
                if let Some(key) = &target.routing_key {
                    out.extend_from_slice(&[b"' with the key '", &**key].concat());
                }
            }
        }
        found += 1;
    }
    out.extend_from_slice(rest);
    if found == 0 && whole == text {
        return None;
    }
    if whole != text {
        out.extend_from_slice(b"...");
    } else if found == 1 && says_nothing(&out) {
        // The other exchange is as the client wrote it.
        out.extend_from_slice(b", taken over by the proxy");
    }
    Some(cut(out))
}

/// `… received 'a' but current is 'a'`
fn says_nothing(text: &[u8]) -> bool {
    let at = memmem::rfind(text, BUT_CURRENT_IS);
    let parts = at.and_then(|at| text.split_at_checked(at));
    parts.is_some_and(|(before, rest)| {
        let current = rest.strip_prefix(BUT_CURRENT_IS).unwrap_or_default();
        before.ends_with(&[b": received ", current].concat())
    })
}

/// Without the beginning of an own name that the broker has cut.
fn without_cut_name<'t>(text: &'t [u8], names: &Names) -> &'t [u8] {
    let prefix = names.prefix().as_bytes();
    let cut_name = || {
        let whole = text.strip_suffix(b"...")?;
        let (before, name) = whole.split_at_checked(memchr::memrchr(b'\'', whole)? + 1)?;
        let ours = name.starts_with(prefix) || !name.is_empty() && prefix.starts_with(name);
        ours.then_some(before)
    };
    cut_name().unwrap_or(text)
}
