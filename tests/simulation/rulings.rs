//! What the policies of the proxy say of the queues of a world, and where dead letters go by it. Counted by a stranger, as the accounts are.

use std::collections::BTreeMap;
use std::fmt;

use dlx_proxy::objects::{DeclaredTarget, OwnObject};
use fastrand::Rng;

use super::codec::value::Bytes;
use super::plan::{MISSING, Plan};
use super::proxy::names;
use super::retries::Words;

/// By queue: what its policy says. A queue that is not among them has none.
pub(crate) type Rulings = BTreeMap<String, Ruling>;

/// What one policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub exchange: Option<String>,
    pub key: Option<String>,
    pub retries: Words,
    /// It comes before the arguments of its queue, not behind them.
    pub overrules: bool,
}

/// Where the dead letters of a queue go. Without a key: by those that the message has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub exchange: String,
    pub key: Option<String>,
}

impl Ruling {
    /// Another one, for a queue whose arguments say this. `None`: its policy vanishes.
    ///
    /// As with arguments, no queue is its own target, and where dead letters come back nothing doubles them.
    pub(crate) fn draw(rng: &mut Rng, plan: &Plan, argued: Option<&Target>) -> Option<Ruling> {
        if rng.u8(..4) == 0 {
            return None;
        }
        let fan = if plan.returns { "dlx" } else { "fan" };
        let exchanges = ["", "dlx", fan, "inner", MISSING];
        let names_one = rng.u8(..4) > 0 && (argued.is_none() || rng.bool());
        let exchange = names_one.then(|| exchanges[rng.usize(..exchanges.len())].to_owned());
        let has_key = argued.is_some_and(|argued| argued.key.is_some());
        // An argument that a declare may leave out is none to rely on.
        let has_key = has_key && plan.redeclares.is_none();
        let needs_key = exchange.is_some() && !has_key;
        let key = plan.targets[rng.usize(..plan.targets.len())].clone();
        // Who does not know the arguments goes by the policy alone: by its own keys a message would come back for ever, once for each key.
        let may_loop = plan.unknown && exchange.as_deref() == Some("");
        let key = (needs_key || rng.bool() || may_loop).then_some(key);
        let mut retries = Words::default();
        if plan.retrying && rng.u8(..4) > 0 {
            retries = Words::draw(rng, true).of_policy(rng);
        }
        Some(Ruling {
            exchange,
            key,
            retries,
            overrules: rng.u8(..4) > 0,
        })
    }

    /// The target of a queue whose arguments say this.
    pub(crate) fn target(&self, argued: Option<&Target>) -> Option<Target> {
        self.target_beside(argued, &Ruling::default())
    }

    /// The same where the broker's policy says that, which counts last.
    pub(crate) fn target_beside(&self, argued: Option<&Target>, broker: &Ruling) -> Option<Target> {
        let by_policy = (self.exchange.clone(), self.key.clone());
        let argued = argued.cloned().map(|of| (Some(of.exchange), of.key));
        let argued = argued.unwrap_or_default();
        let (first, then) = match self.overrules {
            true => (by_policy, argued),
            false => (argued, by_policy),
        };
        Some(Target {
            exchange: first.0.or(then.0).or_else(|| broker.exchange.clone())?,
            key: first.1.or(then.1).or_else(|| broker.key.clone()),
        })
    }
}

impl Target {
    /// What the arguments of a queue say: those of the client that made it stand in the name of an intake exchange.
    pub(crate) fn argued(exchange: Option<Bytes>, key: Option<String>) -> Option<Target> {
        let exchange = exchange?;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match names().parse(&exchange) {
            Some(OwnObject::IntakeExchange(DeclaredTarget::Policy { .. }, _)) => None,
            Some(OwnObject::IntakeExchange(DeclaredTarget::Target(target), _)) => Some(Target {
                exchange: text(&target.exchange),
                key: target.routing_key.as_deref().map(text),
            }),
            _ => Some(Target {
                exchange: text(&exchange),
                key,
            }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "'{}' by {key}", self.exchange),
            None => write!(f, "'{}' by its own keys", self.exchange),
        }
    }
}
