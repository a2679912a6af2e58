//! What the arguments of a `queue.declare` say of dead letters, what we want with the declare, and its rewritten forms.
//!
//! A rewritten table differs from the client's only in the two or three members that it is about: the others keep their bytes and their
//! order, as `queue.declare` is compared with the queue that exists (`rabbit_amqqueue:assert_args_equivalence`). Of several arguments
//! with one name the first counts (S7.1).
//!
//! A queue that says `at-least-once` and `reject-publish` has its dead letters confirmed by the broker, which keeps in the queue what nothing
//! routes. So by default it is left to the broker. Without `reject-publish` the broker does not act on the strategy; but its own policy may
//! set it, and to keep a dead letter too well does no harm: `x-overflow` only says who should do it.

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::dead_letter::Target;
use crate::machine::Fallback;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};

use super::policy::{Mode, Policy};
use super::redeclared::Existing;

pub(crate) const DEAD_LETTER_EXCHANGE: &[u8] = b"x-dead-letter-exchange";
pub(crate) const DEAD_LETTER_ROUTING_KEY: &[u8] = b"x-dead-letter-routing-key";
pub(super) const DEAD_LETTER_STRATEGY: &[u8] = b"x-dead-letter-strategy";
pub(super) const OVERFLOW: &[u8] = b"x-overflow";
pub(super) const QUEUE_TYPE: &[u8] = b"x-queue-type";
pub(super) const EXPIRES: &[u8] = b"x-expires";
/// In milliseconds (S1.2).
pub(super) const MESSAGE_TTL: &[u8] = b"x-message-ttl";
/// For streams only: see [`if_there`].
pub(super) const ONLY_IF_THERE: &[u8] = b"x-max-age";

/// Of a queue that was made anew ([`crate::alteration`]): names of arguments that it had otherwise, with commas between them. Which a declare
/// does not say is not compared.
pub const ALTERED: &[u8] = b"x-dlx-proxy-altered";

pub(super) const AT_MOST_ONCE: &[u8] = b"at-most-once";
pub(super) const AT_LEAST_ONCE: &[u8] = b"at-least-once";
const REJECT_PUBLISH: &[u8] = b"reject-publish";

#[derive(Clone, Copy, Debug)]
pub struct DeclareArguments<'a> {
    table: Table<'a>,
    /// False: the table is malformed.
    is_readable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Pass: no dead-letter exchange by arguments or own policies.
    Nothing,
    /// Pass despite dead-letter arguments: the broker refuses it in its own words, or handles it
    /// better.
    Leave(Fallback),
    /// Pass; once accepted the queue is managed with this target.
    Keep(DeclaredTarget),
    /// Ask the broker about the queue first: purpose, declared target as far as known, and its
    /// intake exchange.
    Probe(Aim, DeclaredTarget, ShortStr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To give the queue an intake exchange.
    Full,
    /// To go on unchanged, or with the queue's dead-letter arguments if only those differ.
    Lenient,
    /// To leave the queue to the broker, unless it was taken over: then it is declared with its
    /// intake exchange.
    Off,
    /// For unknown arguments. An own queue must be compared with its intake exchange: otherwise the
    /// refusal names the exchange instead of the unknown argument.
    Compare,
}

// === impl DeclareArguments ===

impl<'a> DeclareArguments<'a> {
    /// `arguments`: a table without its length.
    pub fn read(arguments: &'a [u8]) -> Self {
        let table = Table(arguments);
        DeclareArguments {
            table,
            is_readable: table.fields().all(|field| field.is_ok()),
        }
    }

    pub fn queue_type(&self) -> QueueType {
        match self.value(QUEUE_TYPE) {
            _ if !self.is_readable => QueueType::Other,
            None => QueueType::Default,
            Some(value) => match value.as_longstr() {
                Some(b"classic") => QueueType::Classic,
                Some(b"quorum") => QueueType::Quorum,
                Some(_) | None => QueueType::Other,
            },
        }
    }

