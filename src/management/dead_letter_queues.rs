//! Reads how many messages the dead-letter queues have that the proxy knows, every ten seconds, and which queues named exchanges lead to.
//!
//! Each queue is asked for by its name: a page of `/api/queues` costs half a second of the broker's processor where there are 8,000 others.

use std::collections::BTreeSet;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use tracing::debug;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::Known;

use super::{AT_MOST, Management, Pause, leads};

/// Nodes report new numbers every five seconds.
const EVERY: Duration = Duration::from_secs(10);
const MOST_AT_ONCE: usize = 100;

pub(super) struct Counting {
    management: Management,
    vhost: Vhost,
    known: Known,
    next: usize,
    shown: BTreeSet<ShortStr>,
}

#[derive(Deserialize)]
struct Listed {
    /// A new queue has no count yet.
    #[serde(default)]
    messages: Option<u64>,
}

// === impl Counting ===

impl Counting {
    pub(super) fn new(management: &Management, vhost: &Vhost, known: &Known) -> Counting {
        Counting {
            management: management.clone(),
            vhost: vhost.clone(),
            known: known.clone(),
            next: 0,
            shown: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut pause = Pause::new(EVERY, AT_MOST);
        let mut answered = true;
        loop {
            tokio::time::sleep(pause.after(answered)).await;
            answered = self.look().await;
        }
    }

    /// False: no answer; previous counts stay valid for a while.
    pub(super) async fn look(&mut self) -> bool {
        if self.known.wants_survey(&self.vhost) {
            self.survey().await;
        }
        let counted = self.count().await;
        self.show();
        counted
    }

    async fn survey(&self) {
        let (known, vhost) = (self.known.clone(), self.vhost.clone());
        let targets = known.book().targets(&vhost);
        match self.management.survey(&vhost, &targets).await {
            Ok(asked) => {
                // Many bindings take a while, and sessions run on these threads.
                let found = move || {
                    let found = leads::resolve(&asked, targets);
                    known.book().surveyed(&vhost, found);
                };
                let _ = tokio::task::spawn_blocking(found).await;
            }
            Err(error) => {
                debug!(%vhost, %error, "the vhost cannot be surveyed: it is not known where its named dead-letter exchanges lead");
            }
        }
    }

    async fn count(&mut self) -> bool {
        let mut queues = self.known.book().due(&self.vhost, self.known.now());
        if queues.is_empty() {
            return true;
        }
        let all = queues.len();
        queues.rotate_left(self.next % all);
        self.next = match all > MOST_AT_ONCE {
            true => (self.next + MOST_AT_ONCE) % all,
            false => 0,
        };
        queues.truncate(MOST_AT_ONCE);
        let vhost = percent_encode(&self.vhost, NON_ALPHANUMERIC);
        let asked = self.management.api.ask(async |mut api| {
            for queue in &queues {
                let name = percent_encode(queue, NON_ALPHANUMERIC);
                let path = format!("queues/{vhost}/{name}?columns=messages");
                match api.find(path).await? {
                    Some(Listed {
                        messages: Some(messages),
                    }) => {
                        let (known, now) = (&self.known, self.known.now());
                        known.book().counted(&self.vhost, queue, messages, now);
                    }
                    Some(Listed { messages: None }) => {}
                    None => {
                        let now = self.known.now();
                        self.known.book().gone(&self.vhost, queue, now);
                    }
                }
            }
            Ok(())
        });
        let asked = asked.await;
        self.management.metrics.management(asked.is_ok());
        if let Err(error) = &asked {
            let vhost = &self.vhost;
            debug!(%vhost, %error, "the dead-letter queues of the vhost cannot be counted now");
        }
        asked.is_ok()
    }

    /// Unknown values are removed.
    fn show(&mut self) {
        let metrics = &self.management.metrics;
        let before = std::mem::take(&mut self.shown);
        for queue in self.known.of(&self.vhost).queues {
            metrics.dead_letter_queue(
                &self.vhost,
                &queue.queue,
                queue.messages,
                queue.oldest_seconds.map(Duration::from_secs),
            );
            self.shown.insert(queue.queue);
        }
        for gone in before.difference(&self.shown) {
            metrics.dead_letter_queue(&self.vhost, gone, None, None);
        }
    }
}
