//! The stated difference `arrival`: a dead letter is in its target before its original has left the queue, so the room that this makes (in
//! the prefetch of a consumer) comes after it. Where the target is consumed too, messages of two queues come in another order, or
//! another of a queue's consumers gets the next one. From there on the runs go separate ways. And what dies on the way into a queue (driven
//! out by a message for several) may be behind what was published into it at that moment, or behind the end of a consumer that would have got it.

use std::collections::BTreeMap;

use super::compare::{Facts, difference};
use super::methods::Arg;
use super::reader::Received;
use super::run::{LEFT_IN, Record};
use super::script::{Action, Script, Step};
use super::value::{Bytes, Value};

/// Is what differs first, up to the rest after it, no more than in what order messages of several queues came, and who got them?
pub(crate) fn explains(facts: &Facts, script: &Script, direct: &Record, proxied: &Record) -> bool {
    let rests: Vec<usize> = (1..)
        .zip(&script.steps)
        .filter(|(_, step)| **step == Step::Rest)
        .map(|(at, _)| at)
        .collect();
    let queues = queues_of_consumers(script);
    let mut from = 0;
    for until in rests {
        let (left, right) = (up_to(direct, until), up_to(proxied, until));
        if difference(facts, &left, &right, None).is_some() {
            let by_queue = |record| by_queue(record, from, &queues);
            return difference(facts, &by_queue(left), &by_queue(right), None).is_none();
        }
        from = until;
    }
    // All that was seen before is the same, then.
    let (left, right) = (by_origin(direct), by_origin(proxied));
    difference(facts, &left, &right, None).is_none()
}

fn queues_of_consumers(script: &Script) -> BTreeMap<Bytes, String> {
    let mut queues = BTreeMap::new();
    for step in &script.steps {
        let Step::Client(_, Action::Method(call)) = step else {
            continue;
        };
        let arg = |wanted: &str| call.args.iter().find(|(name, _)| *name == wanted);
        if let (Some((_, tag)), Some((_, queue))) = (arg("consumer-tag"), arg("queue")) {
            let queue = String::from_utf8_lossy(queue.text()).into_owned();
            queues.insert(tag.text().to_vec(), queue);
        }
    }
    queues
}

/// What came up to that step.
fn up_to(record: &Record, step: usize) -> Record {
    let mut groups = record.groups.clone();
    groups.retain(|name, _| !name.starts_with(LEFT_IN));
    for frames in groups.values_mut() {
        frames.retain(|came| came.step <= step);
    }
    Record {
        groups,
        ..Record::default()
    }
}

/// What is left in a queue goes into a group for each queue where it died, and one for what did not.
fn by_origin(record: &Record) -> Record {
    let mut groups: BTreeMap<String, Vec<Received>> = BTreeMap::new();
    for (name, frames) in &record.groups {
        for came in frames.iter().cloned() {
            let mut group = name.clone();
            let mut came = came;
            if name.starts_with(LEFT_IN) {
                let died = came
                    .frame
                    .newest_death()
                    .and_then(|death| death.get("queue"));
                group += &died.map_or(String::new(), |queue| format!(" from {queue:?}"));
                without_place(&mut came, &["delivery-tag", "message-count"]);
            }
            groups.entry(group).or_default().push(came);
        }
    }
    Record {
        groups,
        ..Record::default()
    }
}

/// Without where it stood: these arguments, and, of a dead letter, whether it had been delivered before; what came through the intake queue
/// has no counts.
fn without_place(came: &mut Received, names: &[&str]) {
    let death = came.frame.newest_death();
    let reason = death.and_then(|death| death.get("reason"));
    let by_intake = reason.is_some_and(|reason| *reason != Value::Text(b"rejected".to_vec()));
    let redelivered = death.is_some().then_some(&"redelivered");
    for name in names.iter().chain(redelivered) {
        let arg = came.frame.arg_mut(name);
        arg.into_iter()
            .for_each(|arg| *arg = Arg::Text(Bytes::new()));
    }
    if let (true, Some(headers)) = (by_intake, came.frame.headers_mut()) {
        let is_count = |name: &[u8]| name == b"x-delivery-count" || name == b"x-acquired-count";
        headers.fields.retain(|(name, _)| !is_count(name));
    }
}

/// What was delivered after that step goes into a group for each queue, whoever got it.
fn by_queue(mut record: Record, from: usize, queues: &BTreeMap<Bytes, String>) -> Record {
    let mut delivered: BTreeMap<String, Vec<Received>> = BTreeMap::new();
    for frames in record.groups.values_mut() {
        for mut came in std::mem::take(frames) {
            let tag = came
                .frame
                .arg("consumer-tag")
                .map(|tag| tag.text().to_vec());
            let queue = tag.and_then(|tag| queues.get(&tag));
            match queue.filter(|_| came.step > from && came.frame.name == "basic.deliver") {
                None => frames.push(came),
                Some(queue) => {
                    without_place(&mut came, &["consumer-tag", "delivery-tag"]);
                    delivered
                        .entry(format!("queue {queue}"))
                        .or_default()
                        .push(came);
                }
            }
        }
    }
    for frames in delivered.values_mut() {
        frames.sort_by_key(|came| came.frame.lines());
    }
    record.groups.extend(delivered);
    record
}
