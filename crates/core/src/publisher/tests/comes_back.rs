//! A message that comes back to its queue, as its session hands it over.

use super::*;
use crate::dead_letter::retries::{Attempts, Counts, OnCrash, Retries, Returned};
use crate::dead_letter::{
    Death, Dialect, Disposal, HistoryForm, Lookup, Return, RuleSettings, give_back,
};
use crate::machine::Wall;

/// When it was delivered, and everything else happens.
const NOW: Wall = Wall(1_700_000_000_000);

/// It has a minute to live and a user-id, was published to `x`, and comes back at once to `work`.
pub(super) fn returned(by_exchange: Option<&str>, dies_when_full: bool) -> Publication {
    let none = Properties::parse(&[0, 0]).expect("none");
    let edit = Edit {
        expiration: Change::Set(b"60000".to_vec()),
        user_id: Change::Set(b"app".to_vec()),
        ..Edit::default()
    };
    let content = Content {
        properties: none.edit(&edit),
        body: Bytes::from_static(b"hi"),
    };
    let by_exchange = by_exchange.map(name);
    let of = Return {
        death: Death {
            queue: &name("work"),
            reason: Reason::DeliveryLimit,
            exchange: b"x",
            routing_key: b"k",
            content: &content,
            recorded: false,
            by: None,
        },
        returned: Returned::ByNack,
        attempts: Attempts::default(),
        deadline: None,
        queue_ttl: None,
        knows_all: true,
        dies_when_full,
        fits: true,
        delivered: NOW,
        by_exchange: by_exchange.as_ref(),
        draw: 0,
        verdict: None,
    };
    let retries = Retries {
        back_off: None,
        limit: Some(3),
        counts: Counts::All,
        on_crash: OnCrash::Requeue,
    };
    let rules = RuleSettings {
        continue_history: true,
        history_form: HistoryForm::WRITTEN,
    };
    let rules = rules.at(Dialect::V4, 100, Default::default());
    match give_back(&of, &retries, &Lookup::NoExchange, &rules, b"proxy", NOW) {
        Some(Disposal::Retry(publication)) => publication,
        other => panic!("{other:?}"),
    }
}
