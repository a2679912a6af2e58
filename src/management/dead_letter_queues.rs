//! Reads how many messages the dead-letter queues have that the proxy knows, every ten seconds, and which queues named exchanges lead to.
//!
//! Few queues are asked for by name, 0.3 ms of the broker's processor each. For many, one list of the vhost with totals is cheaper: 25 µs for each
//! queue of the vhost (3.10.8, 4.3.6). A page with statistics costs half a second where there are 8,000 queues.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use tracing::debug;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::known::Known;

use super::http::NoAnswer;
use super::{AT_MOST, Management, Pause, leads};

/// Nodes report new numbers every five seconds.
const EVERY: Duration = Duration::from_secs(10);
/// Queues asked for by name; for more, the list is read.
const MOST_BY_NAME: usize = 100;
/// A list of up to that many queues may be read at each interval, a longer one less often.
const SHORT_LIST: usize = 2_000;
const MOST_SKIPPED: usize = 6;
/// Queues of a vhost that have series, the fullest ones.
const MOST_SERIES: usize = 200;
const PATIENCE: Duration = Duration::from_secs(20);
const TOTALS: &str = "disable_stats=true&enable_queue_totals=true&columns=name,messages";

pub(super) struct Counting {
    management: Management,
    vhost: Vhost,
    known: Known,
    /// Intervals to skip, because the last list was long.
    skip: usize,
    shown: BTreeSet<ShortStr>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    name: String,
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
            skip: 0,
            shown: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut pause = Pause::new(EVERY, AT_MOST);
        let mut answered = true;
        loop {
            pause.sleep(answered).await;
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
        let queues = self.known.book().due(&self.vhost, self.known.now());
        let counted = match queues.len() {
            0 => return true,
            1..=MOST_BY_NAME => self.count_by_name(&queues).await,
            _ if self.skip > 0 => {
                self.skip -= 1;
                return true;
            }
            _ => self.count_in_list(&queues).await,
        };
        self.management.metrics.management(counted.is_ok());
        if let Err(error) = &counted {
            let vhost = &self.vhost;
            debug!(%vhost, %error, "the dead-letter queues of the vhost cannot be counted now");
        }
        counted.is_ok()
    }

    async fn count_by_name(&self, queues: &[ShortStr]) -> Result<(), NoAnswer> {
        let vhost = percent_encode(&self.vhost, NON_ALPHANUMERIC);
        let asked = self.management.api.ask(async |mut api| {
            for queue in queues {
                let name = percent_encode(queue, NON_ALPHANUMERIC);
                let path = format!("queues/{vhost}/{name}?columns=messages");
                let found = api.find(path).await?;
                self.counted(queue, found.as_ref());
            }
            Ok(())
        });
        asked.await
    }

    async fn count_in_list(&mut self, queues: &[ShortStr]) -> Result<(), NoAnswer> {
        let vhost = percent_encode(&self.vhost, NON_ALPHANUMERIC);
        let path = format!("queues/{vhost}?{TOTALS}");
        let _turn = self.management.listing.acquire().await;
        let asked = self.management.api.ask_within(PATIENCE, async |mut api| {
            let listed: Vec<Listed> = api.get(path).await?;
            Ok(listed)
        });
        let listed = asked.await?;
        self.skip = (listed.len() / SHORT_LIST).min(MOST_SKIPPED);
        let listed = listed.iter().map(|one| (one.name.as_bytes(), one));
        let listed: HashMap<_, _> = listed.collect();
        for queue in queues {
            self.counted(queue, listed.get(queue.as_bytes()).copied());
        }
        Ok(())
    }

    /// `None`: there is no such queue.
    fn counted(&self, queue: &ShortStr, found: Option<&Listed>) {
        let (known, vhost, now) = (&self.known, &self.vhost, self.known.now());
        match found.map(|listed| listed.messages) {
            Some(Some(messages)) => known.book().counted(vhost, queue, messages, now),
            Some(None) => {}
            None => known.book().gone(vhost, queue, now),
        }
    }

    /// Unknown values are removed.
    fn show(&mut self) {
        let metrics = &self.management.metrics;
        let before = std::mem::take(&mut self.shown);
        let mut queues = self.known.of(&self.vhost).queues;
        queues.sort_by_key(|of| Reverse((of.messages, of.dead_letters)));
        for queue in queues.into_iter().take(MOST_SERIES) {
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
