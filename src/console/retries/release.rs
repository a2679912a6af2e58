//! `dlx-proxy retries release`, and `purge`, which does the same walk.

use serde::Serialize;

use crate::amqp::ids::ShortStr;

use super::{Error, Place, not_there};
use crate::dead_letter::HistoryForm;
use crate::letter::Filter;
use crate::walk::{Move, Stopped, Task};

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub queue: Option<ShortStr>,
    pub removes: bool,
    /// In milliseconds; empty means all.
    pub delays: Vec<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Releases {
    delay_queues: Vec<Released>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Released {
    vhost: String,
    queue: String,
    released: Option<u64>,
    removed: Option<u64>,
    put_back: u64,
    cut_short: bool,
}

/// Releases what waits now. Later messages stay.
///
/// # Errors
/// When the delay queues are unknown, or the broker does not answer. Earlier releases remain.
pub async fn release(place: &Place, wanted: &Wanted) -> Result<Releases, Error> {
    let mut releases = Releases::default();
    for vhost in &place.vhosts {
        let known = place.delays(vhost, &wanted.delays).await?;
        for delay in known {
            let queue = place.names.delay_queue(delay.millis);
            let walk = (u64::MAX, wanted.task(place));
            let Some(walked) = place.walk(vhost, &queue, walk, |_| ()).await? else {
                releases.notes.push(not_there(vhost, &queue));
                continue;
            };
            let gone = walked.moved.gone;
            releases.delay_queues.push(Released {
                vhost: vhost.to_string(),
                queue: queue.to_string(),
                released: (!wanted.removes).then_some(gone),
                removed: wanted.removes.then_some(gone),
                put_back: walked.seen.saturating_sub(gone),
                cut_short: walked.stopped != Stopped::End,
            });
        }
        let intake = place.names.intake_queue();
        let proxies = place.count(vhost, intake).await?;
        if !wanted.removes && proxies.is_none_or(|counted| counted.consumers == Some(0)) {
            releases.notes.push(format!(
                "no proxy takes messages from {intake} in vhost {vhost}: what was released waits there until one does"
            ));
        }
    }
    Ok(releases)
}

// === impl Wanted ===

impl Wanted {
    /// Messages that no proxy sent stay until they expire.
    fn task(&self, place: &Place) -> Task {
        Task::Move(Box::new(Move {
            filter: Filter {
                waits: Some(self.queue.clone()),
                ..Filter::default()
            },
            most: u64::MAX,
            per_second: None,
            to: None,
            rejects: !self.removes,
            own_user: place.login.user.clone(),
            names: place.names.clone(),
            history_form: HistoryForm::WRITTEN,
        }))
    }
}
