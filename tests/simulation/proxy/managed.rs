//! What the management API tells a process, as `management` takes it in.

use std::sync::Arc;

use dlx_proxy::amqp::method::QueueDeclare;
use dlx_proxy::machine::Mono;
use dlx_proxy::net::clock::Clock as _;
use dlx_proxy::net::question::Question;
use dlx_proxy::objects::{Names, QueueType};
use dlx_proxy::registry::broker_policy::{BrokerPolicies, BrokerPolicy};
use dlx_proxy::registry::catalogue::Report;
use dlx_proxy::registry::catalogue::fact::Source;
use dlx_proxy::registry::{Declared, Form};

use super::super::model::QueueView;
use super::super::rulings::Rulings;
use super::settings::{short, vhost};
use super::{Proxy, names};

impl Proxy {
    /// There is an API, of which nothing was read yet.
    pub(crate) fn will_read(&mut self) {
        self.reads_from = Some(self.clock.now().mono);
        let live = &self.session_settings.policies;
        live.set_brokers(BrokerPolicies::unread());
    }

    pub(crate) fn take_questions(&mut self) -> Vec<Question> {
        let taken = std::iter::from_fn(|| self.questions.try_recv().ok());
        taken.collect()
    }

    /// Nothing: it does not answer.
    pub(crate) fn hears_policies(&mut self, told: Option<&Rulings>) {
        self.reads_from = None;
        let live = &self.session_settings.policies;
        live.set_hears_broker(told.is_some());
        let Some(told) = told.filter(|told| self.told.as_ref() != Some(told)) else {
            return;
        };
        let patterns: Vec<String> = told.keys().map(|queue| format!("^{queue}$")).collect();
        let listed = told.iter().zip(&patterns);
        let listed = listed.map(|((queue, ruling), pattern)| BrokerPolicy {
            vhost: "/",
            name: queue,
            pattern,
            apply_to: "queues",
            priority: 1.0,
            keys: [
                ruling.exchange.as_ref().map(|_| "dead-letter-exchange"),
                ruling.key.as_ref().map(|_| "dead-letter-routing-key"),
            ]
            .into_iter()
            .flatten()
            .collect(),
            exchange: ruling.exchange.as_deref(),
            routing_key: ruling.key.as_deref(),
            ..BrokerPolicy::default()
        });
        let (policies, unreadable) = BrokerPolicies::new(listed, &Names::default());
        assert!(unreadable.is_empty(), "{unreadable:?}");
        live.set_brokers(policies);
        self.told = Some(told.clone());
    }

    pub(crate) fn hears_default_type(&self, name: &str, at: Mono) {
        let told = Some(queue_type(name));
        let catalogue = &self.session_settings.catalogue;
        catalogue.learn_default_type(&vhost(), told, Source::Management, at);
    }

    /// All that there are.
    pub(crate) fn hears_queues(&self, listed: &[QueueView], at: Mono) {
        listed.iter().for_each(|queue| self.hears_queue(queue, at));
        let catalogue = &self.session_settings.catalogue;
        let mut missing = Vec::new();
        catalogue.each(|_, queue, known| {
            let declared = known.declared();
            if declared.is_some_and(|of| of.at < at && !of.value.is_exclusive()) {
                missing.push(queue.clone());
            }
        });
        for queue in missing {
            catalogue.doubt(&vhost(), &queue);
        }
    }

    pub(crate) fn hears_queue(&self, listed: &QueueView, at: Mono) {
        let name = short(&String::from_utf8_lossy(&listed.name));
        if listed.exclusive || names().is_ours(&name) {
            return;
        }
        let mut bits = 0;
        for (is, bit) in [
            (listed.durable, QueueDeclare::DURABLE),
            (listed.auto_delete, QueueDeclare::AUTO_DELETE),
        ] {
            bits |= if is { bit } else { 0 };
        }
        let form = Form::of(bits, &listed.arguments.encode());
        let declared = Declared::of_queue(form, queue_type(listed.kind), &names());
        let told = Report::Declared(Arc::new(declared));
        let catalogue = &self.session_settings.catalogue;
        catalogue.learn(&vhost(), &name, &told, Source::Management, at);
    }
}

fn queue_type(name: &str) -> QueueType {
    match name {
        "classic" => QueueType::Classic,
        "quorum" => QueueType::Quorum,
        _ => QueueType::Other,
    }
}
