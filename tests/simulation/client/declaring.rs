//! What a client declares when it begins and now and then again; and that it deletes a queue.

use fastrand::Rng;

use super::super::codec::methods::{Arg, Args};
use super::super::codec::value::{Bytes, Table, Value};
use super::super::plan::{Plan, text, text_of};
use super::super::redeclares::{Redeclares, Saying, redirect, said_in, spoil};
use super::{Channel, Client, PUBLISHING, Said};

impl Client {
    pub(super) fn open_channel(&mut self, channel: u16, plan: &Plan) {
        self.said.push(Said::Opened(channel));
        self.request(channel, "channel.open", &Args::new(), "channel.open-ok");
        if channel == PUBLISHING {
            self.give_up_waiting();
            self.declares = false;
            self.declare_all(plan);
            if self.confirms {
                self.request(channel, "confirm.select", &Args::new(), "confirm.select-ok");
            }
        }
    }

    pub(super) fn declare_all(&mut self, plan: &Plan) {
        if self.stranger.is_some() {
            return;
        }
        let own = self.own.as_ref().map(|queue| plan.declare_of(queue));
        for (name, args) in own.iter().chain(&plan.declares) {
            match &plan.redeclares {
                Some(redeclares) if *name == "queue.declare" => {
                    let queue = text_of(&args[0].1);
                    let mut args = args.clone();
                    redeclares.declare(&queue, self.release, &mut args);
                    self.says(PUBLISHING, queue, Saying::Target(said_in(&args)));
                    self.request(PUBLISHING, name, &args, reply_of(name));
                }
                _ => self.request(PUBLISHING, name, args, reply_of(name)),
            }
        }
    }

    fn says(&mut self, channel: u16, queue: String, saying: Saying) {
        self.said.push(Said::Declared(channel, queue, saying));
    }

    /// Deletes the queue, whatever is in it. False: it cannot.
    pub(crate) fn delete(&mut self, queue: &str) -> bool {
        let open = |channel: &Channel| !channel.closing && channel.due.is_empty();
        let mut channels = self.channels.iter();
        let may = |_: &(&u16, &Channel)| self.stranger.is_none();
        let Some((&id, _)) = channels.find(|(_, channel)| open(channel)).filter(may) else {
            return false;
        };
        let args = vec![("queue", text(queue))];
        self.request(id, "queue.delete", &args, "queue.delete-ok");
        true
    }

    pub(super) fn declare_again(&mut self, id: u16, rng: &mut Rng, plan: &Plan) {
        let queue = self.any_queue(rng, plan);
        let (name, mut args) = plan.declare_of(&queue);
        if rng.bool() || self.stranger.is_some() {
            args.push(("passive", Arg::Bit(true)));
        }
        if let Some(redeclares) = &plan.redeclares {
            let saying = match args.last() {
                Some(("passive", _)) => Saying::Nothing,
                _ => say_something(redeclares, &queue, &mut args, rng),
            };
            if saying == Saying::Wrong {
                self.said.push(Said::Wrong(id));
            }
            self.says(id, queue, saying);
        }
        self.request(id, name, &args, "queue.declare-ok");
    }
}

/// As any release does, or as none may.
fn say_something(redeclares: &Redeclares, queue: &str, args: &mut Args, rng: &mut Rng) -> Saying {
    redeclares.declare(queue, rng.usize(..4), args);
    match (rng.u8(..8), redeclares.of(queue)) {
        (0, _) => spoil(args),
        (1, None) if queue.starts_with("source.") => redirect(args),
        _ => return Saying::Target(said_in(args)),
    }
    Saying::Wrong
}

/// Its queue may go, and the broker is to say so.
pub(super) fn told_of_cancels() -> Arg {
    let table = |name: &str, value| Table {
        fields: vec![(name.as_bytes().to_vec(), value)],
        rest: Bytes::new(),
    };
    let notify = table("consumer_cancel_notify", Value::Bool(true));
    Arg::Table(table("capabilities", Value::Table(notify)))
}

fn reply_of(request: &str) -> &'static str {
    match request {
        "exchange.declare" => "exchange.declare-ok",
        "queue.bind" => "queue.bind-ok",
        _ => "queue.declare-ok",
    }
}