    /// From the arguments alone. `None`: only the broker knows.
    pub fn said(&self) -> Option<DeclaredTarget> {
        let at_least_once = match self.value(DEAD_LETTER_STRATEGY).map(Value::as_longstr) {
            None | Some(Some(AT_MOST_ONCE)) => false,
            Some(Some(AT_LEAST_ONCE)) => true,
            Some(_) => return None,
        };
        match (
            self.value(DEAD_LETTER_EXCHANGE),
            self.value(DEAD_LETTER_ROUTING_KEY),
        ) {
            _ if !self.is_readable => None,
            (None, None) => Some(DeclaredTarget::Policy { at_least_once }),
            (None, Some(_)) => None, // S7.2, whatever a policy adds
            (Some(_), _) if self.queue_type() == QueueType::Other => None, // S7.4
            (Some(_), _) => self.target(at_least_once, Value::as_longstr),
        }
    }

    /// Exchange and key of a declare with an unknown type or strategy. The broker compares these
    /// before type and strategy, and treats a byte array as a longstr.
    fn said_in_part(&self) -> Option<DeclaredTarget> {
        self.target(false, Value::as_text)
    }

    pub(super) fn says(&self) -> Option<DeclaredTarget> {
        self.said().or_else(|| self.said_in_part())
    }

    /// Names over 255 bytes do not exist (S7.1).
    fn target(
        &self,
        at_least_once: bool,
        text: fn(Value<'a>) -> Option<&'a [u8]>,
    ) -> Option<DeclaredTarget> {
        let name = |value| ShortStr::copy(text(value)?);
        Some(DeclaredTarget::Target(Target {
            exchange: name(
                self.value(DEAD_LETTER_EXCHANGE)
                    .filter(|_| self.is_readable)?,
            )?,
            routing_key: match self.value(DEAD_LETTER_ROUTING_KEY) {
                Some(value) => Some(name(value)?),
                None => None,
            },
            at_least_once,
        }))
    }

    /// `policy`: the queue's; `global`: the mode without one.
    pub fn wanted(&self, policy: Option<&Policy>, global: Mode, names: &Names) -> Wanted {
        let Some(said) = self.said() else {
            let mode = policy.and_then(|policy| policy.mode).unwrap_or(global);
            return match self.said_in_part().filter(|_| mode != Mode::RejectsOnly) {
                Some(said) => match self.name_of_intake(&said, names) {
                    Some(intake) => Wanted::Probe(Aim::Compare, said, intake),
                    None => Wanted::Leave(Fallback::NotSupported),
                },
                None => Wanted::Leave(Fallback::NotSupported),
            };
        };
        let mode = self.mode(&said, policy, global);
        // What only a policy of ours says, the broker does not know.
        let known = policy.filter(|_| mode != Mode::Off);
        if said.target(known).is_none() {
            return Wanted::Nothing;
        }
        match (mode, self.name_of_intake(&said, names)) {
            (Mode::RejectsOnly, _) => Wanted::Keep(said),
            (Mode::Full, Some(intake)) => Wanted::Probe(Aim::Full, said, intake),
            (Mode::Full, None) => Wanted::Leave(Fallback::NameTooLong),
            (Mode::Off, Some(intake)) => Wanted::Probe(Aim::Off, said, intake),
            (Mode::Off, None) => Wanted::Nothing,
        }
    }

    /// A policy's mode comes first, then arguments that ask for the broker's own confirms, unless a
    /// policy of ours adds to their target.
    pub fn mode(&self, said: &DeclaredTarget, policy: Option<&Policy>, global: Mode) -> Mode {
        let by_policy = policy.and_then(|policy| policy.mode);
        let native = self.is_confirmed_natively() && said.target(policy) == said.target(None);
        by_policy.unwrap_or(if native { Mode::Off } else { global })
    }

    /// Whether the broker itself publishes its dead letters with confirms
    /// (`rabbit_quorum_queue:dlh`).
    fn is_confirmed_natively(&self) -> bool {
        let says = |name, text| self.value(name).and_then(Value::as_longstr) == Some(text);
        self.queue_type() == QueueType::Quorum
            && says(DEAD_LETTER_STRATEGY, AT_LEAST_ONCE)
            && says(OVERFLOW, REJECT_PUBLISH)
    }

    /// The exchange that requires write permission. `None` if only a policy names it: then the
    /// broker does not check, so a permission probe shows nothing and must not be remembered.
    pub fn exchange(&self) -> Option<ShortStr> {
        ShortStr::copy(self.value(DEAD_LETTER_EXCHANGE)?.as_longstr()?)
    }

    pub(super) fn value(&self, name: &[u8]) -> Option<Value<'a>> {
        self.table.get(name).ok()?
    }

