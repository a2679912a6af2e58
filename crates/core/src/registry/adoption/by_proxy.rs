//! Policies of ours at the broker for queues whose dead-letter exchange only a `[[policy]]` of the proxy names.
//!
//! Such a policy names the intake exchange that names no target, so the `[[policy]]` says it at each death. Its priority is lower than any usual one: it
//! hides no policy of the user, and copies nothing. A queue that has a policy of the user is better off with an exchange in that one.
//!
//! It depends on the `[[policy]]` alone, so proxies with the same file make the same of it. A proxy whose file changes changes it only if it is what
//! its file said before: what another file made is left as it is.

use crate::amqp::ids::Vhost;
use crate::objects::{DeclaredTarget, Names, OwnObject, QueueType};
use crate::registry::broker_policy::{Fit, fits};
use crate::registry::policy::{Policies, Policy, Queue};

use super::{Change, EXCHANGE, ListedPolicy, ListedQueue, Refusal, Wanted};

/// Behind the prefix: the name of one of these; the name of the `[[policy]]` follows.
pub(super) const START: &str = ".adopted-proxy-policy/";
const PRIORITY: f64 = -1000.0;

/// Those of the file, as it is and as it was when ours were last made to follow.
#[derive(Clone, Copy, Debug)]
pub struct OfFile<'a> {
    pub now: &'a Policies,
    pub before: &'a Policies,
}

/// One vhost, and the policies of the file.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    pub vhost: &'a Vhost,
    pub policies: &'a Policies,
}

/// # Errors
/// When it would not do what it is for.
fn made_from(policy: &Policy, names: &Names) -> Result<ListedPolicy, Refusal> {
    if policy.definition.dead_letter_exchange.is_none() {
        return Err(Refusal::NoExchange);
    }
    let name = policy.name.to_string();
    if !policy.pattern.is_the_same_in_pcre() {
        return Err(Refusal::Pattern(name));
    }
    let apply_to = policy.apply_to.as_str();
    let queue_type = match fits(apply_to, &[]) {
        (Fit::No, _) => QueueType::Quorum,
        (Fit::Perhaps | Fit::Yes, _) => QueueType::Default,
    };
    let said = DeclaredTarget::Policy {
        at_least_once: false,
    };
    let intake = names.name(&OwnObject::intake_exchange(&said, queue_type));
    let intake = intake.ok_or_else(|| Refusal::NameTooLong(name.clone()))?;
    Ok(ListedPolicy {
        vhost: policy.vhost.to_string(),
        name: format!("{}{START}{name}", names.prefix()),
        pattern: policy.pattern.written().to_owned(),
        apply_to: apply_to.to_owned(),
        priority: PRIORITY,
        definition: [(EXCHANGE.to_owned(), intake.to_string().into())].into(),
    })
}

/// What has to become of this one, made from the `[[policy]]` of that name.
pub(super) fn wanted(listed: &ListedPolicy, of: &str, names: &Names, file: OfFile<'_>) -> Wanted {
    let made = |policies: &Policies| match policies.named(listed.vhost.as_bytes(), of.as_bytes()) {
        Some(policy) => made_from(policy, names),
        None => Err(Refusal::NoExchange),
    };
    let was_ours = made(file.before).as_ref() == Ok(listed);
    match made(file.now) {
        Ok(now) if now == *listed || was_ours => Wanted::Keep {
            is_new: now != *listed,
            ours: now,
        },
        Ok(_) => Wanted::Stuck(listed.clone(), Refusal::Differs(of.to_owned())),
        Err(Refusal::NoExchange) if was_ours => Wanted::Delete(listed.clone()),
        // Another proxy may have it.
        Err(Refusal::NoExchange) => Wanted::Keep {
            is_new: false,
            ours: listed.clone(),
        },
        Err(refusal) => Wanted::Stuck(listed.clone(), refusal),
    }
}

/// The `[[policy]]` that names the exchange of a queue for which the broker knows none.
///
/// # Errors
/// Why it cannot be adopted.
pub(super) fn judged<'a>(queue: &ListedQueue, here: Here<'a>) -> Result<&'a Policy, Refusal> {
    let policy = here.policies.matching(named(queue, here.vhost));
    let policy = policy.filter(|policy| policy.definition.dead_letter_exchange.is_some());
    let policy = policy.ok_or(Refusal::NoExchange)?;
    match &queue.policy {
        Some(theirs) => Err(Refusal::Hidden {
            policy: policy.name.to_string(),
            by: theirs.clone(),
        }),
        None => Ok(policy),
    }
}

/// Ours, and the queues that get it.
pub(super) fn change(
    policy: &Policy,
    queues: &[ListedQueue],
    names: &Names,
    here: Here<'_>,
) -> Result<Change, Refusal> {
    let ours = made_from(policy, names)?;
    let gets_it = |queue: &&ListedQueue| {
        queue.policy.is_none()
            && queue.arguments["x-dead-letter-exchange"].is_null()
            && !names.is_ours(queue.name.as_bytes())
            && policy.fits(named(queue, here.vhost))
    };
    let mut reached = Vec::new();
    for queue in queues.iter().filter(gets_it) {
        // Its dead letters, which the broker discards, would be parked.
        if judged(queue, here).is_err() {
            return Err(Refusal::Other {
                policy: policy.name.to_string(),
                queue: queue.name.clone(),
            });
        }
        reached.push(queue.name.clone());
    }
    Ok(Change {
        source: shown(&policy.name.to_string()),
        ours,
        queues: reached,
    })
}

/// For people.
pub(super) fn shown(name: &str) -> String {
    format!("[[policy]] {name}")
}

fn named<'a>(queue: &'a ListedQueue, vhost: &'a Vhost) -> Queue<'a> {
    Queue {
        vhost,
        name: queue.name.as_bytes(),
        queue_type: match queue.queue_type.as_deref() {
            Some("classic") => QueueType::Classic,
            Some("quorum") => QueueType::Quorum,
            Some(_) => QueueType::Other,
            None => QueueType::Default,
        },
    }
}
