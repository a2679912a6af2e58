//! Understands why the broker refused a probe, and says to the client what the broker would have said to its own words.
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
use crate::amqp::version::Version;

use super::arguments::{DEAD_LETTER_EXCHANGE, DEAD_LETTER_ROUTING_KEY, DeclareArguments};
use super::intake_name::{Intake, Names};

const ACCESS_REFUSED: u16 = 403;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

const INEQUIVALENT: &[u8] = b"PRECONDITION_FAILED - inequivalent arg '";
const INVALID: &[u8] = b"PRECONDITION_FAILED - invalid arg '";
const BUT_CURRENT_IS: &[u8] = b" but current is ";

/// Octets of a reply text.
const LONGEST: usize = 255;

/// What a permission probe learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The user may write to the exchange: it was asked, and then `x-expires` refused.
    Granted,
    /// The user may not do something that this declare needs.
    Refused,
    /// Nothing: something else was refused first. The queue exists, for one.
    Unknown,
}

/// What to do with a declare whose rewritten form was refused on the probe's channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Forward the rewritten form: what the broker finds fault with is in both, and only this form has it said.
    Rewritten,
    /// Forward the rewritten form, but with this intake exchange, which is the queue's: only the strategy or the type differs, and whether
    /// that matters is for the broker to say.
    RewrittenAs(ShortStr),
    /// Forward the rewritten form, and give the client this text for the broker's: it is what the client's own words would have got.
    Answer(Vec<u8>),
    /// Forward the original: it fits, or the broker says why not.
    Original,
}

/// How this broker writes a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// 3.10 and 3.11: octets as they are.
    Octets,
    /// 3.12 to 4.0.4 (read in the source): characters, each sent as one octet. A character over U+00FF crashes the channel.
    Latin1,
    /// From 4.0.5 on: cut at 255 *characters*. If those are over 255 octets the channel crashes (measured on 4.3.6).
    Characters,
}

/// What a user may not do with an exchange or queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Declare, delete.
    Configure,
    /// Publish to it; bind a queue, or an exchange as destination; use it as alternate or dead-letter exchange.
    Write,
    /// Consume, get, purge; bind to an exchange as source.
    Read,
}

/// What the refusal of a permission probe tells.
pub fn permission(code: u16, text: &[u8]) -> Permission {
    match code {
        ACCESS_REFUSED => Permission::Refused,
        PRECONDITION_FAILED if named(text, INVALID) == Some(b"x-expires") => Permission::Granted,
        _ => Permission::Unknown,
    }
}

/// What the refusal of the rewritten form tells.
///
/// When the text was cut so early that the current exchange is not whole, the answer is `Original`: that is refused too, and shows the
/// beginning of an intake name.
pub fn fit(code: u16, text: &[u8], arguments: &DeclareArguments<'_>, names: &Names) -> Fit {
    if code != PRECONDITION_FAILED {
        return Fit::Original;
    }
    match (named(text, INEQUIVALENT), named(text, INVALID)) {
        (Some(DEAD_LETTER_EXCHANGE), _) => {
            inequivalent_exchange(text, arguments, names).unwrap_or(Fit::Original)
        }
        // Both are in the client's words, not in ours: the default type of the vhost is a stream, or somebody named an intake exchange
        // and a key without the proxy.
        (_, Some(DEAD_LETTER_EXCHANGE))
        | (Some(DEAD_LETTER_ROUTING_KEY), _)
        | (_, Some(DEAD_LETTER_ROUTING_KEY)) => Fit::Original,
        (Some(_), _) | (_, Some(_)) => Fit::Rewritten,
        (None, None) => Fit::Original,
    }
}

/// Whether this queue has an intake exchange, as far as the refusal of a declare shows that.
pub fn taken_over(code: u16, text: &[u8], queue: &[u8], names: &Names) -> Option<bool> {
    let about = [
        INEQUIVALENT,
        DEAD_LETTER_EXCHANGE,
        b"' for queue '",
        queue,
        b"' in vhost '",
    ]
    .concat();
    if code != PRECONDITION_FAILED || !text.starts_with(&about) {
        return None;
    }
    let at = memmem::rfind(text, BUT_CURRENT_IS)? + BUT_CURRENT_IS.len();
    let current = text.get(at..)?;
    if current == b"none" {
        return Some(false);
    }
    let exchange = current
        .strip_prefix(b"the value ")
        .and_then(|current| current.strip_suffix(b" of type 'longstr'"))
        .unwrap_or(current);
    let exchange = exchange.strip_prefix(b"'")?.strip_suffix(b"'")?;
    Some(names.decode(exchange).is_some())
}

