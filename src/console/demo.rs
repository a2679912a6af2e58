//! `dlx-proxy demo`: an ordinary client (lapin) publishes messages and plays their worker. Some die as RabbitMQ alone would not let them: their
//! dead-letter exchange comes late, or they come back with delays on a classic queue. The demonstration reports each step, survives a lost
//! connection, and ends well only if every message was done or became the right dead letter.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use amq_protocol::uri::AMQPUri;
use futures::stream::{BoxStream, SelectAll, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicRejectOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use crate::url::Url;

/// For each step. The longest is up to a minute: parked messages are tried again that often.
const PATIENCE: Duration = Duration::from_secs(90);
/// Queues of a killed demonstration delete themselves.
const UNUSED_FOR: i32 = 5 * 60 * 1000;

const ORDERS: &str = "demo.orders";
const PAYMENTS: &str = "demo.payments";
const DEAD: &str = "demo.dead";
/// The dead-letter exchange of the payments, missing at first.
const LATE: &str = "demo.errors";

/// Before each retry.
const DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];
/// How late a retry may be: the machine may be slow, and the proxy may be down meanwhile.
const LATE_BY: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// Returned each time, until the delivery limit.
    Returned,
    Rejected,
}

/// How many messages of a queue have which fate, and the error in their headers.
const BATCHES: [(&str, usize, Fate, &str); 6] = [
    (ORDERS, 24, Fate::Done, ""),
    (ORDERS, 8, Fate::Returned, "OutOfStock: no stock left"),
    (ORDERS, 6, Fate::Rejected, "KeyError: 'customer'"),
    (PAYMENTS, 12, Fate::Done, ""),
    (PAYMENTS, 10, Fate::Rejected, "CardDeclined: no funds"),
    (PAYMENTS, 4, Fate::Rejected, "Timeout: the bank is silent"),
];

#[derive(Debug, Error)]
pub enum Error {
    /// Does not quote the text, which may have a password.
    #[error("--url: {0}; write it like \"amqp://user:password@host:5673\"")]
    Url(&'static str),
    /// Accepted the connection, but does not answer.
    #[error("no answer within {} seconds", PATIENCE.as_secs())]
    Silent,
    #[error("cannot connect: {0}")]
    Connect(lapin::Error),
    #[error("the demonstration was interrupted: {0}")]
    Interrupted(#[from] lapin::Error),
    #[error("not within {} seconds: {step}", PATIENCE.as_secs())]
    Missing { step: &'static str },
    #[error(
        "returned orders come back at once: no dlx-proxy handles the retries of \"{ORDERS}\" here"
    )]
    NoDelay,
    #[error("an order came back after {0:.1?}, not after {1:?}")]
    WrongDelay(Duration, Duration),
    #[error("these messages are neither done nor the right dead letters: {0}")]
    Wrong(String),
}

struct Demo {
    uri: AMQPUri,
    keep: bool,
    begun: Instant,
    connection: Connection,
    channel: Channel,
    deliveries: SelectAll<BoxStream<'static, (&'static str, lapin::Result<Delivery>)>>,
    /// When each message was delivered: first, after one retry, after two ...
    tries: Vec<Vec<Instant>>,
    /// Deliveries that are no retry: the connection was lost before the message was settled.
    again: usize,
    done: BTreeSet<usize>,
    /// The last death of a message: the reason and the queue.
    dead: BTreeMap<usize, (String, String)>,
}

/// Runs the demonstration at `url`; `keep`: its queues stay, with the dead letters.
///
/// # Errors
/// The connection fails, or something is not as it should be with dlx-proxy.
pub async fn run(url: &str, keep: bool) -> Result<(), Error> {
    let mut demo = Demo::begin(uri(url).map_err(Error::Url)?, keep).await?;
    let told = demo.tell().await;
    let end = async {
        if !keep {
            remove(&demo.channel).await?;
        }
        // lapin refuses to close a connection while a dropped channel is closing.
        demo.channel.close(200, "done".into()).await?;
        demo.connection.close(200, "done".into()).await
    };
    let ended = timeout(PATIENCE, end).await.map_err(|_| Error::Silent);
    told?; // worth more words than that the cleaning up failed, too
    Ok(ended??)
}

