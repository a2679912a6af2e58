//! How the proxy's own queues are: one book for the line, the gauge, `/readyz` and the page.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Metrics;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Trouble, Witness};

/// Reports by witness: healthy (none), or not.
type Said = BTreeMap<Witness, Option<Trouble>>;

#[derive(Debug, Default)]
pub(super) struct OwnQueues(Mutex<BTreeMap<(Vhost, ShortStr), Said>>);

// === impl OwnQueues ===

impl OwnQueues {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Vhost, ShortStr), Said>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Metrics ===

impl Metrics {
    pub fn own_queue(
        &self,
        vhost: &Vhost,
        queue: &ShortStr,
        witness: Witness,
        trouble: Option<Trouble>,
    ) {
        let inner = self.inner();
        let mut all = inner.own_queues.lock();
        let said = all.entry((vhost.clone(), queue.clone())).or_default();
        let is_well = |said: &Said| said.values().all(Option::is_none);
        let was_well = is_well(said);
        if said.insert(witness, trouble.clone()) == Some(trouble.clone()) {
            return;
        }
        // Their number is bounded: a grid of delays, and some others.
        let up = self.own_queue_up.with([vhost.into(), queue.into()]);
        up.set(is_well(said).into());
        match trouble {
            Some(trouble) => {
                let todo = trouble.advice();
                line!(self, OWN_QUEUE_TROUBLE, String::new(), "", %vhost, %queue, %trouble, todo);
            }
            None if !was_well && is_well(said) => {
                line!(self, OWN_QUEUE_WELL, String::new(), "", %vhost, %queue);
            }
            None => {}
        }
    }

    pub fn own_queue_gone(&self, vhost: &Vhost, queue: &ShortStr) {
        let mut all = self.inner().own_queues.lock();
        all.remove(&(vhost.clone(), queue.clone()));
        self.own_queue_up.remove([vhost.into(), queue.into()]);
        line!(self, OWN_QUEUE_GONE, String::new(), "", %vhost, %queue);
    }

    pub fn own_queues_in_trouble(&self, vhost: &Vhost) -> Vec<String> {
        let all = self.inner().own_queues.lock();
        let here = all.iter().filter(|((in_vhost, _), _)| in_vhost == vhost);
        let troubles = here.flat_map(|((_, queue), said)| {
            let troubles = said.values().flatten();
            troubles.map(move |trouble| {
                let todo = trouble.advice();
                format!("queue {queue} of vhost {vhost} {trouble}: {todo}")
            })
        });
        troubles.collect()
    }
}
