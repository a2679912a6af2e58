//! What a client takes from queues, and what it says of it.

use fastrand::Rng;

use super::super::codec::methods::Arg;
use super::super::codec::value::{Bytes, Table, Value};
use super::super::plan::{Plan, text};
use super::super::retries::By;
use super::{Channel, Client, Said, Verb};

impl Client {
    pub(super) fn settle(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        if self.winding_up {
            self.give_up_waiting();
        }
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let waits = |tag: &u64| channel.unacked[tag].waits_for.is_some();
        let (waiting, tags): (Vec<u64>, Vec<u64>) =
            channel.unacked.keys().copied().partition(waits);
        // It hangs in the work on some, and says something of them late or never.
        let hangs = plan.retrying && !self.winding_up && rng.u8(..32) > 0;
        let done = tags.iter().copied();
        let done: Vec<u64> = done.filter(|tag| !hangs || tag % 4 > 0).collect();
        let Some(&tag) = rng.choice(&done) else {
            return;
        };
        if plan.republishing && rng.u8(..3) > 0 && self.republish(id, tag, rng, plan) {
            return;
        }
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        // `multiple` would settle what waits, too.
        let passes = waiting.first().is_none_or(|first| tag < *first);
        let multiple = rng.u8(..4) == 0 && passes;
        let returns = if plan.retrying { 14 } else { 2 };
        let acks = if plan.retrying { 16 } else { 7 };
        let drawn = rng.u8(..20);
        let is_ack = (returns..acks).contains(&drawn) || drawn < returns && self.winding_up;
        let name = match is_ack {
            true => "basic.ack",
            false if multiple || rng.bool() => "basic.nack",
            false => "basic.reject",
        };
        let verb = match name {
            "basic.ack" => Verb::Ack,
            _ if drawn >= returns => Verb::Dead,
            "basic.nack" => Verb::Returned(By::Nack),
            _ => Verb::Returned(By::Reject),
        };
        let these = if multiple { tags[0]..=tag } else { tag..=tag };
        channel.unacked.retain(|tag, _| !these.contains(tag));
        let said = tags.iter().filter(|tag| these.contains(tag));
        self.said.extend(said.map(|tag| Said::Verb(id, *tag, verb)));
        let mut args = vec![("delivery-tag", Arg::Number(tag))];
        args.push(("multiple", Arg::Bit(multiple)));
        args.push(("requeue", Arg::Bit(matches!(verb, Verb::Returned(_)))));
        if rng.u8(..6) == 0 {
            let extends = [0, 0, 3_000][rng.usize(..3)];
            self.judge(id, tag + u64::from(rng.bool()), extends);
        }
        self.send(id, name, &args);
    }

    /// Says why, of a delivery or of one that may not be there: that changes nothing but headers, and how long it may take.
    fn judge(&mut self, id: u16, tag: u64, extends: u64) {
        let mut why = Table {
            fields: vec![(b"reason".to_vec(), Value::Text(b"no address".to_vec()))],
            rest: Bytes::new(),
        };
        if extends > 0 {
            let millis = Value::Integer(b'I', extends.into());
            why.fields.push((b"extend-ms".to_vec(), millis));
        }
        self.said.push(Said::Judged(id, tag, extends));
        let mut args = vec![
            ("queue", text("any")),
            ("exchange", text("dlx-proxy.verdict")),
        ];
        args.push(("routing-key", text(&tag.to_string())));
        args.push(("arguments", Arg::Table(why)));
        self.request(id, "queue.unbind", &args, "queue.unbind-ok");
    }

    pub(super) fn consume(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = &self.any_queue(rng, plan);
        // At the end each queue finds somebody, whatever is consumed already.
        let winding_up = self.winding_up;
        let has_room = |channel: &&mut Channel| {
            let queues = channel.consumers.values();
            queues.filter(|of| !winding_up || *of == queue).count() < 2
        };
        if self.winding_up && !self.drains(queue, plan) || plan.going.as_ref() == Some(queue) {
            return;
        }
        let Some(channel) = self.channels.get_mut(&id).filter(has_room) else {
            return;
        };
        self.consumers += 1;
        let tag = format!("c{}", self.consumers);
        channel.consumers.insert(tag.clone(), queue.clone());
        let args = vec![("queue", text(queue)), ("consumer-tag", text(&tag))];
        self.request(id, "basic.consume", &args, "basic.consume-ok");
    }

    pub(super) fn get(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = &self.any_queue(rng, plan);
        if self.winding_up && !self.drains(queue, plan) {
            return;
        }
        self.request(
            id,
            "basic.get",
            &vec![("queue", text(queue))],
            "basic.get-ok",
        );
    }

    pub(super) fn cancel(&mut self, id: u16, rng: &mut Rng) {
        let Some(channel) = self.channels.get_mut(&id).filter(|_| !self.winding_up) else {
            return;
        };
        let tags: Vec<String> = channel.consuming.iter().cloned().collect();
        let Some(tag) = rng.choice(&tags) else {
            return;
        };
        channel.consumers.remove(tag);
        channel.consuming.remove(tag);
        let no_wait = rng.u8(..4) == 0;
        let args = vec![("consumer-tag", text(tag)), ("no-wait", Arg::Bit(no_wait))];
        match no_wait {
            true => self.send(id, "basic.cancel", &args),
            false => self.request(id, "basic.cancel", &args, "basic.cancel-ok"),
        }
    }

    pub(super) fn recover(&mut self, id: u16) {
        if self
            .channels
            .get(&id)
            .is_some_and(|channel| channel.recovering)
        {
            return;
        }
        self.said.push(Said::Recovers(id));
        self.request(
            id,
            "basic.recover",
            &vec![("requeue", Arg::Bit(true))],
            "basic.recover-ok",
        );
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.recovering = true;
            let tags = std::mem::take(&mut channel.unacked);
            self.said.extend(
                tags.into_keys()
                    .map(|tag| Said::Verb(id, tag, Verb::Recovered)),
            );
        }
    }

    pub(super) fn qos(&mut self, id: u16, rng: &mut Rng) {
        let count = Arg::Number(u64::from([1_u16, 5, 50][rng.usize(..3)]));
        self.request(
            id,
            "basic.qos",
            &vec![("prefetch-count", count)],
            "basic.qos-ok",
        );
    }

    pub(super) fn any_queue(&self, rng: &mut Rng, plan: &Plan) -> String {
        if let Some(own) = self.own.as_ref().filter(|_| rng.u8(..3) == 0) {
            return own.clone();
        }
        let seldom = if plan.republishing { 2 } else { 4 };
        let queue = match rng.u8(..seldom) {
            0 => &plan.targets[rng.usize(..plan.targets.len())],
            _ => &plan.sources[rng.usize(..plan.sources.len())],
        };
        queue.clone()
    }

    /// At the end only sources are consumed.
    fn drains(&self, queue: &String, plan: &Plan) -> bool {
        plan.sources.contains(queue) || self.own.as_ref() == Some(queue)
    }
}