/// Ignores a `/` at the end, like `upstream`; `AMQPUri` would take it for a vhost without a name,
/// and an IPv6 address for `localhost`.
fn uri(text: &str) -> Result<AMQPUri, &'static str> {
    let url = Url::parse(text)?;
    let mut uri: AMQPUri = text.trim().parse().map_err(|_| "not an AMQP URL")?;
    (uri.authority.host, _) = url.host()?;
    if url.path() == "/" {
        uri.vhost = AMQPUri::default().vhost;
    }
    Ok(uri)
}

fn messages() -> impl Iterator<Item = (&'static str, Fate, &'static str)> {
    let each = |(queue, count, fate, error)| std::iter::repeat_n((queue, fate, error), count);
    BATCHES.into_iter().flat_map(each)
}

fn count(wanted: impl Fn(&str, Fate) -> bool) -> usize {
    messages()
        .filter(|(queue, fate, _)| wanted(queue, *fate))
        .count()
}

async fn connect(uri: &AMQPUri) -> lapin::Result<Connection> {
    let properties = ConnectionProperties::default().with_connection_name("dlx-proxy demo".into());
    Connection::connect_uri(uri.clone(), properties).await
}

async fn declare(channel: &Channel, keep: bool) -> lapin::Result<()> {
    let text = |name: &str, value: &str| (name.to_owned(), AMQPValue::LongString(value.into()));
    let number = |name: &str, value| (name.to_owned(), AMQPValue::LongInt(value));
    let limit = i32::try_from(DELAYS.len()).unwrap_or(i32::MAX);
    let of_orders = vec![
        text("x-dead-letter-exchange", ""),
        text("x-dead-letter-routing-key", DEAD),
        number("x-delayed-retry-min", 1000),
        number("x-delayed-retry-multiplier", 2),
        number("x-delayed-retry-max", 60_000),
        number("x-delivery-limit", limit),
    ];
    let of_payments = vec![text("x-dead-letter-exchange", LATE)];
    for (queue, mut arguments) in [(DEAD, vec![]), (ORDERS, of_orders), (PAYMENTS, of_payments)] {
        arguments.push(text("x-queue-type", "classic"));
        if !keep {
            arguments.push(number("x-expires", UNUSED_FOR));
        }
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert(name.into(), value);
        }
        let durable = QueueDeclareOptions::durable();
        channel.queue_declare(queue.into(), durable, table).await?;
    }
    Ok(())
}

async fn publish(channel: &Channel) -> lapin::Result<()> {
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await?;
    for (number, (queue, _, error)) in messages().enumerate() {
        let mut headers = FieldTable::default();
        if !error.is_empty() {
            let error = AMQPValue::LongString(error.into());
            headers.insert("x-exception-message".into(), error);
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/json".into())
            .with_message_id(number.to_string().into())
            .with_headers(headers);
        let body = format!(
            "{{\"number\": {number}, \"customer\": \"C-{}\"}}",
            1000 + number % 7
        );
        let (exchange, options) = (ShortString::default(), BasicPublishOptions::default());
        let published =
            channel.basic_publish(exchange, queue.into(), options, body.as_bytes(), properties);
        published.await?.await?;
    }
    Ok(())
}

/// Deleting a missing object is no error.
async fn remove(channel: &Channel) -> lapin::Result<()> {
    for queue in [ORDERS, PAYMENTS, DEAD] {
        let options = QueueDeleteOptions::default();
        channel.queue_delete(queue.into(), options).await?;
    }
    let options = ExchangeDeleteOptions::default();
    channel.exchange_delete(LATE.into(), options).await
}

/// The newest entry of `x-death`: its reason and queue, empty if there is none.
fn death(delivery: &Delivery) -> (String, String) {
    let deaths = header(delivery, "x-death").and_then(AMQPValue::as_array);
    let newest = deaths.and_then(|deaths| deaths.as_slice().first()?.as_field_table());
    let field = |name: &str| match newest.and_then(|newest| newest.inner().get(name)) {
        Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        _ => String::new(),
    };
    (field("reason"), field("queue"))
}

fn header<'a>(delivery: &'a Delivery, name: &str) -> Option<&'a AMQPValue> {
    delivery.properties.headers().as_ref()?.inner().get(name)
}

// === impl Demo ===

