//! `dlx-proxy retries list`.

use serde::Serialize;

use super::broker::{Bounds, Broker, Fate};
use super::sources::{Source, Sources};
use super::waiting::Waiting;
use super::{Error, Place, not_there};
use crate::net::clock::{Clock, SystemClock};

/// What waits for a retry.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Listing {
    delay_queues: Vec<DelayQueue>,
    /// For which queues, as far as it was looked at.
    queues: Vec<Source>,
    /// Where what is over waits for a proxy, if there ever was one.
    intake: Vec<Intake>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct DelayQueue {
    vhost: String,
    queue: String,
    delay_ms: u64,
    /// Messages whose time is not over.
    waiting: u64,
    /// Messages that the broker has not got rid of yet, if that is known.
    leaving: Option<u64>,
    /// Messages that the other table counts.
    looked_at: u64,
    /// Then none is looked at.
    has_delivery_limit: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Intake {
    vhost: String,
    queue: String,
    /// Of all kinds: dead letters too.
    messages: u64,
    proxies: u64,
}

/// What waits: the first `messages` of each delay queue are looked at. `delays`: only these, in milliseconds; none means all.
///
/// # Errors
/// When the delay queues are not known, or the broker does not answer.
pub async fn list(place: &Place, delays: &[u64], messages: u16) -> Result<Listing, Error> {
    let mut listing = Listing::default();
    for vhost in &place.vhosts {
        let known = place.delays(vhost, delays).await?;
        let broker = Broker::connect(place, vhost).await?;
        let (mut sources, clock) = (Sources::default(), SystemClock::start());
        for delay in known {
            let queue = place.names.delay_queue(delay.millis);
            let Some(counted) = broker.count(&queue).await? else {
                listing.notes.push(not_there(vhost, &queue));
                continue;
            };
            let bounds = Bounds {
                seen: match delay.has_delivery_limit {
                    false => u64::from(messages).min(counted.ready),
                    true => 0,
                },
                held: messages,
            };
            let now = clock.now().wall;
            let walked = broker.walk(&queue, bounds, |properties| {
                sources.add(Waiting::read(properties), now);
                Fate::Stays
            });
            listing.delay_queues.push(DelayQueue {
                vhost: vhost.to_string(),
                queue: queue.to_string(),
                delay_ms: delay.millis,
                waiting: counted.ready,
                leaving: delay.leaving,
                looked_at: walked.await?.seen(),
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
        let counted = broker.count(queue).await?;
        listing.intake.extend(counted.map(|counted| Intake {
            vhost: vhost.to_string(),
            queue: queue.to_string(),
            messages: counted.ready,
            proxies: counted.consumers,
        }));
        broker.end().await;
    }
    Ok(listing)
}
