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
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use thiserror::Error;
use tokio::time::timeout;

use crate::url::Url;

mod report;

pub use report::{DeadLetter, DeadLetters, Wrong};

/// For each part: connecting, dying, cleaning up. A TTL of [`TTL`] and three confirms take well under a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of the message that expires, in milliseconds.
const TTL: &str = "200";
/// Queues of a demonstration that was killed vanish by themselves, and the exchange with the last binding.
const UNUSED_FOR: i32 = 5 * 60 * 1000;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is not quoted: it may hold a password.
    #[error("--url: {0}; write it like \"amqp://user:password@host:5673\"")]
    Url(&'static str),
    /// Somebody is there, but says nothing.
    #[error("no answer within {} seconds", PATIENCE.as_secs())]
    Silent,
    /// Nobody there, or refused.
    #[error("cannot connect: {0}")]
    Connect(lapin::Error),
    /// Something was refused, or the connection was lost.
    #[error("the demonstration was interrupted: {0}")]
    Interrupted(lapin::Error),
}

/// The objects of one demonstration.
struct Names {
    exchange: String,
    dead: String,
    rejected: String,
    expired: String,
    overflowing: String,
}

/// Lets three messages die at `url` and collects their dead letters, until all are there or 30 seconds have passed.
///
/// # Errors
/// The connection cannot be opened, or breaks. Dead letters that are missing or wrong are not errors here: see [`DeadLetters::check`].
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

/// A `/` at its end means nothing, as in `upstream`; `AMQPUri` would take it for a vhost without a name, and an IPv6 address for `localhost`.
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
    seen: &mut Vec<DeadLetter>,
) -> lapin::Result<()> {
    let channel = connection.create_channel().await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    names.declare(&channel).await?;
    let mut dead = channel
        .basic_consume(
            short(&names.dead),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?;

    publish(
        &channel,
        &names.expired,
        "expired",
        BasicProperties::default().with_expiration(TTL.into()),
    )
    .await?;
    for body in ["overflowing", "takes its place"] {
        publish(
            &channel,
            &names.overflowing,
            body,
            BasicProperties::default(),
        )
        .await?;
    }
    publish(
        &channel,
        &names.rejected,
        "rejected",
        BasicProperties::default(),
    )
    .await?;
    let mut work = channel
        .basic_consume(
            short(&names.rejected),
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?;
    if let Some(delivery) = work.next().await {
        delivery?
            .reject(BasicRejectOptions { requeue: false })
            .await?;
    }

    let missing = |seen: &[DeadLetter]| {
        names
            .expected()
            .iter()
            .any(|wanted| !seen.iter().any(|one| one.body == wanted.body))
    };
    while missing(seen) {
        let Some(delivery) = dead.next().await else {
            break;
        };
        let delivery = delivery?;
        // A second copy is allowed: both the proxy and RabbitMQ promise "at least once".
        if !seen.iter().any(|one| one.body.as_bytes() == delivery.data) {
            seen.push(dead_letter(&delivery));
        }
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

async fn publish(
    channel: &Channel,
    queue: &str,
    body: &str,
    properties: BasicProperties,
) -> lapin::Result<()> {
    let properties = properties.with_delivery_mode(2);
    let published = channel
        .basic_publish(
            ShortString::default(),
            short(queue),
            BasicPublishOptions::default(),
            body.as_bytes(),
            properties,
        )
        .await?;
    published.await.map(drop)
}

/// What the newest entry of `x-death` says; what is missing or of another type stays empty, and is found wrong later.
fn dead_letter(delivery: &Delivery) -> DeadLetter {
    let headers = delivery.properties.headers().as_ref();
    let death = headers.and_then(|headers| match headers.inner().get("x-death") {
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice().first().cloned(),
        _ => None,
    });
    let death = match death {
        Some(AMQPValue::FieldTable(death)) => death,
        _ => FieldTable::default(),
    };
    let field = |name: &str| death.inner().get(name);
    let keys = match field("routing-keys") {
        Some(AMQPValue::FieldArray(keys)) => {
            keys.as_slice().iter().map(|key| text(Some(key))).collect()
        }
        _ => Vec::new(),
    };
    DeadLetter {
        queue: text(field("queue")),
        reason: text(field("reason")),
        count: field("count")
            .and_then(AMQPValue::as_long_long_int)
            .unwrap_or_default(),
        exchange: text(field("exchange")),
        routing_keys: keys,
        time: field("time")
            .and_then(AMQPValue::as_timestamp)
            .unwrap_or_default(),
        original_expiration: text(field("original-expiration")),
        body: String::from_utf8_lossy(&delivery.data).into_owned(),
        delivered_by: delivery.exchange.to_string(),
        delivered_with: delivery.routing_key.to_string(),
    }
}

fn text(value: Option<&AMQPValue>) -> String {
    match value {
        Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        _ => String::new(),
    }
}

fn short(name: &str) -> ShortString {
    name.into()
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

// === impl Names ===

impl Names {
    /// Two demonstrations at once do not meet.
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

    /// The dead letters as they ought to be, in the order of the table.
    fn expected(&self) -> Vec<DeadLetter> {
        let dead = |queue: &str, reason: &str, body: &str, original_expiration: &str| DeadLetter {
            queue: queue.to_owned(),
            reason: reason.to_owned(),
            count: 1,
            exchange: String::new(),
            routing_keys: vec![queue.to_owned()],
            time: since_1970().as_secs(),
            original_expiration: original_expiration.to_owned(),
            body: body.to_owned(),
            delivered_by: self.exchange.clone(),
            delivered_with: queue.to_owned(),
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
        channel
            .exchange_declare(
                short(&self.exchange),
                ExchangeKind::Topic,
                auto_delete,
                FieldTable::default(),
            )
            .await?;
        self.queue(channel, &self.dead, &[]).await?;
        channel
            .queue_bind(
                short(&self.dead),
                short(&self.exchange),
                "#".into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await?;
        let target = (
            "x-dead-letter-exchange",
            AMQPValue::LongString(self.exchange.as_str().into()),
        );
        self.queue(channel, &self.rejected, std::slice::from_ref(&target))
            .await?;
        self.queue(channel, &self.expired, std::slice::from_ref(&target))
            .await?;
        self.queue(
            channel,
            &self.overflowing,
            &[target, ("x-max-length", AMQPValue::LongInt(1))],
        )
        .await
    }

    async fn queue(
        &self,
        channel: &Channel,
        name: &str,
        arguments: &[(&str, AMQPValue)],
    ) -> lapin::Result<()> {
        let mut table = FieldTable::default();
        table.insert("x-expires".into(), AMQPValue::LongInt(UNUSED_FOR));
        for (key, value) in arguments {
            table.insert(short(key), value.clone());
        }
        channel
            .queue_declare(short(name), QueueDeclareOptions::durable(), table)
            .await
            .map(drop)
    }

    /// On a channel of its own: an error may have closed the other. To delete what is not there is no error.
    async fn delete_and_close(&self, connection: &Connection) -> lapin::Result<()> {
        let channel = connection.create_channel().await?;
        for queue in [&self.rejected, &self.expired, &self.overflowing, &self.dead] {
            channel
                .queue_delete(short(queue), QueueDeleteOptions::default())
                .await?;
        }
        channel
            .exchange_delete(short(&self.exchange), ExchangeDeleteOptions::default())
            .await?;
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
