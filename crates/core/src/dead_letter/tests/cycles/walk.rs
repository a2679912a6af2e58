//! A message that goes from death to death, beside what a broker would know of it that had done all the hops.

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::ids::{ShortStr, name};
use crate::amqp::properties::{Change, Edit, Properties};
use crate::dead_letter::tests::broker::{Broker, Event, Known, Stored, is_cycle, record};
use crate::dead_letter::tests::property::{rejected, rules};
use crate::dead_letter::{Dialect, Disposal, Target, plan, private, signal};
use crate::machine::Reason;

/// What happens next to the message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// It dies in a queue that was taken over.
    Signal(Reason),
    /// A client of the proxy rejects it.
    Reject,
    /// It dies in a queue whose declare was left alone.
    Native(Reason),
    /// A client takes it and publishes it anew, headers and all.
    Republish,
    /// The same by a client of the broker, which sees and copies the private headers too.
    Copy,
}

/// A message on its way into a queue.
pub(super) struct Walk {
    broker: Broker,
    stored: Stored,
    /// What a broker would know of it that had done all the hops.
    native: Vec<Known>,
    /// The death that it comes from, and whether the proxy published it; none: a client did.
    comes: Option<(Reason, bool)>,
    pub now: u64,
}

/// Where a message goes.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    pub exchange: &'a str,
    pub key: &'a str,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    On,
    /// The proxy ended it, as RabbitMQ would have.
    Dropped,
    /// It could not happen: the broker, which did the hop before, did not let the message in.
    Barred,
}

/// What the proxy makes of a death.
enum Planned {
    Letter(Content),
    Dropped,
    /// Parked.
    Doubt,
}

impl Walk {
    pub(super) fn new(broker: Broker) -> Walk {
        let none = Properties::parse(&[0, 0]).unwrap();
        let content = Content {
            properties: none.edit(&Edit {
                headers: Change::Set(Vec::new()),
                ..Edit::default()
            }),
            body: Bytes::from_static(b"body"),
        };
        Walk {
            stored: broker.publish(&content, "x", "k"),
            broker,
            native: Vec::new(),
            comes: None,
            now: 1000,
        }
    }

    /// The queue that it is in, if the hop before says so.
    pub(super) fn queue(&self) -> Option<String> {
        self.stored
            .exchange
            .is_empty()
            .then(|| self.stored.key.clone())
    }

    /// The message dies, or is taken, in `queue`, and goes to `next`. A cycle leaves it where it was.
    pub(super) fn step(&mut self, step: Step, queue: &str, next: Next<'_>) -> Fate {
        let barred = |deaths: &[Known]| {
            self.comes
                .is_some_and(|(reason, _)| is_cycle(reason, deaths, queue))
        };
        let by_broker = self.comes.is_some_and(|(_, by_proxy)| !by_proxy);
        if by_broker && barred(&self.broker.knows(&self.stored)) {
            return Fate::Barred;
        }
        let reason = match step {
            Step::Signal(reason) | Step::Native(reason) => reason,
            Step::Reject => Reason::Rejected,
            Step::Republish | Step::Copy => return self.republish(step, next),
        };
        let event = Event {
            queue: queue.to_owned(),
            reason,
            exchange: self.stored.exchange.clone(),
            key: self.stored.key.clone(),
            time: self.now,
        };
        let died = record(self.broker.dialect, &self.native, &event);
        let mut stored = self.stored.clone();
        match step {
            Step::Native(_) => {
                self.broker.kill(&mut stored, &event);
                (stored.exchange, stored.key) = (next.exchange.to_owned(), next.key.to_owned());
            }
            _ => {
                let ends = barred(&self.native) && reason != Reason::Rejected
                    || next.exchange.is_empty() && is_cycle(reason, &died, next.key);
                let planned = self.plan(&mut stored, &event, next);
                if matches!(planned, Planned::Doubt) {
                    return Fate::Dropped;
                }
                assert_eq!(
                    matches!(planned, Planned::Dropped),
                    ends,
                    "dropped, and would be: {step:?} in {queue}"
                );
                let Planned::Letter(content) = planned else {
                    return Fate::Dropped;
                };
                stored = self.broker.publish(&content, next.exchange, next.key);
            }
        }
        self.comes = Some((reason, !matches!(step, Step::Native(_))));
        self.native = died;
        self.stored = stored;
        Fate::On
    }

    fn plan(&self, stored: &mut Stored, event: &Event, next: Next<'_>) -> Planned {
        let rules = rules(self.broker.dialect);
        let target = Target {
            exchange: name(next.exchange),
            routing_key: ShortStr::copy(next.key.as_bytes()),
            at_least_once: false,
        };
        let is_rejected = event.reason == Reason::Rejected;
        if !is_rejected {
            self.broker.kill(stored, event);
        }
        let content = self.broker.deliver(stored);
        let queue = name(&event.queue);
        let known;
        let death = if is_rejected {
            rejected(event, &queue, &content)
        } else {
            known = signal(event.key.as_bytes(), &content).unwrap();
            known.death()
        };
        match plan(&death, &target, &rules, self.now).unwrap() {
            Disposal::Publish(publication) => Planned::Letter(publication.content),
            Disposal::Drop(lap) => ended(&lap),
            // It may have gone round, or not: 3.x does not tell.
            Disposal::Park(..) => {
                assert_eq!(self.broker.dialect, Dialect::V3, "parked");
                Planned::Doubt
            }
            other => panic!("{other:?}"),
        }
    }

    fn republish(&mut self, step: Step, next: Next<'_>) -> Fate {
        let mut content = self.broker.deliver(&self.stored);
        if matches!(step, Step::Republish) {
            let rules = rules(self.broker.dialect);
            let seen = private::on_delivery(&content.properties, b"dlx-proxy")
                .unwrap_or(content.properties);
            content.properties = private::on_publish(&seen, b"", &rules).unwrap_or(seen);
        }
        if !self.broker.takes_over {
            self.native.clear();
        }
        self.stored = self.broker.publish(&content, next.exchange, next.key);
        self.comes = None;
        Fate::On
    }
}

fn ended(lap: &[ShortStr]) -> Planned {
    assert_eq!(lap.first(), lap.last(), "a lap ends where it began");
    Planned::Dropped
}
