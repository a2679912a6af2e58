//! Which queues a dead letter must not enter: `rabbit_dead_letter:detect_cycles` (S6.1), and the lap that a dead letter carries.
//!
//! RabbitMQ looks at the queues that it has routed to. Which queues are behind a named exchange the proxy does not know, and its
//! broker's list of deaths may begin anew with each publication (S4.5). So an automatic dead letter carries, in `x-dlx-proxy-lap`, the queues
//! into which the broker would not have let it, and by which publication it left. If it next dies in one of them, having come there by that
//! publication and by dead-lettering alone, it is a cycle, found one lap late.
//!
//! x-death alone cannot tell: a client that takes a dead letter and publishes it into its queue again, headers and all, leaves the same
//! entries as a cycle does, and RabbitMQ lets it go on for ever. So a client's publish loses its lap on the way through the proxy, and a
//! lap that was copied past the proxy does not fit the exchange and the key by which the message came. The limit: a client that is connected
//! to the broker directly, and so sees the lap, and publishes a dead letter with it *to the dead-letter exchange itself*, with the same key.
//! 3.x tells the exchange only of the first death in a queue by a reason; at any other the message may have been moved back by a shovel or by
//! hand, with the same key. And a policy of the broker's may have set another key on the way to us: of a queue that is known to do that (its
//! first entry shows the key of before, and the lap keeps it in mind) nothing tells by which one the message came. In such doubt the lap
//! counts, but what it would drop is parked.
//!
//! A broker that goes on counting (3.x, 3.13) has looked at each hop but the one that the proxy did. Where it began anew (4.x), the lap stands
//! for what it forgot, over any number of hops, but never over a client's publish: of that, 4.x knows nothing either.

use std::collections::BTreeSet;

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::table::{Table, TableBuilder, Value};
use crate::machine::Reason;

use super::headers::{longstrs, routes};
use super::history::{self, Entry};
use super::private;
use super::remembered::Whole;
use super::{Death, Dialect, Rules};

const QUEUES: &[u8] = b"queues";
const EXCHANGE: &[u8] = b"exchange";
const ROUTING_KEY: &[u8] = b"routing-key";
const DEATHS: &[u8] = b"deaths";
const AT_LEAST_ONCE: &[u8] = b"at-least-once";
const SET: &[u8] = b"set";

/// The queues that a message passed since its last reject.
///
/// RabbitMQ searches from the newest entry to the first one of the target queue, and drops the copy
/// when none of those is `rejected`. These are exactly the queues before the newest rejected entry.
#[derive(Debug)]
pub(super) struct Automatic<'a> {
    queues: BTreeSet<&'a [u8]>,
    /// Each queue once, newest first.
    lap: Vec<&'a [u8]>,
}

/// What an automatic dead letter carries to its next death.
#[derive(Debug)]
pub(super) struct Lap<'a> {
    /// Newest first: the broker would drop it in these.
    pub(super) queues: Vec<&'a [u8]>,
    pub(super) exchange: &'a [u8],
    pub(super) routing_key: &'a [u8],
    /// The number of deaths in its x-death at publishing.
    pub(super) deaths: i64,
    /// Its queue drops nothing, not even a cycle (S6.3).
    pub(super) at_least_once: bool,
    /// On 3.x: queues where it died, each with the key set by the broker's policy.
    pub(super) set: Vec<&'a [u8]>,
}

// === impl Automatic ===

impl<'a> Automatic<'a> {
    /// `whole`: including this death. Deaths that the broker forgot come from the message's own
    /// lap, if that counts.
    pub(super) fn of(
        death: &Death<'a>,
        whole: &Whole<'a>,
        carried: Option<&Lap<'a>>,
    ) -> Automatic<'a> {
        let mut automatic = Automatic {
            queues: BTreeSet::new(),
            lap: Vec::new(),
        };
        if death.reason == Reason::Rejected {
            return automatic;
        }
        let newest = whole
            .of_the_broker()
            .iter()
            .take_while(|entry| !entry.is_rejected())
            .filter_map(Entry::queue);
        // A broker that went on counting has its own order, and that decides (S4.2).
        let before = carried
            .filter(|_| whole.anew)
            .map_or(&[][..], |lap| &lap.queues);
        let this = std::iter::once(&**death.queue);
        for queue in this.chain(newest).chain(before.iter().copied()) {
            if automatic.queues.insert(queue) {
                automatic.lap.push(queue);
            }
        }
        automatic
    }

    pub(super) fn has(&self, queue: &[u8]) -> bool {
        self.queues.contains(queue)
    }

    pub(super) fn queues(&self) -> &[&'a [u8]] {
        &self.lap
    }

    pub(super) fn lap(&self, queue: &[u8]) -> Vec<ShortStr> {
        back_to(queue, &self.lap)
    }
}

// === impl Lap ===

