//! Looks at the delay queues of a vhost every ten seconds: says when one holds what should be out, and tells the publisher which there are.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::amqp::ids::Vhost;
use crate::known::KnownQueues;
use crate::net::links::Watchdog;
use crate::objects::Names;
use crate::registry::existing_delays::ExistingDelays;

use super::dead_letter_queues::Counting;
use super::http::NoAnswer;
use super::overdue::{News, Watched};
use super::{AT_MOST, Management};

/// From one look to the next: nodes tell new numbers every five seconds.
const EVERY: Duration = Duration::from_secs(10);

/// The watchdog of one vhost.
pub(super) struct Watch {
    management: Management,
    vhost: Vhost,
    names: Names,
    existing: ExistingDelays,
    watched: Watched,
    /// It was said that nothing can be seen there.
    is_blind: bool,
}

impl Management {
    /// Makes them. Each also counts what is in the dead-letter queues that are known.
    pub fn watchdog(&self, names: Names, known: KnownQueues) -> Watchdog {
        let management = self.clone();
        Arc::new(move |vhost, existing| {
            let watch = Watch::new(&management, vhost, &names, existing);
            let counting = Counting::new(&management, vhost, &known);
            Box::pin(async move {
                tokio::join!(watch.run(), counting.run());
            })
        })
    }
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(
        management: &Management,
        vhost: &Vhost,
        names: &Names,
        existing: ExistingDelays,
    ) -> Watch {
        Watch {
            management: management.clone(),
            vhost: vhost.clone(),
            names: names.clone(),
            existing,
            watched: Watched::default(),
            is_blind: false,
        }
    }

    /// Looks again and again.
    async fn run(mut self) {
        let mut pause = EVERY;
        loop {
            pause = match self.look().await {
                true => EVERY,
                false => (pause * 2).min(AT_MOST),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Looks once. False: there is no answer, and what was known stays.
    pub(super) async fn look(&mut self) -> bool {
        let Management {
            api, metrics, turn, ..
        } = &self.management;
        let queues = {
            let _turn = turn.acquire().await;
            api.bound_delay_queues(&self.vhost, &self.names).await
        };
        metrics.management(queues.is_ok());
        let vhost = &self.vhost;
        let queues = match queues {
            Ok(queues) => queues,
            // Else the API is away, and whoever reads policies says so.
            Err(error @ NoAnswer::Status { .. }) if !self.is_blind => {
                self.is_blind = true;
                warn!(%vhost, %error, "the delay queues of the vhost cannot be watched");
                return false;
            }
            Err(error) => {
                debug!(%vhost, %error, "the delay queues of the vhost cannot be watched now");
                return false;
            }
        };
        if std::mem::take(&mut self.is_blind) {
            info!(%vhost, "the delay queues of the vhost can be watched again");
        }
        let millis = queues.iter().map(|queue| queue.millis);
        self.existing.set(millis.collect());
        for news in self.watched.look(&queues) {
            match news {
                News::Overdue { millis, messages } => {
                    let queue = self.names.delay_queue(millis);
                    warn!(%vhost, %queue, messages, "a delay queue holds messages whose delay is over: RabbitMQ does not move them into the intake queue");
                }
                News::Over { millis } => {
                    let queue = self.names.delay_queue(millis);
                    info!(%vhost, %queue, "the delay queue no longer holds messages whose delay is over");
                }
            }
        }
        metrics.overdue(vhost, self.watched.overdue());
        true
    }
}
