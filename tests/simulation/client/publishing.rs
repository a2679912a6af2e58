//! What a client publishes: new messages, some of them for several queues, and dead letters that it gives another life.
//!
//! Such a life goes on with what the client leaves of the headers, as a client library hands them out: RabbitMQ 4.x overwrites `x-death` when
//! the message dies again, the proxy remembers it.

use std::ops::RangeInclusive;

use fastrand::Rng;

use super::super::accounts::{history::History, id as number_of, millis};
use super::super::codec::frame::Frame;
use super::super::codec::methods::{Arg, Args, BODY};
use super::super::codec::value::{Array, Bytes, Table, Value};
use super::super::delays::Later;
use super::super::net::Micros;
use super::super::plan::{Plan, text};
use super::{Channel, Client, PUBLISHING, Said, Unconfirmed, Verb};

/// The header in which it counts the lives of a message.
pub(crate) const LIVES: &str = "lives";
/// No message is given more.
const MOST_LIVES: i128 = 4;
/// Publishes without a confirm.
const UNCONFIRMED: usize = 30;

/// What is needed to publish a delivery again.
#[derive(Debug)]
pub(super) struct Letter {
    headers: Table,
    body: Bytes,
}

impl Letter {
    /// Of a delivery that died and may live again.
    pub(super) fn of(frame: &Frame) -> Option<Letter> {
        let headers = frame.headers()?;
        headers.get("x-death")?;
        if lives(headers) >= MOST_LIVES {
            return None;
        }
        Some(Letter {
            headers: headers.clone(),
            body: frame.arg(BODY)?.text().to_vec(),
        })
    }

    /// What a client makes of the headers: most leave them as they are.
    fn again(&self, rng: &mut Rng) -> Table {
        let mut headers = self.headers.clone();
        match rng.u8(..10) {
            0 => headers.fields.clear(),
            1 => headers.fields.retain(|(name, _)| name != b"x-death"),
            2 => headers
                .fields
                .retain(|(name, _)| !name.starts_with(b"x-first-")),
            3 => deaths(&mut headers, |deaths| deaths.truncate(1)),
            4 => deaths(&mut headers, |deaths| drop(deaths.remove(0))),
            _ => {}
        }
        headers.fields.retain(|(name, _)| name != LIVES.as_bytes());
        let lives = Value::Integer(b'I', lives(&self.headers) + 1);
        headers.fields.push((LIVES.into(), lives));
        headers
    }
}

impl Client {
    /// Something new.
    pub(crate) fn publish(&mut self, rng: &mut Rng, at: Micros, next_body: &mut u64, plan: &Plan) {
        if self.winding_up || !self.may_publish() {
            return;
        }
        *next_body += 1;
        let mut body = format!("{next_body:08}").into_bytes();
        body.resize(8 + [0, 10, 300, 9000][rng.usize(..4)], b'.');
        let mut args = Args::new();
        if rng.u8(..6) == 0 {
            args.push(("expiration", text(&rng.u8(..100).to_string())));
        }
        let mut headers = Table::default();
        if plan.carbon_copies && rng.u8(..4) == 0 {
            headers = carbon_copies(rng, plan);
        }
        let later = Later::draw(rng, plan, self.stranger.is_none(), millis(at));
        headers
            .fields
            .extend(later.iter().map(|of| of.header.clone()));
        if !headers.fields.is_empty() {
            args.push(("headers", Arg::Table(headers)));
        }
        self.publish_as(args, body, later.as_ref(), rng, plan);
    }

    fn may_publish(&self) -> bool {
        let channel = self.channels.get(&PUBLISHING);
        let may = |channel: &Channel| !channel.closing && channel.unconfirmed.len() < UNCONFIRMED;
        !self.only_consumes && channel.is_some_and(may)
    }

    /// To any source; its number.
    fn publish_as(
        &mut self,
        properties: Args,
        body: Bytes,
        later: Option<&Later>,
        rng: &mut Rng,
        plan: &Plan,
    ) -> u64 {
        let exchange = later.map_or("", |later| later.exchange);
        let queue = match &self.own {
            Some(own) if exchange.is_empty() && rng.u8(..3) == 0 => own,
            _ => &plan.sources[rng.usize(..plan.sources.len())],
        };
        let mut args = vec![("exchange", text(exchange)), ("routing-key", text(queue))];
        args.push(("mandatory", Arg::Bit(rng.bool())));
        args.push(("delivery-mode", Arg::Number(2)));
        args.extend(properties);
        let history = History::of(&Frame::new("", args.clone()));
        let due = later.and_then(|later| later.due);
        let number = number_of(&body);
        self.said.push(match due {
            Some(due) => Said::Delayed(number.clone(), due),
            None => Said::Published(number.clone(), history),
        });
        args.push((BODY, Arg::Text(body)));
        self.send(PUBLISHING, "basic.publish", &args);
        let channel = self.channels.entry(PUBLISHING).or_default();
        channel.published += 1;
        if self.confirms {
            let publish = Unconfirmed {
                body: number,
                is_delayed: due.is_some(),
            };
            channel.unconfirmed.insert(channel.published, publish);
        }
        channel.published
    }