    /// The intake exchange for these arguments.
    pub fn intake(&self, names: &Names) -> Option<ShortStr> {
        self.name_of_intake(&self.says()?, names)
    }

    fn name_of_intake(&self, said: &DeclaredTarget, names: &Names) -> Option<ShortStr> {
        names.name(&OwnObject::intake_exchange(said, self.queue_type()))
    }

    /// With an intake exchange instead of exchange and routing key.
    ///
    /// Sets no key: it would replace the message's key, and `x-death` keeps only those of the first
    /// death.
    pub fn rewritten(&self, intake: &ShortStr) -> Vec<u8> {
        self.with(&Existing::taken_over(intake))
    }

    /// With these dead-letter arguments.
    pub fn with(&self, existing: &Existing) -> Vec<u8> {
        let exchange = replaced(self.table, DEAD_LETTER_EXCHANGE, &existing.exchange);
        replaced(
            Table(&exchange),
            DEAD_LETTER_ROUTING_KEY,
            &existing.routing_key,
        )
    }

    /// In a form that is always refused, but after the check of write permission (S7.6).
    pub fn permission_probe(&self) -> Vec<u8> {
        never_accepted(self.table)
    }

    /// [`DeclareArguments::rewritten`] in a form that makes no queue.
    pub fn rewritten_if_there(&self, intake: &ShortStr) -> Vec<u8> {
        if_there(&self.rewritten(intake))
    }

    /// Whether they already have the argument of [`if_there`].
    pub fn is_conditional(&self) -> bool {
        self.value(ONLY_IF_THERE).is_some()
    }
}

/// Arguments that are compared normally, but make no queue: after the permission check, the broker
/// refuses an argument that no queue with a dead-letter exchange can have. Existing queues compare
/// only arguments of their type (S7.3; measured on 3.10, 4.0 and 4.3). Streams also refuse the
/// value, in case they are the vhost's default.
pub fn if_there(arguments: &[u8]) -> Vec<u8> {
    with_first(Table(arguments), ONLY_IF_THERE, |table| {
        table.longstr(ONLY_IF_THERE, b"never");
    })
}

fn never_accepted(table: Table<'_>) -> Vec<u8> {
    with_first(table, EXPIRES, |table| {
        table.long(EXPIRES, -1);
    })
}

/// Replaces or removes a member.
///
/// A malformed table stays as it is: a cut one could mean something else.
fn replaced(table: Table<'_>, name: &[u8], value: &Option<ShortStr>) -> Vec<u8> {
    if let Some(value) = value {
        return with_first(table, name, |table| {
            table.longstr(name, value);
        });
    }
    let without = table.without(|other| other == name);
    without.unwrap_or_else(|| table.0.to_vec())
}

/// Replaces the first member of that name, or appends it.
///
/// A malformed table stays as it is: a cut one could mean something else.
fn with_first(table: Table<'_>, name: &[u8], put: impl FnOnce(&mut TableBuilder)) -> Vec<u8> {
    if table.check().is_err() {
        return table.0.to_vec();
    }
    let mut out = TableBuilder::with_capacity(table.0.len() + 64);
    let mut put = Some(put);
    for field in table.fields().map_while(Result::ok) {
        match put.take_if(|_| field.name == name) {
            Some(put) => put(&mut out),
            None => {
                out.raw(&field);
            }
        }
    }
    if let Some(put) = put {
        put(&mut out);
    }
    out.finish()
}
