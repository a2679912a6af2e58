//! `dlx-proxy demo`: an ordinary client (lapin) lets three messages die, shows their dead letters, and says whether they are right. It knows
//! nothing of the proxy, so it must be just as content with RabbitMQ itself. All names are its own, and it leaves nothing behind.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amq_protocol::uri::AMQPUri;
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicRejectOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::timeout;

use crate::url::Url;

mod report;

pub use report::{DeadLetters, Wrong};

/// For each part: connecting, dying, cleaning up. Normally well under a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// In milliseconds, for the message that expires.
const TTL: &str = "200";
/// Queues of a killed demonstration delete themselves, and the exchange goes with its last binding.
const UNUSED_FOR: i32 = 5 * 60 * 1000;

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
    Interrupted(lapin::Error),
}

struct Names {
    exchange: String,
    dead: String,
    rejected: String,
    expired: String,
    overflowing: String,
}

/// Lets three messages die at `url` and collects their dead letters, for at most 30 seconds.
///
/// # Errors
/// The connection fails. Missing or wrong dead letters are no errors here: see
/// [`DeadLetters::check`].
pub async fn run(url: &str) -> Result<DeadLetters, Error> {
    let uri = uri(url).map_err(Error::Url)?;
    let properties = ConnectionProperties::default().with_connection_name("dlx-proxy demo".into());
    let connect = Connection::connect_uri(uri, properties);
    let connection = timeout(PATIENCE, connect)
        .await
        .map_err(|_| Error::Silent)?
        .map_err(Error::Connect)?;
    let names = Names::new();
    let mut seen = Vec::new();
    let ended = timeout(PATIENCE, three_deaths(&connection, &names, &mut seen)).await;
    let cleaned = timeout(PATIENCE, names.delete_and_close(&connection)).await;
    if let Ok(ended) = ended {
        ended.map_err(Error::Interrupted)?;
        cleaned
            .map_err(|_| Error::Silent)?
            .map_err(Error::Interrupted)?;
    } // else some did not come, which is worth more words than that the cleaning up failed too
    Ok(DeadLetters::new(names.expected(), seen))
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

async fn three_deaths(
    connection: &Connection,
    names: &Names,
    seen: &mut Vec<Value>,
) -> lapin::Result<()> {
    let channel = connection.create_channel().await?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await?;
    names.declare(&channel).await?;
    let mut dead = consume(&channel, &names.dead).await?;
    for (queue, body) in [
        (&names.expired, "expired"),
        (&names.overflowing, "overflowing"),
        (&names.overflowing, "takes its place"),
        (&names.rejected, "rejected"),
    ] {
        publish(&channel, queue, body).await?;
    }
    let mut work = consume(&channel, &names.rejected).await?;
    if let Some(delivery) = work.next().await {
        let for_good = BasicRejectOptions { requeue: false };
        delivery?.reject(for_good).await?;
    }
    let is_there = |body: &Value, seen: &[Value]| seen.iter().any(|one| one["body"] == *body);
    let expected = names.expected();
    while !expected
        .iter()
        .all(|wanted| is_there(&wanted["body"], seen))
        && let Some(delivery) = dead.next().await
    {
        let delivery = delivery?;
        let letter = dead_letter(&delivery);
        // A second copy is allowed: both the proxy and RabbitMQ promise "at least once".
        if !is_there(&letter["body"], seen) {
            seen.push(letter);
        }
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

async fn consume(channel: &Channel, queue: &str) -> lapin::Result<Consumer> {
    let (options, table) = (BasicConsumeOptions::default(), FieldTable::default());
    let tag = ShortString::default();
    channel
        .basic_consume(queue.into(), tag, options, table)
        .await
}

async fn publish(channel: &Channel, queue: &str, body: &str) -> lapin::Result<()> {
    let properties = BasicProperties::default().with_delivery_mode(2);
    let properties = match body {
        "expired" => properties.with_expiration(TTL.into()),
        _ => properties,
    };
    let (exchange, options) = (ShortString::default(), BasicPublishOptions::default());
    let body = body.as_bytes();
    let published = channel.basic_publish(exchange, queue.into(), options, body, properties);
    published.await?.await.map(drop)
}

/// From the newest entry of `x-death`. Invalid fields stay empty, which the check reports.
fn dead_letter(delivery: &Delivery) -> Value {
    let headers = delivery.properties.headers().as_ref();
    let deaths = headers.and_then(|headers| headers.inner().get("x-death"));
    let newest = deaths.and_then(AMQPValue::as_array);
    let newest = newest.and_then(|deaths| deaths.as_slice().first()?.as_field_table());
    let field = |name: &str| newest.and_then(|death| death.inner().get(name));
    let text = |value: Option<&AMQPValue>| match value {
        Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        _ => String::new(),
    };
    let keys = field("routing-keys").and_then(AMQPValue::as_array);
    let keys = keys.map_or(&[][..], |keys| keys.as_slice()).iter();
    json!({
        "queue": text(field("queue")),
        "reason": text(field("reason")),
        "count": field("count").and_then(AMQPValue::as_long_long_int),
        "exchange": text(field("exchange")),
        "routing-keys": keys.map(|key| text(Some(key))).collect::<Vec<_>>(),
        "time": field("time").and_then(AMQPValue::as_timestamp),
        "original-expiration": text(field("original-expiration")),
        "body": String::from_utf8_lossy(&delivery.data),
        "delivered-by": delivery.exchange.as_str(),
        "delivered-with": delivery.routing_key.as_str(),
    })
}

fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

// === impl Names ===

impl Names {
    /// Unique, so that demonstrations do not collide.
    fn new() -> Self {
        let name = format!(
            "demo-{:x}{:04x}",
            since_1970().as_micros() & 0xffff_ffff,
            std::process::id() & 0xffff
        );
        let of = |what: &str| format!("{name}.{what}");
        Self {
            exchange: of("dlx"),
            dead: of("dead-letters"),
            rejected: of("rejected"),
            expired: of("expired"),
            overflowing: of("overflowing"),
        }
    }

    fn expected(&self) -> Vec<Value> {
        let dead = |queue: &str, reason: &str, body: &str, original_expiration: &str| {
            json!({
                "queue": queue,
                "reason": reason,
                "count": 1,
                "exchange": "",
                "routing-keys": [queue],
                "time": since_1970().as_secs(),
                "original-expiration": original_expiration,
                "body": body,
                "delivered-by": self.exchange,
                "delivered-with": queue,
            })
        };
        vec![
            dead(&self.rejected, "rejected", "rejected", ""),
            dead(&self.expired, "expired", "expired", TTL),
            dead(&self.overflowing, "maxlen", "overflowing", ""),
        ]
    }

    async fn declare(&self, channel: &Channel) -> lapin::Result<()> {
        let auto_delete = ExchangeDeclareOptions {
            auto_delete: true,
            durable: true,
            ..Default::default()
        };
        let (dead, exchange) = (self.dead.as_str(), self.exchange.as_str());
        let (topic, table) = (ExchangeKind::Topic, FieldTable::default());
        let declare = channel.exchange_declare(exchange.into(), topic, auto_delete, table);
        declare.await?;
        let target = AMQPValue::LongString(exchange.into());
        let target = ("x-dead-letter-exchange", target);
        let bound = ("x-max-length", AMQPValue::LongInt(1));
        for (queue, arguments) in [
            (&self.dead, vec![]),
            (&self.rejected, vec![target.clone()]),
            (&self.expired, vec![target.clone()]),
            (&self.overflowing, vec![target, bound]),
        ] {
            let mut table = FieldTable::default();
            table.insert("x-expires".into(), AMQPValue::LongInt(UNUSED_FOR));
            for (key, value) in arguments {
                table.insert(key.into(), value);
            }
            let durable = QueueDeclareOptions::durable();
            channel
                .queue_declare(queue.as_str().into(), durable, table)
                .await?;
        }
        let (options, table) = (QueueBindOptions::default(), FieldTable::default());
        let bind = channel.queue_bind(dead.into(), exchange.into(), "#".into(), options, table);
        bind.await
    }

    /// On a new channel, because an error may have closed the other. Deleting a missing object is
    /// no error.
    async fn delete_and_close(&self, connection: &Connection) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        for queue in [&self.rejected, &self.expired, &self.overflowing, &self.dead] {
            let options = QueueDeleteOptions::default();
            channel.queue_delete(queue.as_str().into(), options).await?;
        }
        let (exchange, options) = (self.exchange.as_str(), ExchangeDeleteOptions::default());
        channel.exchange_delete(exchange.into(), options).await?;
        // lapin refuses to close a connection while a dropped channel is closing.
        channel.close(200, "done".into()).await?;
        connection.close(200, "done".into()).await
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
