//! Traffic that the proxy has nothing to do with: what does it cost to send it through?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use dlx_proxy::amqp::method::QueueDeclare;

use crate::client::{Connection, Message, arguments};
use crate::lab::Lab;
use crate::process::Route;
use crate::report::Figures;
use crate::stream::{AHEAD, FLOOD, Stream, measure};

/// Pairs of a publisher and a consumer, each with its own queue; one where there is a beat.
const PAIRS: u64 = 2;

#[derive(Clone, Copy)]
pub(crate) struct Traffic {
    /// See `Stream`.
    pub(crate) window: Option<usize>,
    pub(crate) pace: Option<u64>,
    pub(crate) ahead: u64,
    /// None: the broker sends without acks.
    pub(crate) prefetch: Option<u16>,
    /// The consumer's session has declared the queue; else another one has.
    pub(crate) declared: bool,
    /// Each pair has one connection.
    pub(crate) shared: bool,
    /// Programs that take all processors beside it.
    pub(crate) busy: usize,
}

pub(crate) const PLAIN: Traffic = Traffic {
    window: None,
    pace: None,
    ahead: AHEAD,
    prefetch: None,
    declared: true,
    shared: false,
    busy: 0,
};

pub(crate) const CONFIRMED: Traffic = Traffic {
    window: Some(500),
    prefetch: Some(1_000),
    ..PLAIN
};

pub(crate) const UNPACED: Traffic = PLAIN.unpaced();

pub(crate) const fn paced(rate: u64) -> Traffic {
    Traffic {
        pace: Some(rate),
        ..UNPACED
    }
}

// === impl Traffic ===

impl Traffic {
    /// Nobody waits for anybody.
    pub(crate) const fn unpaced(self) -> Traffic {
        Traffic {
            ahead: FLOOD,
            ..self
        }
    }

    pub(crate) const fn window(self, window: usize) -> Traffic {
        Traffic {
            window: Some(window),
            ..self
        }
    }

    pub(crate) const fn prefetch(self, prefetch: u16) -> Traffic {
        Traffic {
            prefetch: Some(prefetch),
            ..self
        }
    }

    pub(crate) const fn elsewhere(self) -> Traffic {
        Traffic {
            declared: false,
            ..self
        }
    }

    pub(crate) const fn shared(self) -> Traffic {
        Traffic {
            shared: true,
            ..self
        }
    }

    pub(crate) const fn beside(self, busy: usize) -> Traffic {
        Traffic { busy, ..self }
    }

    pub(crate) fn run(self, lab: &Lab<'_>, route: &Route) -> anyhow::Result<Figures> {
        let scale = lab.settings.scale;
        let (pairs, time) = match self.pace {
            Some(_) => (1, scale.paced),
            // What the broker has taken takes several times as long to come out.
            None if self.window.is_none() && self.ahead == FLOOD => (PAIRS, scale.time / 3),
            None => (PAIRS, scale.time),
        };
        let queues: Vec<_> = (0..pairs).map(|_| queue()).collect();
        let streams = queues.iter().map(|queue| self.stream(lab, route, queue));
        let streams = streams.collect::<anyhow::Result<Vec<_>>>()?;
        let over = AtomicBool::new(false);
        let figures = thread::scope(|scope| {
            for _ in 0..self.busy {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let figures = measure(lab, route, streams, time);
            over.store(true, Relaxed);
            figures
        });
        if !self.declared {
            let mut control = Connection::open(&lab.broker.address)?;
            queues
                .iter()
                .try_for_each(|queue| control.delete_queue(queue))?;
        }
        figures
    }

    fn stream(self, lab: &Lab<'_>, route: &Route, queue: &str) -> anyhow::Result<Stream> {
        let mut reader = Connection::open(&route.address)?;
        if self.declared {
            // Exclusive: gone with the reader, whatever happens. Transient and classic: the least that a broker can do.
            reader.declare(queue, QueueDeclare::EXCLUSIVE, arguments(None))?;
        } else {
            let mut owner = Connection::open(&lab.broker.address)?;
            owner.declare(queue, QueueDeclare::DURABLE, arguments(None))?;
            owner.close()?;
        }
        reader.consume(queue, self.prefetch)?;
        let mut publisher = None;
        if !self.shared {
            let mut connection = Connection::open(&route.address)?;
            if self.window.is_some() {
                connection.confirms()?;
            }
            publisher = Some(connection);
        }
        Ok(Stream {
            publisher,
            queue: queue.to_owned(),
            message: Message::default(),
            window: self.window,
            pace: self.pace,
            ahead: self.ahead,
            stages: Vec::new(),
            reader,
            acks: self.prefetch.is_some(),
            returns: false,
            delay: Duration::ZERO,
        })
    }
}

/// The broker may still be busy with the end of the last run's.
fn queue() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!(
        "bench.{}.{}",
        std::process::id(),
        NUMBER.fetch_add(1, Relaxed)
    )
}
