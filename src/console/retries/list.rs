//! `dlx-proxy retries list`.

use serde::Serialize;

use super::sources::{Source, Sources};
use super::{Error, Place, not_there};
use crate::letter::Letter;
use crate::net::clock::Clock;
use crate::walk::{Bodies, Task};

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Listing {
    delay_queues: Vec<DelayQueue>,
    queues: Vec<Source>,
    /// Expired delays wait here for a proxy.
    intake: Vec<Intake>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct DelayQueue {
    vhost: String,
    queue: String,
    delay_ms: u64,
    waiting: u64,
    leaving: Option<u64>,
    scanned: u64,
    has_delivery_limit: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Intake {
    vhost: String,
    queue: String,
    /// Including dead letters.
    messages: u64,
    proxies: u64,
}

/// Browses the first `messages` of each delay queue. `delays`: in milliseconds; empty means all.
///
/// # Errors
/// When the delay queues are unknown, or the broker does not answer.
pub async fn list(place: &Place, delays: &[u64], messages: u16) -> Result<Listing, Error> {
    let mut listing = Listing::default();
    for vhost in &place.vhosts {
        let known = place.delays(vhost, delays).await?;
        let mut sources = Sources::default();
        for delay in known {
            let queue = place.names.delay_queue(delay.millis);
            let scanned = match delay.has_delivery_limit {
                false => messages.into(),
                true => 0,
            };
            let (task, now) = (Task::Look(Bodies::Begin), place.walker.clock.now().wall);
            let sees = |letter: Letter| sources.add(letter.waiting(), now);
            let walked = place.walk(vhost, &queue, (scanned, task), sees).await?;
            let Some(walked) = walked else {
                listing.notes.push(not_there(vhost, &queue));
                continue;
            };
            listing.delay_queues.push(DelayQueue {
                vhost: vhost.to_string(),
                queue: queue.to_string(),
                delay_ms: delay.millis,
                waiting: walked.ready.unwrap_or(walked.seen),
                leaving: delay.leaving,
                scanned: walked.seen,
                has_delivery_limit: delay.has_delivery_limit,
            });
            if delay.has_delivery_limit {
                listing.notes.push(format!(
                    "{queue} in vhost {vhost} has a delivery limit: its messages were not looked at"
                ));
            }
        }
        listing.queues.extend(sources.finish(vhost));
        let queue = place.names.intake_queue();
        let counted = place.count(vhost, queue).await?;
        listing.intake.extend(counted.map(|counted| Intake {
            vhost: vhost.to_string(),
            queue: queue.to_string(),
            messages: counted.ready.unwrap_or_default(),
            proxies: counted.consumers.unwrap_or_default(),
        }));
    }
    Ok(listing)
}
