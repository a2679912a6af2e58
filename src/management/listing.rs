//! Which queues a vhost has, whoever declared them, as the management API tells the catalogue: all of them at start and then seldom, and a
//! single one where a session meets it and nobody knows it.
//!
//! A list is taken in as it comes, queue by queue: however long it is, it takes no memory, and one that breaks off in the middle has told what it
//! told. What a whole list lacks is doubted, not forgotten. It is one list without statistics and without pages, as for each page the broker lists and
//! sorts all of its queues.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::alteration::Order;
use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::method::QueueDeclare;
use crate::amqp::table::{ArrayBuilder, TableBuilder};
use crate::machine::{Limit, Mono};
use crate::net::clock::{Clock, SystemClock};
use crate::net::question::Question;
use crate::objects::{Names, OwnObject, QueueType};
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{self, Catalogue, Report};
use crate::registry::{Declared, Form};

use super::http::{Connection, NoAnswer};
use super::{Management, Pause};

/// Approximate interval. A list of 10,000 queues costs the broker 0.3 s of CPU: 2 % of a core for
/// 200 proxies.
const EVERY: Duration = Duration::from_secs(60 * 60);
const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const COLUMNS: &str =
    "disable_stats=true&columns=name,durable,auto_delete,exclusive,arguments,type";
const MOST_AT_ONCE: usize = 100;

pub(super) struct Listing {
    pub(super) management: Management,
    pub(super) clock: SystemClock,
    pub(super) learner: Learner,
}

#[derive(Clone)]
pub(super) struct Learner {
    pub(super) vhost: Vhost,
    pub(super) names: Names,
    pub(super) catalogue: Catalogue,
}

/// What a list has told, apart from what the catalogue knows now.
#[derive(Debug)]
pub(super) struct Learned {
    /// False: more queues than the catalogue keeps.
    pub(super) is_whole: bool,
    pub(super) orders: Vec<Order>,
}

/// For a queue that runs on no node, RabbitMQ shows little but its arguments.
#[derive(Deserialize)]
pub(super) struct Listed {
    name: String,
    #[serde(default)]
    durable: bool,
    #[serde(default)]
    auto_delete: bool,
    #[serde(default)]
    exclusive: bool,
    #[serde(default)]
    arguments: Value,
    #[serde(default, rename = "type")]
    queue_type: Option<String>,
}

#[derive(Deserialize)]
struct ListedVhost {
    name: String,
    #[serde(default)]
    default_queue_type: Value,
}

// === impl Listing ===

impl Listing {
    pub(super) async fn run(self, questions: mpsc::Receiver<Question>) {
        tokio::join!(self.list_on(), self.answer(questions));
    }

    async fn list_on(&self) {
        let vhost = &self.learner.vhost;
        let (mut pause, mut said) = (Pause::new(EVERY, EVERY), None);
        loop {
            let listed = self.list().await;
            let answered = listed.is_ok();
            match listed {
                Ok(orders) => {
                    if said.take().is_some() {
                        info!(%vhost, "the queues of the vhost can be listed again");
                    }
                    self.attend(orders).await;
                }
                Err(error) => {
                    let error = error.to_string();
                    if said.as_ref() == Some(&error) {
                        debug!(%vhost, %error, "the queues of the vhost still cannot be listed");
                    } else {
                        warn!(%vhost, %error, "the queues of the vhost cannot be listed: the proxy keeps what it knows, and asks for others one by one");
                    }
                    said = Some(error);
                }
            }
            pause.sleep(answered).await;
        }
    }

    /// Returns the orders of alterations. Not all of them are bound where the watchdog looks: a
    /// proxy may end in between.
    pub(super) async fn list(&self) -> Result<Vec<Order>, NoAnswer> {
        let Management {
            api,
            metrics,
            listing,
            ..
        } = &self.management;
        let vhost = percent_encode(&self.learner.vhost, NON_ALPHANUMERIC);
        let _turn = listing.acquire().await;
        let listed = api.ask_within(PATIENCE, async |mut api| {
            self.learn_default_type(&mut api).await?;
            let at = self.clock.now().mono;
            let path = format!("queues/{vhost}?{COLUMNS}");
            let learner = self.learner.clone();
            let read = move |json| learner.learn_all(json, at);
            api.get_in_pieces(path, read).await
        });
        let listed = listed.await;
        metrics.management(listed.is_ok());
        let Learned { is_whole, orders } = listed?;
        if !is_whole {
            metrics.limit_met(Limit::ListedQueues);
        }
        Ok(orders)
    }

    async fn attend(&self, orders: Vec<Order>) {
        for order in orders {
            if let Some(alterations) = self.management.alterations.get() {
                alterations.attend(&self.learner.vhost, order).await;
            }
        }
    }

    async fn learn_default_type(&self, api: &mut Connection) -> Result<(), NoAnswer> {
        let at = self.clock.now().mono;
        let path = "vhosts?disable_stats=true&columns=name,default_queue_type".to_owned();
        let vhosts: Vec<ListedVhost> = api.get(path).await?;
        let Learner {
            vhost, catalogue, ..
        } = &self.learner;
        let ours = vhosts.iter().find(|of| of.name.as_bytes() == &**vhost);
        // `undefined` where only a file of the broker may say it.
        let told = ours.and_then(|of| queue_type(of.default_queue_type.as_str()?));
        if told.is_some() {
            catalogue.learn_default_type(vhost, told, Source::Management, at);
        }
        Ok(())
    }

    async fn answer(&self, mut questions: mpsc::Receiver<Question>) {
        let mut batch: Vec<Question> = Vec::new();
        while questions.recv_many(&mut batch, MOST_AT_ONCE).await > 0 {
            let queues = batch.iter().map(|question| question.queue.clone());
            self.ask_for(&queues.collect()).await;
            batch.clear(); // each session is told
        }
    }

