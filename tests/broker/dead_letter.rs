//! What a dead letter must look like (RabbitMQ's documentation, "Dead-Lettered Messages"): every property and header, none more.

use std::time::{SystemTime, UNIX_EPOCH};

use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};

use super::scene::{Kind, Scene, text};

/// One death, and where its dead letter went.
pub(crate) struct Death<'a> {
    pub queue: &'a str,
    pub reason: &'a str,
    /// As the message had been published.
    pub published: (&'a str, &'a [&'a str]),
    pub original_expiration: Option<&'a str>,
    /// Exchange and key of the dead letter.
    pub target: (&'a str, &'a str),
}

/// Quorum queues count deliveries in headers, which a native dead letter takes along.
const COUNTERS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// All properties that a client may set, but `expiration`.
pub(crate) fn every_property() -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("tenant".into(), text("blue"));
    headers.insert("urgent".into(), AMQPValue::Boolean(true));
    headers.insert("attempt".into(), AMQPValue::LongInt(-3));
    BasicProperties::default()
        .with_headers(headers)
        .with_content_type("application/json".into())
        .with_content_encoding("identity".into())
        .with_delivery_mode(2)
        .with_priority(7)
        .with_correlation_id("correlation".into())
        .with_reply_to("reply".into())
        .with_message_id("message".into())
        .with_timestamp(1_700_000_000)
        .with_type("type".into())
        .with_user_id("guest".into())
        .with_app_id("app".into())
}

/// Checks a dead letter of a message that had been published with `properties` (without its expiration) and had died once.
pub(crate) fn assert_right(
    dead: &Delivery,
    body: &str,
    properties: &BasicProperties,
    death: &Death<'_>,
    scene: &Scene<'_>,
) {
    let broker = &scene.way.broker;
    let mut expected = properties.headers().clone().unwrap_or_default();
    let ours = scene.is_ours(death.reason);
    for (name, value) in [
        ("reason", death.reason),
        ("queue", death.queue),
        ("exchange", death.published.0),
    ] {
        expected.insert(format!("x-first-death-{name}").as_str().into(), text(value));
        if broker.is_4x() {
            expected.insert(format!("x-last-death-{name}").as_str().into(), text(value));
        }
    }
    let mut headers = FieldTable::default();
    for (name, value) in dead.properties.headers().iter().flat_map(FieldTable::inner) {
        let counted = !ours && scene.kind == Kind::Quorum && COUNTERS.contains(&name.as_str());
        if name.as_str() != "x-death" && !counted {
            headers.insert(name.clone(), value.clone());
        }
    }
    assert_eq!(headers, expected, "headers");
    let deaths = dead
        .properties
        .headers()
        .as_ref()
        .and_then(|headers| headers.inner().get("x-death").cloned());
    assert_eq!(
        deaths,
        Some(history(death, time_of(deaths.as_ref()))),
        "x-death"
    );

    let without =
        |properties: &BasicProperties| properties.clone().with_headers(FieldTable::default());
    assert_eq!(without(&dead.properties), without(properties), "properties");
    assert_eq!(String::from_utf8_lossy(&dead.data), body, "body");
    let came = (dead.exchange.as_str(), dead.routing_key.as_str());
    assert_eq!(came, death.target, "exchange and key");
}

fn history(death: &Death<'_>, time: u64) -> AMQPValue {
    let mut entry = FieldTable::default();
    let keys: Vec<AMQPValue> = death.published.1.iter().map(|key| text(key)).collect();
    let mut field = |name: &str, value: AMQPValue| {
        entry.insert(ShortString::from(name), value);
    };
    field("count", AMQPValue::LongLongInt(1));
    field("reason", text(death.reason));
    field("queue", text(death.queue));
    field("time", AMQPValue::Timestamp(time));
    field("exchange", text(death.published.0));
    field(
        "routing-keys",
        AMQPValue::FieldArray(FieldArray::from(keys)),
    );
    if let Some(expiration) = death.original_expiration {
        field("original-expiration", text(expiration));
    }
    AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(entry)]))
}

/// The time that a death carries, which must be about now.
fn time_of(deaths: Option<&AMQPValue>) -> u64 {
    let entry = match deaths {
        Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice().first().cloned(),
        _ => None,
    };
    let time = match entry {
        Some(AMQPValue::FieldTable(entry)) => {
            entry.inner().get("time").and_then(AMQPValue::as_timestamp)
        }
        _ => None,
    };
    let time = time.expect("x-death with a time");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    assert!(
        now.abs_diff(time) < 120,
        "a death at {time}, and it is {now}"
    );
    time
}