impl Demo {
    async fn begin(uri: AMQPUri, keep: bool) -> Result<Self, Error> {
        let first = async {
            let connection = connect(&uri).await.map_err(Error::Connect)?;
            let channel = connection.create_channel().await?;
            let mut demo = Self {
                uri,
                keep,
                begun: Instant::now(),
                connection,
                channel,
                deliveries: SelectAll::new(),
                tries: vec![Vec::new(); messages().count()],
                again: 0,
                done: BTreeSet::new(),
                dead: BTreeMap::new(),
            };
            remove(&demo.channel).await?; // of an earlier one
            demo.consume().await?;
            publish(&demo.channel).await?;
            Ok(demo)
        };
        timeout(PATIENCE, first).await.map_err(|_| Error::Silent)?
    }

    async fn tell(&mut self) -> Result<(), Error> {
        let all = messages().count();
        let done = count(|_, fate| fate == Fate::Done);
        let returned = count(|_, fate| fate == Fate::Returned);
        let late = count(|queue, fate| queue == PAYMENTS && fate == Fate::Rejected);
        self.say(format!(
            "{all} messages are in {ORDERS} and {PAYMENTS}, two classic queues"
        ));
        let step = "each message is delivered";
        self.until(step, |it| it.tries.iter().all(|tries| !tries.is_empty()))
            .await?;
        self.say(format!(
            "{done} are done; {returned} orders are returned for a retry"
        ));
        self.say(format!(
            "{late} payments are rejected, but their dead-letter exchange is missing"
        ));
        for (retry, delay) in DELAYS.into_iter().enumerate() {
            if retry == 1 {
                sleep(Duration::from_millis(500)).await; // until the broker has confirmed all
                self.say("the orders wait for their second retry");
            }
            let back = |tries: &Vec<Instant>| tries.len() > retry + 1;
            let step = "the returned orders come back";
            self.until(step, |it| it.returned().all(back)).await?;
            let after = self.after(retry, delay)?;
            self.say(format!(
                "the orders come back after {:.1} s",
                after.as_secs_f32()
            ));
        }
        let died = count(|queue, fate| queue == ORDERS && fate != Fate::Done);
        let step = "the orders are dead letters";
        self.until(step, |it| it.dead.len() >= died).await?;
        self.say(format!(
            "they reach their limit, and are in {DEAD} with the reason delivery_limit"
        ));
        self.declare_late().await?;
        self.say("the missing exchange is declared; what is parked goes there within a minute");
        let step = "the parked payments arrive";
        self.until(step, |it| it.done.len() + it.dead.len() == all)
            .await?;
        self.say(format!("{late} payments are in {DEAD}"));
        self.check()?;
        self.say(format!(
            "{all} published = {done} done + {} dead letters: nothing is lost",
            all - done
        ));
        Ok(())
    }

    fn say(&self, what: impl AsRef<str>) {
        let seconds = self.begun.elapsed().as_secs_f32();
        // Nobody may be there to read it.
        drop(writeln!(
            std::io::stdout(),
            "{seconds:5.1} s  {}",
            what.as_ref()
        ));
    }