    pub(super) async fn ask_for(&self, queues: &BTreeSet<ShortStr>) {
        let Management { api, metrics, .. } = &self.management;
        let vhost = percent_encode(&self.learner.vhost, NON_ALPHANUMERIC);
        let asked = api.ask(async |mut api| {
            for queue in queues {
                let at = self.clock.now().mono;
                let name = percent_encode(queue, NON_ALPHANUMERIC);
                let path = format!("queues/{vhost}/{name}?{COLUMNS}");
                if let Some(listed) = api.find(path).await? {
                    self.learner.learn(&listed, at);
                }
            }
            Ok(())
        });
        let asked = asked.await;
        metrics.management(asked.is_ok());
        if let Err(error) = asked {
            let vhost = &self.learner.vhost;
            debug!(%vhost, %error, "queues that nobody knows cannot be asked for now");
        }
    }
}

// === impl Learner ===

impl Learner {
    /// `at`: when the list was requested.
    pub(super) fn learn_all(&self, json: impl Read, at: Mono) -> serde_json::Result<Learned> {
        let mut list = serde_json::Deserializer::from_reader(BufReader::new(json));
        let (mut left, mut orders) = (catalogue::MOST, Vec::new());
        let each = Each(|listed: Listed| {
            if left == 0 {
                return false;
            }
            if let Some(OwnObject::Order(_)) = self.names.parse(listed.name.as_bytes()) {
                orders.extend(Order::of_arguments(&listed.arguments));
            }
            self.learn(&listed, at);
            left -= 1;
            true
        });
        let is_whole = match list.deserialize_seq(each).and_then(|()| list.end()) {
            Err(_) if left == 0 => false,
            read => read.map(|()| true)?,
        };
        if is_whole {
            self.doubt_the_others(at);
        }
        Ok(Learned { is_whole, orders })
    }

    /// A list that was requested then tells of all queues.
    fn doubt_the_others(&self, at: Mono) {
        let mut missing = Vec::new();
        self.catalogue.each(|vhost, queue, known| {
            let of_others = |declared: &catalogue::fact::Fact<Arc<Declared>>| {
                declared.at < at && !declared.value.is_exclusive()
            };
            if *vhost == self.vhost && known.declared().is_some_and(of_others) {
                missing.push(queue.clone());
            }
        });
        for queue in missing {
            self.catalogue.doubt(&self.vhost, &queue);
        }
    }

    /// Skips exclusive queues, which only their connection can use, and the proxy's own.
    pub(super) fn learn(&self, listed: &Listed, at: Mono) {
        let name = ShortStr::copy(listed.name.as_bytes());
        let Some(queue) = name.filter(|name| !listed.exclusive && !self.names.is_ours(name)) else {
            return;
        };
        let mut bits = 0;
        for (is, bit) in [
            (listed.durable, QueueDeclare::DURABLE),
            (listed.auto_delete, QueueDeclare::AUTO_DELETE),
        ] {
            bits |= if is { bit } else { 0 };
        }
        let form = Form::of(bits, &arguments(&listed.arguments));
        let queue_type = match &listed.queue_type {
            Some(name) => queue_type(name).unwrap_or(QueueType::Other),
            None => QueueType::Default,
        };
        let declared = Declared::of_queue(form, queue_type, &self.names);
        let told = Report::Declared(Arc::new(declared));
        let source = Source::Management;
        self.catalogue.learn(&self.vhost, &queue, &told, source, at);
    }
}

/// `None`: unknown, or without dead letters.
fn queue_type(name: &str) -> Option<QueueType> {
    match name {
        "classic" | "rabbit_classic_queue" => Some(QueueType::Classic),
        "quorum" | "rabbit_quorum_queue" => Some(QueueType::Quorum),
        _ => None,
    }
}

/// As an AMQP table. JSON loses some types; none of those decides where dead letters go.
fn arguments(told: &Value) -> Vec<u8> {
    let mut table = TableBuilder::default();
    for (name, value) in told.as_object().into_iter().flatten() {
        let Some(name) = ShortStr::copy(name.as_bytes()) else {
            continue;
        };
        match (value, value.as_i64()) {
            (Value::String(text), _) => table.longstr(&name, text.as_bytes()),
            (Value::Bool(value), _) => table.boolean(&name, *value),
            (_, Some(number)) => table.long(&name, number),
            (Value::Array(items), _) => table.array(&name, &array(items)),
            _ => continue,
        };
    }
    table.finish()
}

/// A list of delays, which may mix numbers and texts, reads the same as texts.
fn array(items: &[Value]) -> ArrayBuilder {
    let mut array = ArrayBuilder::default();
    for item in items {
        let text = item
            .as_str()
            .map_or_else(|| item.to_string(), str::to_owned);
        array.longstr(text.as_bytes());
    }
    array
}

/// Calls a function with each member before the next is read, until it returns false.
struct Each<F>(F);

impl<'de, F: FnMut(Listed) -> bool> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of queues")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(listed) = list.next_element()? {
            if !(self.0)(listed) {
                return Err(A::Error::custom("it is more than is kept"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::schedule::Schedule;
    use crate::registry::said_retries::SaidRetries;

    #[test]
    fn a_list_of_delays_is_read_as_it_was_declared() {
        let told = serde_json::json!({"x-delayed-retry-delays": ["1s", 2500]});
        let said = SaidRetries::of_arguments(&arguments(&told));
        assert_eq!(said.delayed_retry_delays, Schedule::parse("1s,2500"));
    }
}
