//! The verb `handled` of the tables: what is known of a queue, and how it is handled therefore.

use std::sync::Arc;

use crate::amqp::ids::name;
use crate::machine::{Fallback, Mono};
use crate::objects::Names;
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Report};
use crate::registry::handling::Circumstances;
use crate::registry::{Declared, Form};

use super::table::{bytes, queue_type};
use super::words::{Line, quoted};

/// `handled QUEUE [type=…] [by=declare|list|refusal at=…] [intake=…] [asked=…] [left=no-permission|native-queue|…]`
pub(super) fn handled(
    line: &Line,
    arguments: &[u8],
    names: &Names,
    at: &Circumstances<'_>,
) -> String {
    let (catalogue, vhost) = (Catalogue::default(), name("/"));
    let queue = name(&line.text("queue").unwrap_or("orders".to_owned()));
    let moment = |of| line.text(of).map(|text| Mono(text.parse().unwrap()));
    let learn = |told, source, at| catalogue.learn(&vhost, &queue, &told, source, at);
    let source = match line.get("by") {
        Some(b"refusal") => Source::Refusal,
        Some(b"list") => Source::Management,
        _ => Source::Declare,
    };
    let at_said = moment("at").unwrap_or(Mono(0));
    learn(Report::Type(queue_type(line)), Source::Refusal, Mono(0));
    if line.get("by").is_some() {
        let form = Form::of(0, arguments);
        let declared = Arc::new(Declared::of_queue(form, queue_type(line), names));
        learn(Report::Declared(declared), source, at_said);
    }
    if let Some(intake) = line.name("intake") {
        learn(Report::Intake(Some(intake)), Source::Refusal, at_said);
    }
    if let Some(asked) = moment("asked") {
        learn(Report::InVain(None), Source::Refusal, asked);
    }
    let left = line.get("left").map(|cause| match cause {
        b"no-permission" => Fallback::NoPermission,
        b"native-queue" => Fallback::NativeQueue,
        b"name-too-long" => Fallback::NameTooLong,
        b"no-intake" => Fallback::NoIntake,
        other => panic!("no cause {other:?}"),
    });
    let known = catalogue.get(&vhost, &queue).unwrap();
    let Some(handling) = at.of(&vhost, &queue, &known, left) else {
        return "nothing to say".to_owned();
    };
    let mut words = vec![
        handling.state.as_str().to_owned(),
        handling.why.name.to_owned(),
    ];
    words.extend(handling.target.map(|target| match &target.routing_key {
        Some(key) => format!("to {}/{}", quoted(&target.exchange), bytes(key)),
        None => format!("to {}", quoted(&target.exchange)),
    }));
    words.extend(handling.retries.then(|| "retries".to_owned()));
    words.extend(handling.ack_timeout.map(|of| format!("ack timeout {of:?}")));
    let (told, asked) = (handling.told, handling.asked);
    words.extend(told.map(|(source, at)| format!("told by {source:?} at {}", at.0)));
    words.extend(asked.map(|at| format!("asked in vain at {}", at.0)));
    words.extend((!handling.why.advice.is_empty()).then(|| "with advice".to_owned()));
    words.join(", ")
}