    /// Takes that delivery, if it is a dead letter, and publishes it again; acks it at once, or when that is confirmed.
    pub(super) fn republish(&mut self, id: u16, tag: u64, rng: &mut Rng, plan: &Plan) -> bool {
        if self.winding_up || !self.may_publish() {
            return false;
        }
        let held = self.channels.get_mut(&id);
        let held = held.and_then(|channel| channel.unacked.get_mut(&tag));
        let Some(letter) = held.and_then(|held| held.letter.take()) else {
            return false;
        };
        let headers = letter.again(rng);
        let publish = self.publish_as(
            vec![("headers", Arg::Table(headers))],
            letter.body,
            None,
            rng,
            plan,
        );
        if rng.u8(..4) == 0 || !self.confirms {
            self.ack(id, tag);
        } else if let Some(channel) = self.channels.get_mut(&id)
            && let Some(held) = channel.unacked.get_mut(&tag)
        {
            held.waits_for = Some(publish);
        }
        true
    }

    /// Confirms, in whatever order: whether they are true is checked by the one who sees both sides.
    ///
    /// # Errors
    /// None of these is open.
    pub(super) fn answered(
        &mut self,
        id: u16,
        publishes: &RangeInclusive<u64>,
        good: bool,
    ) -> Result<(), String> {
        let channel = self.channels.entry(id).or_default();
        let open = channel.unconfirmed.range(publishes.clone());
        let open: Vec<u64> = open.map(|(number, _)| *number).collect();
        let before = self.said.len();
        for of in open
            .iter()
            .filter_map(|number| channel.unconfirmed.remove(number))
        {
            self.said.push(Said::Answered(of.body, good));
        }
        if self.said.len() == before {
            let (client, last) = (self.id, publishes.end());
            return Err(format!("client {client}: a second confirm of {last}"));
        }
        self.confirmed(publishes, good);
        Ok(())
    }

    /// What waited for these is acked; if they were refused, it may be settled in another way.
    fn confirmed(&mut self, publishes: &RangeInclusive<u64>, good: bool) {
        let mut acked = Vec::new();
        for (id, channel) in &mut self.channels {
            for (tag, held) in &mut channel.unacked {
                if held
                    .waits_for
                    .is_some_and(|publish| publishes.contains(&publish))
                {
                    held.waits_for = None;
                    if good && !channel.closing {
                        acked.push((*id, *tag));
                    }
                }
            }
        }
        for (id, tag) in acked {
            self.ack(id, tag);
        }
    }

    fn ack(&mut self, id: u16, tag: u64) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.unacked.remove(&tag);
        }
        self.said.push(Said::Verb(id, tag, Verb::Ack));
        self.send(id, "basic.ack", &vec![("delivery-tag", Arg::Number(tag))]);
    }

    /// Confirms that will not come.
    pub(super) fn give_up_waiting(&mut self) {
        for channel in self.channels.values_mut() {
            for held in channel.unacked.values_mut() {
                held.waits_for = None;
            }
        }
    }
}

fn lives(headers: &Table) -> i128 {
    match headers.get(LIVES) {
        Some(Value::Integer(_, lives)) => *lives,
        _ => 0,
    }
}

fn deaths(headers: &mut Table, change: impl Fn(&mut Vec<Value>)) {
    for (name, value) in &mut headers.fields {
        if let Value::Array(deaths) = value
            && name == b"x-death"
            && !deaths.items.is_empty()
        {
            change(&mut deaths.items);
        }
    }
}

/// For one or two other queues.
fn carbon_copies(rng: &mut Rng, plan: &Plan) -> Table {
    let mut headers = Table::default();
    let queues: Vec<&String> = plan.sources.iter().chain(&plan.targets).collect();
    let names: &[&str] = [&["CC"][..], &["BCC"], &["CC", "BCC"]][rng.usize(..3)];
    for name in names {
        let some = (0..rng.usize(1..3)).map(|_| queues[rng.usize(..queues.len())]);
        let items = some.map(|queue| Value::Text(queue.clone().into_bytes()));
        let keys = Array {
            items: items.collect(),
            rest: Bytes::new(),
        };
        headers.fields.push(((*name).into(), Value::Array(keys)));
    }
    headers
}