    /// Plays the worker until that is so, through any number of lost connections.
    async fn until(&mut self, step: &'static str, so: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let work = async {
            while !so(self) {
                let taken = match self.deliveries.next().await {
                    Some((queue, Ok(delivery))) => self.take(queue, delivery).await,
                    _ => Err(lapin::ErrorKind::MissingHeartbeatError.into()),
                };
                if self.again > messages().count() * DELAYS.len() {
                    return Err(Error::NoDelay);
                }
                if taken.is_err() {
                    self.connect_again().await;
                }
            }
            Ok(())
        };
        let ended = timeout(PATIENCE, work).await;
        ended.map_err(|_| Error::Missing { step })?
    }

    async fn take(&mut self, queue: &str, delivery: Delivery) -> lapin::Result<()> {
        let id = delivery.properties.message_id().as_ref();
        let number = id.and_then(|id| id.as_str().parse::<usize>().ok());
        let Some((number, (_, fate, _))) = number.and_then(|it| messages().enumerate().nth(it))
        else {
            return Ok(()); // not one of these
        };
        if queue == DEAD {
            self.dead.insert(number, death(&delivery)); // stays there unsettled, to be looked at
            return Ok(());
        }
        let retries = header(&delivery, "x-delivery-count").and_then(AMQPValue::as_long_long_int);
        match usize::try_from(retries.unwrap_or(0)) == Ok(self.tries[number].len()) {
            true => self.tries[number].push(Instant::now()),
            false => self.again += 1,
        }
        let requeue = fate == Fate::Returned;
        match fate {
            Fate::Done => {
                delivery.ack(BasicAckOptions::default()).await?;
                self.done.insert(number);
            }
            _ => {
                delivery.reject(BasicRejectOptions { requeue }).await?;
            }
        }
        Ok(())
    }

    async fn consume(&mut self) -> lapin::Result<()> {
        // As workers do: the proxy knows a queue's arguments by the connection that declares it.
        declare(&self.channel, self.keep).await?;
        self.deliveries.clear();
        for queue in [ORDERS, PAYMENTS, DEAD] {
            let (options, table) = (BasicConsumeOptions::default(), FieldTable::default());
            let tag = ShortString::default();
            let consumer = self
                .channel
                .basic_consume(queue.into(), tag, options, table);
            let deliveries = consumer.await?.map(move |delivery| (queue, delivery));
            self.deliveries.push(deliveries.boxed());
        }
        Ok(())
    }

    async fn connect_again(&mut self) {
        loop {
            sleep(Duration::from_millis(200)).await;
            if self.connect().await.is_ok() {
                return self.say("the worker lost its connection, and is connected again");
            }
        }
    }

    async fn connect(&mut self) -> lapin::Result<()> {
        self.connection = connect(&self.uri).await?;
        self.channel = self.connection.create_channel().await?;
        self.consume().await
    }

    async fn declare_late(&self) -> lapin::Result<()> {
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..Default::default()
        };
        let (late, fanout) = (ShortString::from(LATE), ExchangeKind::Fanout);
        let (options, table) = (QueueBindOptions::default(), FieldTable::default);
        let declare = self
            .channel
            .exchange_declare(late.clone(), fanout, durable, table());
        declare.await?;
        let (dead, key) = (DEAD.into(), ShortString::default());
        self.channel
            .queue_bind(dead, late, key, options, table())
            .await
    }

    /// The tries of each order that is returned.
    fn returned(&self) -> impl Iterator<Item = &Vec<Instant>> {
        let tries = self.tries.iter().zip(messages());
        tries
            .filter(|(_, (_, fate, _))| *fate == Fate::Returned)
            .map(|(tries, _)| tries)
    }

    /// The time before this retry, of the order that is furthest from its delay.
    fn after(&self, retry: usize, delay: Duration) -> Result<Duration, Error> {
        let between = |tries: &Vec<Instant>| Some(*tries.get(retry + 1)? - *tries.get(retry)?);
        let times = self.returned().filter_map(between);
        let after = times
            .max_by_key(|time| time.abs_diff(delay))
            .unwrap_or_default();
        // The clocks of a broker and of this machine are not one.
        match after < delay.mul_f32(0.95) || after > delay + LATE_BY {
            true => Err(Error::WrongDelay(after, delay)),
            false => Ok(after),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let is_right = |number: usize, queue: &str, fate: Fate| {
            let died = |reason: &str| {
                let right = (reason.to_owned(), queue.to_owned());
                self.dead.get(&number) == Some(&right) && !self.done.contains(&number)
            };
            match fate {
                Fate::Done => self.done.contains(&number) && !self.dead.contains_key(&number),
                Fate::Returned => died("delivery_limit"),
                Fate::Rejected => died("rejected"),
            }
        };
        let wrong = messages()
            .enumerate()
            .filter(|(number, (queue, fate, _))| !is_right(*number, queue, *fate));
        let wrong: Vec<_> = wrong
            .map(|(number, (queue, ..))| format!("{number} of {queue}"))
            .collect();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(Error::Wrong(wrong.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn the_url_leads_where_it_says() {
        let parts = |text: &str| {
            let uri = uri(text).expect(text);
            (uri.authority.host, uri.authority.port, uri.vhost)
        };
        let at = |host: &str, port, vhost: &str| (host.to_owned(), port, vhost.to_owned());
        assert_eq!(parts("amqp://a:b@h:1/orders\n"), at("h", 1, "orders"));
        assert_eq!(parts("amqp://[::1]"), at("::1", 5672, "/"));
        for root in ["amqps://h", "amqps://h/", "amqps://h/%2F"] {
            assert_eq!(parts(root), at("h", 5671, "/"), "{root}");
        }
        for wrong in ["amqp://a:b@c@h", "http://h", "amqp://a,b", "h"] {
            assert!(uri(wrong).is_err(), "{wrong}");
        }
    }
}
