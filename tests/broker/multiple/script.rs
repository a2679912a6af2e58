//! What a client says about its deliveries, drawn at random, and what must come of it.

use std::collections::BTreeSet;

use dlx_proxy::amqp::ids::{ChannelId, DeliveryTag};
use dlx_proxy::amqp::method::MethodId;
use dlx_proxy::amqp::reply;

use crate::random::Random;
use crate::raw::Closed;

/// One channel's life.
#[derive(Debug)]
pub(super) struct Script {
    /// Per message, in the order of the queue and so of its tag: whether it is delivered without the need of an ack.
    pub no_ack: Vec<bool>,
    /// Deliveries are asked for one by one; else a consumer takes them, and is cancelled.
    pub by_get: bool,
    pub commands: Vec<Command>,
}

/// One command about deliveries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
        requeue: bool,
    },
    Reject {
        tag: u64,
        requeue: bool,
    },
    /// None: waits until all that died before has arrived, so that its rejects are settled and no longer withheld.
    Wait,
}

/// Where all ended. What is neither dead nor back was acked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    /// By the broker.
    pub closed: Option<Closed>,
    /// Tags of the messages that died, in order.
    pub dead: Vec<u64>,
    /// Tags of the messages that are in the queue again.
    pub back: BTreeSet<u64>,
}

/// RabbitMQ's rules for one channel.
pub(super) struct Model {
    open: BTreeSet<u64>,
    pub end: End,
}

// === impl Script ===

impl Script {
    pub(super) fn draw(random: &mut Random) -> Script {
        let messages = 1 + random.below(10);
        let by_get = random.percent(50);
        let mut script = Script {
            no_ack: (0..messages)
                .map(|_| by_get && random.percent(15))
                .collect(),
            by_get,
            commands: Vec::new(),
        };
        let mut model = script.begin();
        for _ in 0..1 + random.below(12) {
            let command = Command::draw(random, messages, &model.open);
            model.apply(&command);
            script.commands.push(command);
        }
        script
    }

    /// The model after the deliveries.
    pub(super) fn begin(&self) -> Model {
        let tags = (1..).zip(&self.no_ack);
        Model {
            open: tags
                .filter(|(_, no_ack)| !**no_ack)
                .map(|(tag, _)| tag)
                .collect(),
            end: End::default(),
        }
    }

    /// What must come of it.
    pub(super) fn model(&self) -> End {
        let mut model = self.begin();
        self.commands
            .iter()
            .for_each(|command| model.apply(command));
        model.close()
    }
}

// === impl Command ===

impl Command {
    fn draw(random: &mut Random, messages: u64, open: &BTreeSet<u64>) -> Command {
        let tag = match random.below(100) {
            0..3 => 0,
            3..6 => messages + 1,
            6..15 => 1 + random.below(messages),
            // Mostly what is right, or every script would end early.
            _ => match open.len() as u64 {
                0 => return Command::Wait,
                open_tags => *open
                    .iter()
                    .nth(random.below(open_tags) as usize)
                    .expect("it is below"),
            },
        };
        let (multiple, requeue) = (
            tag == 0 && random.percent(70) || random.percent(30),
            random.percent(25),
        );
        match random.below(100) {
            0..25 => Command::Ack { tag, multiple },
            25..60 => Command::Nack {
                tag,
                multiple,
                requeue,
            },
            60..90 => Command::Reject { tag, requeue },
            _ => Command::Wait,
        }
    }

    /// Its frame, if it has one.
    pub(super) fn put(&self, out: &mut Vec<u8>, channel: u16) {
        let channel = ChannelId(channel);
        match *self {
            Command::Ack { tag, multiple } => reply::ack(out, channel, DeliveryTag(tag), multiple),
            Command::Nack {
                tag,
                multiple,
                requeue,
            } => reply::nack(out, channel, DeliveryTag(tag), multiple, requeue),
            Command::Reject { tag, requeue } => {
                reply::reject(out, channel, DeliveryTag(tag), requeue)
            }
            Command::Wait => {}
        }
    }
}

// === impl Model ===

impl Model {
    pub(super) fn apply(&mut self, command: &Command) {
        let (method, tag, multiple, fate) = match *command {
            Command::Wait => return,
            Command::Ack { tag, multiple } => (MethodId::BASIC_ACK, tag, multiple, Fate::Acked),
            Command::Nack {
                tag,
                multiple,
                requeue,
            } => (MethodId::BASIC_NACK, tag, multiple, Fate::of(requeue)),
            Command::Reject { tag, requeue } => {
                (MethodId::BASIC_REJECT, tag, false, Fate::of(requeue))
            }
        };
        let all = multiple && tag == 0;
        if self.end.closed.is_some() {
            return;
        }
        if !all && !self.open.contains(&tag) {
            let text = format!("PRECONDITION_FAILED - unknown delivery tag {tag}");
            self.end.closed = Some((406, text, (method.0, method.1)));
            return;
        }
        let meant = |open: &u64| all || *open == tag || multiple && *open < tag;
        let settled: Vec<u64> = self.open.iter().copied().filter(meant).collect();
        self.open.retain(|open| !meant(open));
        match fate {
            Fate::Acked => {}
            Fate::Back => self.end.back.extend(settled),
            Fate::Dead => self.end.dead.extend(settled),
        }
    }

    fn close(mut self) -> End {
        self.end.back.extend(self.open);
        self.end
    }
}

enum Fate {
    Acked,
    Back,
    Dead,
}

impl Fate {
    fn of(requeue: bool) -> Fate {
        if requeue { Fate::Back } else { Fate::Dead }
    }
}
