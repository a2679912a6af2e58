//! Policies as words.

use super::transcripts::{mode, number, pairs};
use crate::amqp::ids::name;
use crate::dead_letter::grid::Jitter;
use crate::dead_letter::retries::OnCrash;
use crate::dead_letter::schedule::Schedule;
use crate::objects::Names;
use crate::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use crate::registry::policy::{Definition, Pattern, Policies, Policy};

/// `PATTERN [exchange=X] [key=K] [min=MS] [delays=MS,…] [jitter=J] [ack-timeout=MS] [limit=N] [on-crash=W] [overrules] [mode=M]`
pub(super) fn policy(words: &str) -> Policies {
    let (pattern, words) = words.split_once(' ').unwrap_or((words, ""));
    let mut policy = Policy {
        pattern: Pattern::new(pattern).expect("a good pattern"),
        ..Policy::default()
    };
    let mut definition = Definition::default();
    for (word, value) in pairs(words) {
        let retries = &mut definition.retries;
        match word {
            "exchange" => definition.dead_letter_exchange = Some(name(value)),
            "key" => definition.dead_letter_routing_key = Some(name(value)),
            "min" => retries.delayed_retry_min = Some(number(value)),
            "delays" => retries.delayed_retry_delays = Schedule::parse(value),
            "jitter" => retries.delayed_retry_jitter = Jitter::parse(value).unwrap(),
            "ack-timeout" => retries.ack_timeout = Some(number(value)),
            "limit" => retries.delivery_limit = Some(number(value)),
            "on-crash" => {
                retries.on_crash = Some(match value {
                    "count-all" => OnCrash::CountAll,
                    "count-oldest" => OnCrash::CountOldest,
                    _ => OnCrash::Requeue,
                })
            }
            "overrules" => policy.overrules_arguments = true,
            "mode" => policy.mode = Some(mode(value)),
            other => panic!("of a policy: {other}"),
        }
    }
    policy.definition = definition;
    Policies::new(vec![policy])
}

/// `PATTERN [key=K] [defines=KEY,KEY]`
pub(super) fn brokers(words: &str) -> BrokerPolicies {
    let (pattern, words) = words.split_once(' ').unwrap_or((words, ""));
    let mut policy = BrokerPolicy {
        vhost: "/",
        pattern,
        apply_to: "queues",
        ..BrokerPolicy::default()
    };
    for (word, value) in pairs(words) {
        match word {
            "key" => policy.routing_key = Some(value),
            "defines" => policy.keys = value.split(',').collect(),
            other => panic!("of a broker's policy: {other}"),
        }
    }
    BrokerPolicies::new([policy], &Names::default()).0
}
