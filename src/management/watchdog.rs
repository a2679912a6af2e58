//! Looks at the proxy's own queues of a vhost every 20 seconds: says what is wrong with them, and when a delay queue holds what should be out; and
//! tells the publisher which of these there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::alteration::Order;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::Known;
use crate::machine::{Event, Trouble, Witness};
use crate::net::clock::SystemClock;
use crate::net::links::Watchdog;
use crate::net::outlet::Observer;
use crate::objects::Names;
use crate::registry::catalogue::Catalogue;
use crate::registry::existing_delays::ExistingDelays;

use super::dead_letter_queues::Counting;
use super::http::NoAnswer;
use super::listing::{Learner, Listing};
use super::overdue::{News, Watched};
use super::queues::{DelayQueue, OwnQueues};
use super::{AT_MOST, Management, Pause};

/// A policy that bounds a queue is reported within 30 s, and 200 proxies take less than a tenth of
/// a core.
const EVERY: Duration = Duration::from_secs(20);
/// After an alteration: an operator who alters many queues does not wait 20 s for each.
const SOON: Duration = Duration::from_secs(2);
const LATELY: Duration = Duration::from_secs(60);

pub(super) struct Watch {
    management: Management,
    vhost: Vhost,
    names: Names,
    existing: ExistingDelays,
    watched: Watched,
    observer: Box<dyn Observer>,
    last: BTreeMap<ShortStr, Option<Trouble>>,
    is_blind: bool,
    /// Takes part in an alteration of another proxy.
    attending: Option<JoinHandle<()>>,
    attended: Option<Instant>,
}

impl Management {
    /// Each watch also counts known dead-letter queues and feeds the catalogue.
    pub fn watchdog(
        &self,
        names: Names,
        known: Known,
        catalogue: Catalogue,
        clock: SystemClock,
    ) -> Watchdog {
        let management = self.clone();
        Arc::new(move |vhost, existing, questions, observer| {
            let watch = Watch::new(&management, vhost, &names, existing, observer);
            let counting = Counting::new(&management, vhost, &known);
            let listing = Listing {
                management: management.clone(),
                clock,
                learner: Learner {
                    vhost: vhost.clone(),
                    names: names.clone(),
                    catalogue: catalogue.clone(),
                },
            };
            Box::pin(async move {
                tokio::join!(watch.run(), counting.run(), listing.run(questions));
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
        observer: Box<dyn Observer>,
    ) -> Watch {
        Watch {
            management: management.clone(),
            vhost: vhost.clone(),
            names: names.clone(),
            existing,
            watched: Watched::default(),
            observer,
            last: BTreeMap::new(),
            is_blind: false,
            attending: None,
            attended: None,
        }
    }

    async fn run(mut self) {
        let mut pause = Pause::new(EVERY, AT_MOST);
        loop {
            let answered = self.look().await;
            let lately = |at: Instant| at.elapsed() < LATELY;
            pause.usual = match self.attended.is_some_and(lately) {
                true => SOON,
                false => EVERY,
            };
            pause.sleep(answered).await;
        }
    }

    /// False: no answer; earlier facts stay.
    pub(super) async fn look(&mut self) -> bool {
        let Management {
            api, metrics, turn, ..
        } = &self.management;
        let queues = {
            let _turn = turn.acquire().await;
            api.own_queues(&self.vhost, &self.names).await
        };
        metrics.management(queues.is_ok());
        let vhost = &self.vhost;
        let delays = queues.as_ref().ok().map(|queues| &queues.delays);
        metrics.delayed(vhost, delays.map(|delays| waiting_and_due(delays)));
        let queues = match queues {
            Ok(queues) => queues,
            // Else the API is away, and whoever reads policies says so.
            Err(error @ NoAnswer::Status { .. }) if !self.is_blind => {
                self.is_blind = true;
                warn!(%vhost, %error, "the proxy's own queues of the vhost cannot be watched");
                return false;
            }
            Err(error) => {
                debug!(%vhost, %error, "the proxy's own queues of the vhost cannot be watched now");
                return false;
            }
        };
        if std::mem::take(&mut self.is_blind) {
            info!(%vhost, "the proxy's own queues of the vhost can be watched again");
        }
        let OwnQueues {
            delays,
            conditions,
            orders,
        } = queues;
        let millis = delays.iter().map(|queue| queue.millis);
        self.existing.set(millis.collect());
        for news in self.watched.look(&delays) {
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
        self.tell(conditions);
        self.attend(orders);
        true
    }

    /// One at a time; the next one is found again.
    fn attend(&mut self, orders: Vec<Order>) {
        let is_idle = self.attending.as_ref().is_none_or(JoinHandle::is_finished);
        if is_idle
            && let Some(order) = orders.into_iter().next()
            && let Some(alterations) = self.management.alterations.get().cloned()
        {
            self.attended = Some(Instant::now());
            let vhost = self.vhost.clone();
            let attending = async move { alterations.attend(&vhost, order).await };
            self.attending = Some(tokio::spawn(attending));
        }
    }

    /// A state counts when two looks agree: leaders change and nodes start.
    fn tell(&mut self, conditions: Vec<(ShortStr, Option<Trouble>)>) {
        let is_state = |seen: &Option<Trouble>| matches!(seen, Some(Trouble::State(_)));
        let before = std::mem::take(&mut self.last);
        for (queue, trouble) in conditions {
            if !is_state(&trouble) || before.get(&queue).is_some_and(is_state) {
                self.observer.event(&Event::OwnQueue {
                    queue: queue.clone(),
                    witness: Witness::Management,
                    trouble: trouble.clone(),
                });
            }
            self.last.insert(queue, trouble);
        }
    }
}

fn waiting_and_due(delays: &[DelayQueue]) -> [u64; 2] {
    let sum = |of: fn(&DelayQueue) -> Option<u64>| delays.iter().filter_map(of).sum::<u64>();
    let due = sum(|queue| queue.leaving);
    [sum(|queue| queue.messages).saturating_sub(due), due]
}
