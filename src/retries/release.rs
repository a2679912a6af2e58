//! `dlx-proxy retries release`, and `purge`, which does the same walk.

use serde::Serialize;

use crate::amqp::ids::ShortStr;

use super::broker::{Bounds, Broker, Fate};
use super::waiting::Waiting;
use super::{Error, Place, not_there};

/// How many messages of other queues are put aside at most, until a delay queue has been walked along: the largest prefetch there is.
const MOST_ASIDE: u16 = u16::MAX;

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only messages that come back to this queue.
    pub queue: Option<ShortStr>,
    /// They are removed, and do not come back.
    pub removes: bool,
    /// Only those of these delays, in milliseconds; none means all.
    pub delays: Vec<u64>,
}

/// What was let go, or removed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Releases {
    delay_queues: Vec<Released>,
    notes: Vec<String>,
}

/// What was let go of a delay queue, or removed from it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Released {
    vhost: String,
    queue: String,
    released: Option<u64>,
    removed: Option<u64>,
    put_back: u64,
    /// There were more than can be put aside at once.
    cut_short: bool,
}

/// Lets go what waits in the delay queues now. What comes meanwhile stays.
///
/// # Errors
/// When the delay queues are not known, or the broker does not answer. What was let go by then is on its way.
pub async fn release(place: &Place, wanted: &Wanted) -> Result<Releases, Error> {
    let mut releases = Releases::default();
    for vhost in &place.vhosts {
        let known = place.delays(vhost, &wanted.delays).await?;
        let broker = Broker::connect(place, vhost).await?;
        for delay in known {
            let queue = place.names.delay_queue(delay.millis);
            let Some(counted) = broker.count(&queue).await? else {
                releases.notes.push(not_there(vhost, &queue));
                continue;
            };
            let bounds = Bounds {
                seen: counted.ready,
                held: MOST_ASIDE,
            };
            let walk = broker.walk(&queue, bounds, |properties| {
                match wanted.takes(Waiting::read(properties).as_ref()) {
                    true if wanted.removes => Fate::Removed,
                    true => Fate::Goes,
                    false => Fate::Stays,
                }
            });
            let walked = walk.await?;
            releases.delay_queues.push(Released {
                vhost: vhost.to_string(),
                queue: queue.to_string(),
                released: (!wanted.removes).then_some(walked.gone),
                removed: wanted.removes.then_some(walked.gone),
                put_back: walked.stay,
                cut_short: walked.stay >= MOST_ASIDE.into() && walked.seen() < counted.ready,
            });
        }
        let intake = place.names.intake_queue();
        let proxies = broker.count(intake).await?;
        if !wanted.removes && proxies.is_none_or(|counted| counted.consumers == 0) {
            releases.notes.push(format!(
                "no proxy takes messages from {intake} in vhost {vhost}: what was released waits there until one does"
            ));
        }
        broker.end().await;
    }
    Ok(releases)
}

// === impl Wanted ===

impl Wanted {
    /// What no proxy has sent is nobody's retry: it stays until its time is over.
    fn takes(&self, message: Option<&Waiting>) -> bool {
        match (message, &self.queue) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(message), Some(queue)) => message.queue == *queue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Wall;

    #[test]
    fn only_what_is_wanted_goes() {
        let name = |text: &str| ShortStr::copy(text.as_bytes());
        let message = Waiting {
            queue: name("orders").expect("short"),
            due: Wall(1),
            attempts: 1,
        };
        for (queue, expected) in [(None, true), (name("orders"), true), (name("order"), false)] {
            let wanted = Wanted {
                queue,
                ..Wanted::default()
            };
            assert_eq!(wanted.takes(Some(&message)), expected, "{wanted:?}");
            assert!(!wanted.takes(None), "{wanted:?}");
        }
    }
}