/// Whether a connection was closed because its user, or its node, has as many channels as it may have.
///
/// `NOT_ALLOWED - number of channels opened for user 'u' has reached the maximum allowed user limit of (5)`; 4.0 names the node in place
/// of the user. (The limit of one connection, `channel_max`, is told in other words.)
pub fn is_channel_limit(code: u16, text: &[u8]) -> bool {
    let begins = |words: &str| text.starts_with(words.as_bytes());
    code == NOT_ALLOWED
        && (begins("NOT_ALLOWED - number of channels opened for user ")
            || begins("NOT_ALLOWED - number of channels opened on node "))
}

/// `None`: the queue's exchange is not one of ours, or not to be seen.
fn inequivalent_exchange(
    text: &[u8],
    arguments: &DeclareArguments<'_>,
    names: &Names,
) -> Option<Fit> {
    let said = arguments.said();
    // In place of the client's exchange, if these arguments have an intake exchange at all.
    let sent = match &said {
        Some(said) => Some(names.encode(said, arguments.queue_type())?),
        None => arguments.exchange(),
    };
    let (received, begin, end) = match &sent {
        Some(sent) => ([b"'", sent.as_bytes(), b"'"].concat(), "'", "'"),
        None => (typed(None), "the value '", "' of type 'longstr'"),
    };
    let middle = [b": received ", &received[..], BUT_CURRENT_IS].concat();
    // The last one: the queue, which is named before, may have any name.
    let at = memmem::rfind(text, &middle)?;
    let current = text
        .get(at + middle.len()..)?
        .strip_prefix(begin.as_bytes())?
        .strip_suffix(end.as_bytes())?;
    let (intake, _) = names.decode(current)?;
    let (exchange, routing_key) = match &intake {
        Intake::Target(target) => (Some(&target.exchange), target.routing_key.as_ref()),
        Intake::Policy { .. } => (None, None),
    };
    let about = text
        .get(INEQUIVALENT.len() + DEAD_LETTER_EXCHANGE.len()..at)?
        .to_vec();
    for (argument, current) in [
        (DEAD_LETTER_EXCHANGE, exchange),
        (DEAD_LETTER_ROUTING_KEY, routing_key),
    ] {
        let current = current.map(|name| name.as_bytes());
        let number;
        let received = match arguments.integer(argument) {
            None => arguments.longstr(argument),
            // Beside `none` its type would have to be named.
            Some(_) if current.is_none() => return None,
            Some(value) => {
                number = value.to_string();
                Some(number.as_bytes())
            }
        };
        if received != current {
            let text = [
                INEQUIVALENT,
                argument,
                &about,
                b": received ",
                &values(received, current),
            ]
            .concat();
            return Some(Fit::Answer(cut(text)));
        }
    }
    // What is left to differ are the type and the strategy.
    (Some(current) != sent.as_deref()).then(|| Fit::RewrittenAs(current_name(current)))
}

fn current_name(name: &[u8]) -> ShortStr {
    ShortStr::copy(name).unwrap_or_default() // it decoded: it is not longer
}

/// As `rabbit_misc:val` writes longstrs: with their type only beside `none`.
fn values(received: Option<&[u8]>, current: Option<&[u8]>) -> Vec<u8> {
    let received = received.map(shown);
    let current = current.map(shown);
    match (&received, &current) {
        (Some(received), Some(current)) => [
            b"'",
            &received[..],
            b"'",
            BUT_CURRENT_IS,
            b"'",
            current,
            b"'",
        ]
        .concat(),
        (received, current) => [
            typed(received.as_deref()),
            BUT_CURRENT_IS.to_vec(),
            typed(current.as_deref()),
        ]
        .concat(),
    }
}

fn typed(value: Option<&[u8]>) -> Vec<u8> {
    match value {
        Some(value) => [b"the value '", value, b"' of type 'longstr'"].concat(),
        None => b"none".to_vec(),
    }
}

/// A value in a text. What is not UTF-8 is written as if it were Latin-1, as 4.x does; 3.10 would send the octets.
fn shown(value: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(value) {
        Ok(_) => value.to_vec(),
        Err(_) => value
            .iter()
            .map(|octet| char::from(*octet))
            .collect::<String>()
            .into_bytes(),
    }
}