impl<'a> Lap<'a> {
    /// Whether a message's lap counts: no later death was `rejected`, and that publication led to
    /// them. `whole`: including this death.
    pub(super) fn counts(&self, death: &Death<'_>, dialect: Dialect, whole: &Whole<'_>) -> bool {
        if death.reason == Reason::Rejected {
            return false;
        }
        let by_it =
            |exchange: &[u8], key: &[u8]| exchange == self.exchange && key == self.routing_key;
        let is_next = || history::deaths(&whole.entries) == self.deaths.saturating_add(1);
        match dialect {
            Dialect::V3 => {
                is_next()
                    && (death.routing_key == self.routing_key || self.hides_key(death))
                    && came_by(whole).is_none_or(|exchange| exchange == self.exchange)
            }
            Dialect::V3_13 | Dialect::V4 if whole.since().iter().any(Entry::is_rejected) => false,
            // The oldest entry tells how the message came to the first of its deaths, if it has all:
            // a message that came back from a retry has had others, which may be rejects.
            Dialect::V3_13 | Dialect::V4 if whole.anew => {
                whole.since().last().is_some_and(|first| {
                    let since = history::deaths(whole.since());
                    let is_all =
                        history::deaths(&whole.entries) == self.deaths.saturating_add(since);
                    let (exchange, mut keys) = (first.exchange(), first.routing_keys());
                    let way = exchange.zip(keys.next());
                    is_all && way.is_some_and(|(exchange, key)| by_it(exchange, key))
                })
            }
            Dialect::V3_13 | Dialect::V4 => is_next() && by_it(death.exchange, death.routing_key),
        }
    }

    /// Whether to keep what would be dropped: the broker would, or nothing is certain.
    pub(super) fn keeps(&self, death: &Death<'_>, dialect: Dialect, whole: &Whole<'_>) -> bool {
        let hidden = dialect == Dialect::V3 && came_by(whole).is_none();
        self.at_least_once || self.hides_key(death) || hidden
    }

    /// Whether this queue is known to set this key: the message's own key is hidden then.
    fn hides_key(&self, death: &Death<'_>) -> bool {
        let set = [&**death.queue, death.routing_key];
        death.routing_key != self.routing_key && self.set.chunks_exact(2).any(|known| known == set)
    }

    /// Known keys set by policies, with this death's: x-death has the key of the message's first
    /// arrival there.
    pub(super) fn set(
        lap: Option<&Lap<'a>>,
        death: &Death<'a>,
        whole: &Whole<'a>,
        rules: &Rules,
    ) -> Vec<&'a [u8]> {
        let mut set = lap.map_or_else(Vec::new, |lap| lap.set.clone());
        let newest = whole.entries.first().filter(|entry| entry.deaths() == 1);
        let came_by = newest.and_then(|entry| entry.routing_keys().next());
        if rules.dialect == Dialect::V3
            && set.len() < 2 * rules.max_history
            && came_by.is_some_and(|key| key != death.routing_key)
        {
            set.extend([&**death.queue, death.routing_key]);
        }
        set
    }

    pub(super) fn read(headers: Table<'a>) -> Result<Option<Lap<'a>>, Malformed> {
        let Some(table) = headers.get(private::LAP)?.and_then(Value::as_table) else {
            return Ok(None);
        };
        let longstr = |name| Ok(table.get(name)?.and_then(Value::as_longstr));
        let (Some(exchange), Some(routing_key)) = (longstr(EXCHANGE)?, longstr(ROUTING_KEY)?)
        else {
            return Ok(None);
        };
        let Some(deaths) = table.get(DEATHS)?.and_then(Value::as_integer) else {
            return Ok(None);
        };
        Ok(Some(Lap {
            queues: routes(table, QUEUES)?,
            exchange,
            routing_key,
            deaths,
            at_least_once: table.get(AT_LEAST_ONCE)?.is_some(),
            set: routes(table, SET)?,
        }))
    }

    pub(super) fn write(&self) -> TableBuilder {
        let mut table = TableBuilder::default();
        table
            .array(QUEUES, &longstrs(&self.queues))
            .longstr(EXCHANGE, self.exchange)
            .longstr(ROUTING_KEY, self.routing_key)
            .long(DEATHS, self.deaths);
        if self.at_least_once {
            table.boolean(AT_LEAST_ONCE, true);
        }
        if !self.set.is_empty() {
            table.array(SET, &longstrs(&self.set));
        }
        table
    }

    /// For the log, if the message should not have entered this queue: the queue, and the way back
    /// to it.
    pub(super) fn closed_by(&self, queue: &[u8]) -> Option<Vec<ShortStr>> {
        self.queues
            .contains(&queue)
            .then(|| back_to(queue, &self.queues))
    }
}

/// The message's exchange at its newest death, if x-death shows it on 3.x: there it keeps the first
/// one's (S4.2).
fn came_by<'a>(whole: &'a Whole<'_>) -> Option<&'a [u8]> {
    let newest = whole.entries.first().filter(|entry| entry.deaths() == 1);
    newest.and_then(Entry::exchange)
}

fn back_to(queue: &[u8], lap: &[&[u8]]) -> Vec<ShortStr> {
    let back = lap.iter().position(|q| *q == queue).map_or(0, |at| at + 1);
    std::iter::once(queue)
        .chain(lap.iter().copied().take(back))
        .filter_map(ShortStr::copy)
        .collect()
}
