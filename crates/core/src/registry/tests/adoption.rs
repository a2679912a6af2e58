//! Lines of tables that say what a broker lists, and what is adopted, released or followed then.

use regex::bytes::Regex;
use serde_json::{Map, Value};

use crate::amqp::ids::Vhost;
use crate::objects::Names;
use crate::registry::adoption::{
    Here, ListedPolicy, ListedQueue, Meant, OfFile, Plan, Wanted, adopt, is_still, release, wanted,
};
use crate::registry::policy::Policies;

use super::words::Line;

/// Words of a line that stand for keys of a policy, and with `x-` for arguments of a queue.
const KEYS: [(&str, &str); 5] = [
    ("exchange", "dead-letter-exchange"),
    ("key", "dead-letter-routing-key"),
    ("strategy", "dead-letter-strategy"),
    ("overflow", "overflow"),
    ("ttl", "message-ttl"),
];

#[derive(Default)]
pub(super) struct Lists {
    policies: Vec<ListedPolicy>,
    /// Of a newer reading.
    newer: Vec<ListedPolicy>,
    queues: Vec<ListedQueue>,
}

impl Lists {
    /// `listed-policy NAME [pattern=] [apply-to=] [priority=] [exchange=] [key=] …`
    pub(super) fn policy(&mut self, line: &Line) {
        let text = |name, or: &str| line.text(name).unwrap_or(or.to_owned());
        let list = match &*line.verb {
            "newer-policy" => &mut self.newer,
            _ => &mut self.policies,
        };
        list.push(ListedPolicy {
            vhost: text("vhost", "/"),
            name: alone(line),
            pattern: text("pattern", ".*"),
            apply_to: text("apply-to", "queues"),
            priority: text("priority", "0").parse().unwrap(),
            definition: said(line, "").into_iter().collect(),
        });
    }

    /// `listed-queue NAME [type=] [policy=] [exchange=] …`
    pub(super) fn queue(&mut self, line: &Line) {
        self.queues.push(ListedQueue {
            name: alone(line),
            queue_type: Some(line.text("type").unwrap_or("classic".to_owned())),
            policy: line.text("policy"),
            arguments: Value::Object(said(line, "x-")),
            ..ListedQueue::default()
        });
    }

    pub(super) fn plan(&self, line: &Line, names: &Names, policies: &Policies) -> String {
        let here = Here {
            vhost: &Vhost::ROOT,
            policies,
        };
        let meant = match (line.text("queue"), line.text("all")) {
            (Some(queue), _) => Meant::Queue(queue),
            (None, all) => Meant::All(Regex::new(&all.unwrap()).unwrap()),
        };
        let plan = match &*line.verb {
            "adopt" => adopt(&self.policies, &self.queues, &meant, names, here),
            _ => release(&self.policies, &self.queues, &meant, names),
        };
        shown(&plan)
    }

    pub(super) fn followed(&self, line: &Line, names: &Names, file: OfFile<'_>) -> String {
        let newer = line.flag("with-newer").then_some(&self.newer);
        let lines = wanted(&self.policies, names, file)
            .into_iter()
            .filter(|wanted| newer.is_none_or(|newer| is_still(wanted, newer, names, file)))
            .map(|wanted| match wanted {
                Wanted::Keep { ours, is_new: true } => format!("put {}", policy(&ours)),
                Wanted::Keep { ours, .. } => format!("keep {}", ours.name),
                Wanted::Delete(ours) => format!("delete {}", ours.name),
                Wanted::Stuck(ours, why) => format!("{} is stuck: {why}", ours.name),
            });
        match lines.collect::<Vec<_>>() {
            lines if lines.is_empty() => "nothing".to_owned(),
            lines => lines.join("\n"),
        }
    }
}

fn alone(line: &Line) -> String {
    String::from_utf8(line.alone().to_vec()).unwrap()
}

fn said(line: &Line, before: &str) -> Map<String, Value> {
    let each = KEYS.iter().filter_map(|(word, key)| {
        let text = line.text(word)?;
        let value = text.parse::<i64>().map_or(Value::from(text), Value::from);
        Some((format!("{before}{key}"), value))
    });
    let others = line.text("keys").unwrap_or_default();
    let others = others.split(',').filter(|key| !key.is_empty());
    each.chain(others.map(|key| (key.to_owned(), Value::Bool(true))))
        .collect()
}

fn policy(ours: &ListedPolicy) -> String {
    let definition = serde_json::to_string(&ours.definition).unwrap();
    let ListedPolicy {
        name,
        pattern,
        apply_to,
        priority,
        ..
    } = ours;
    format!("{name} {pattern} {apply_to} {priority} {definition}")
}

fn shown(plan: &Plan) -> String {
    let changes = plan.changes.iter().map(|change| {
        let queues = change.queues.join(" ");
        format!("{} for {}: {queues}", policy(&change.ours), change.source)
    });
    let left = plan.left.iter();
    let left = left.map(|(why, queues)| format!("left: {}: {why}", queues.join(" ")));
    match changes.chain(left).collect::<Vec<_>>() {
        lines if lines.is_empty() => "nothing".to_owned(),
        lines => lines.join("\n"),
    }
}
