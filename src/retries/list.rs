//! `dlx-proxy retries list`.

use crate::amqp::ids::Vhost;
use crate::net::clock::{Clock, SystemClock};

use super::broker::{Bounds, Broker, Fate};
use super::report::{DelayQueue, Intake, Listing, OfVhost, Sources};
use super::waiting::Waiting;
use super::{Delay, Error, Place};

/// What waits: the first `messages` of each delay queue are looked at. `delays`: only these, in milliseconds; none means all.
///
/// # Errors
/// When the delay queues are not known, or the broker does not answer.
pub async fn list(place: &Place, delays: &[u64], messages: u16) -> Result<Listing, Error> {
    let mut vhosts = Vec::new();
    for vhost in &place.vhosts {
        let known = place.delays(vhost, delays).await?;
        let broker = Broker::connect(place, vhost).await?;
        vhosts.push(of_vhost(place, &broker, vhost, &known, messages).await?);
        broker.end().await;
    }
    Ok(Listing { vhosts })
}

async fn of_vhost(
    place: &Place,
    broker: &Broker,
    vhost: &Vhost,
    known: &[Delay],
    messages: u16,
) -> Result<OfVhost, Error> {
    let mut of_vhost = OfVhost::new(vhost);
    let (mut sources, clock) = (Sources::default(), SystemClock::start());
    for delay in known {
        let queue = place.names.delay_queue(delay.millis);
        let Some(counted) = broker.count(&queue).await? else {
            of_vhost.missing.push(queue.to_string());
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
        of_vhost.delay_queues.push(DelayQueue {
            queue: queue.to_string(),
            delay_ms: delay.millis,
            waiting: counted.ready,
            leaving: delay.leaving,
            looked_at: walked.await?.seen(),
            has_delivery_limit: delay.has_delivery_limit,
        });
    }
    of_vhost.queues = sources.finish();
    let intake = place.names.intake_queue();
    of_vhost.intake = broker.count(intake).await?.map(|counted| Intake {
        queue: intake.to_string(),
        messages: counted.ready,
        proxies: counted.consumers,
    });
    Ok(of_vhost)
}