/// As `rabbit_binary_generator:amqp_exception_explanation` cuts: over 255 octets, the first 252 and `...`. (4.x counts characters; a text
/// in which that makes a difference crashes its channel, and is the better answer.)
fn cut(mut text: Vec<u8>) -> Vec<u8> {
    if text.len() > LONGEST {
        text.truncate(LONGEST - 3);
        text.extend_from_slice(b"...");
    }
    text
}

/// The argument that is named first in a text which begins like that.
fn named<'t>(text: &'t [u8], begin: &[u8]) -> Option<&'t [u8]> {
    let rest = text.strip_prefix(begin)?;
    rest.get(..memchr::memchr(b'\'', rest)?)
}

/// Puts the client's exchanges in place of the names of intake exchanges, in the text of any refused declare. `None`: there are none.
///
/// A name that was cut stays. So does the text when client's and current exchange would become the same word: the declare was left alone
/// for some reason, and an operator must be able to see why it does not fit.
pub fn decode_names_in(text: &[u8], names: &Names) -> Option<Vec<u8>> {
    let quoted = [b"'", names.prefix()].concat();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = memmem::find(rest, &quoted) {
        let (before, name) = rest.split_at_checked(at + 1)?;
        out.extend_from_slice(before);
        // No name of ours has a quote in it.
        let end = memchr::memchr(b'\'', name).unwrap_or(name.len());
        let (name, behind) = name.split_at_checked(end)?;
        match names.decode(name) {
            Some((Intake::Target(target), _)) if !behind.is_empty() => {
                out.extend_from_slice(&shown(&target.exchange));
                changed = true;
            }
            Some(_) | None => out.extend_from_slice(name),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    (changed && !says_nothing(&out)).then_some(out)
}

/// `… received 'a' but current is 'a'`
fn says_nothing(text: &[u8]) -> bool {
    memmem::rfind(text, BUT_CURRENT_IS)
        .and_then(|at| text.split_at_checked(at))
        .is_some_and(|(before, rest)| {
            let current = rest.get(BUT_CURRENT_IS.len()..).unwrap_or_default();
            before.ends_with(&[b": received ", current].concat())
        })
}

// === impl Wording ===

impl Wording {
    /// That of a broker which calls itself this version, `4.3.6`.
    pub fn of_version(version: &[u8]) -> Wording {
        match Version::parse(version) {
            None | Some(Version(..=2, ..) | Version(3, ..=11, _)) => Wording::Octets,
            Some(Version(3, ..) | Version(4, 0, ..=4)) => Wording::Latin1,
            Some(Version(4.., ..)) => Wording::Characters,
        }
    }

    /// Whether the broker can refuse a probe of this queue. If it cannot, the refusal crashes the channel and the client's connection
    /// is closed with 541; a declare that fits would not have been refused without us, so it must not be probed.
    pub fn can_refuse(self, queue: &[u8], vhost: &[u8], exchange: &[u8], intake: &[u8]) -> bool {
        let written = [queue, vhost, exchange].map(shown);
        let mut octets = written.iter().flatten();
        match self {
            Wording::Octets => true,
            // U+00FF is C3 BF.
            Wording::Latin1 => octets.all(|octet| *octet < 0xc4),
            Wording::Characters if octets.all(u8::is_ascii) => true,
            Wording::Characters => {
                let [queue, vhost, exchange] = written.map(|name| name.len());
                let expires = INEQUIVALENT.len()
                    + "x-expires' for queue '' in vhost '': received the value '-1' of type 'long' but current is none"
                        .len();
                let rewritten = INEQUIVALENT.len()
                    + "x-dead-letter-exchange' for queue '' in vhost '': received '' but current is ''".len()
                    + intake.len()
                    + exchange;
                expires.max(rewritten) + queue + vhost <= LONGEST
            }
        }
    }

    /// The broker's 403 for a user who may not do that.
    pub fn access_refused(
        self,
        access: Access,
        kind: &str,
        name: &[u8],
        vhost: &[u8],
        user: &[u8],
    ) -> Vec<u8> {
        let access: &[u8] = match (self, access) {
            (Wording::Octets, _) => b"",
            (_, Access::Configure) => b"configure ",
            (_, Access::Write) => b"write ",
            (_, Access::Read) => b"read ",
        };
        let text = [
            b"ACCESS_REFUSED - ",
            access,
            b"access to ",
            kind.as_bytes(),
            b" '",
            &shown(name),
            b"' in vhost '",
            &shown(vhost),
            b"' refused for user '",
            &shown(user),
            b"'",
        ];
        cut(text.concat())
    }
}
