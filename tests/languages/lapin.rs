//! The script of README.md by lapin.

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
    BasicRejectOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind, Queue,
};
use serde_json::{Map, Value, json};

// === what it prints

/// A value with its type.
fn shown(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::FieldTable(table) => shown_table(table),
        AMQPValue::FieldArray(array) => array.as_slice().iter().map(shown).collect(),
        AMQPValue::LongString(text) => json!(format!("LongString {text}")),
        AMQPValue::Boolean(it) => json!(format!("Boolean {it}")),
        AMQPValue::LongInt(number) => json!(format!("LongInt {number}")),
        AMQPValue::LongLongInt(number) => json!(format!("LongLongInt {number}")),
        AMQPValue::Timestamp(seconds) => json!(format!("Timestamp {seconds}")),
        other => json!(format!("{:?} {other:?}", other.get_type())),
    }
}

fn shown_table(table: &FieldTable) -> Value {
    let members = table.inner().iter();
    Value::Object(
        members
            .map(|(key, value)| (key.to_string(), shown(value)))
            .collect(),
    )
}

fn described(delivery: &Delivery) -> Value {
    let properties = &delivery.properties;
    json!({
        "body": format!("Vec<u8> {}", String::from_utf8_lossy(&delivery.data)),
        "exchange": format!("ShortString {}", delivery.exchange),
        "key": format!("ShortString {}", delivery.routing_key),
        "redelivered": format!("bool {}", delivery.redelivered),
        "content_type": format!("{:?}", properties.content_type()),
        "delivery_mode": format!("{:?}", properties.delivery_mode()),
        "priority": format!("{:?}", properties.priority()),
        "message_id": format!("{:?}", properties.message_id()),
        "timestamp": format!("{:?}", properties.timestamp()),
        "expiration": format!("{:?}", properties.expiration()),
        "headers": properties.headers().as_ref().map(shown_table),
    })
}

fn step(name: &str, results: Value) {
    let mut line = Map::from_iter([("step".to_owned(), json!(name))]);
    if let Value::Object(results) = results {
        line.extend(results);
    }
    println!("{}", Value::Object(line));
}

// === what it does

fn table<'a>(members: impl IntoIterator<Item = (&'a str, AMQPValue)>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in members {
        table.insert(name.into(), value);
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

async fn declare<const N: usize>(
    channel: &Channel,
    queue: &str,
    kind: &str,
    arguments: [(&str, &str); N],
) -> lapin::Result<Queue> {
    let mut arguments = table(arguments.map(|(name, value)| (name, text(value))));
    arguments.insert("x-queue-type".into(), text(kind));
    channel
        .queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments)
        .await
}

/// What came with the confirm.
async fn publish(
    channel: &Channel,
    queue: &str,
    body: &str,
    expiration: Option<&str>,
) -> Result<Confirmation> {
    let headers = table([
        ("text", text("zwölf")),
        ("int", AMQPValue::LongInt(7)),
        ("long", AMQPValue::LongLongInt(1 << 40)),
        ("bool", AMQPValue::Boolean(true)),
        (
            "list",
            AMQPValue::FieldArray(vec![AMQPValue::LongInt(1), text("two")].into()),
        ),
        (
            "table",
            AMQPValue::FieldTable(table([("deep", text("er"))])),
        ),
    ]);
    let mut properties = BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_delivery_mode(2)
        .with_priority(3)
        .with_message_id(body.into())
        .with_timestamp(1_600_000_000)
        .with_headers(headers);
    if let Some(expiration) = expiration {
        properties = properties.with_expiration(expiration.into());
    }
    let options = BasicPublishOptions {
        mandatory: true,
        ..Default::default()
    };
    let sent = channel.basic_publish(
        "".into(),
        queue.into(),
        options,
        body.as_bytes(),
        properties,
    );
    Ok(sent.await?.await?)
}

/// That many deliveries, each settled.
async fn consume(
    channel: &Channel,
    queue: &str,
    count: usize,
    settle: impl AsyncFn(&Delivery, usize) -> Result<()>,
) -> Result<Vec<Value>> {
    let mut consumer = channel
        .basic_consume(
            queue.into(),
            queue.into(),
            Default::default(),
            FieldTable::default(),
        )
        .await?;
    let mut taken = Vec::new();
    while taken.len() < count {
        let delivery = consumer.next().await.context("the consumer ended")??;
        taken.push(described(&delivery));
        settle(&delivery, taken.len()).await?;
    }
    channel
        .basic_cancel(consumer.tag(), Default::default())
        .await?;
    Ok(taken)
}

async fn ack(delivery: &Delivery) -> Result<()> {
    delivery.ack(BasicAckOptions::default()).await?;
    Ok(())
}

async fn nack(delivery: &Delivery, requeue: bool) -> Result<()> {
    let options = BasicNackOptions {
        requeue,
        multiple: false,
    };
    delivery.nack(options).await?;
    Ok(())
}

fn refusal<T>(attempt: lapin::Result<T>) -> Result<Value> {
    match attempt {
        Ok(_) => bail!("not refused"),
        Err(error) => {
            Ok(json!({ "text": error.to_string(), "kind": format!("{:?}", error.kind()) }))
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().context("URL")?;
    let kind = &arguments.next().context("KIND")?;

    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let (first, second) = (
        connection.create_channel().await?,
        connection.create_channel().await?,
    );
    let agreed = connection.configuration();
    step(
        "connect",
        json!({
            "channel_max": agreed.channel_max(), "frame_max": agreed.frame_max(), "heartbeat": agreed.heartbeat(),
        }),
    );

    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    first
        .exchange_declare(
            "dead".into(),
            ExchangeKind::Direct,
            durable,
            FieldTable::default(),
        )
        .await?;
    let to_graves = [
        ("x-dead-letter-exchange", ""),
        ("x-dead-letter-routing-key", "graves"),
    ];
    let to_late = [
        ("x-dead-letter-exchange", "dead"),
        ("x-dead-letter-routing-key", "late"),
    ];
    let queues = [
        declare(&first, "graves", kind, []).await?,
        declare(&first, "dead letters", kind, to_graves).await?,
        declare(&first, "work", kind, [("x-dead-letter-exchange", "dead")]).await?,
        declare(&first, "brief", kind, to_late).await?,
    ];
    for key in ["work", "late"] {
        first
            .queue_bind(
                "dead letters".into(),
                "dead".into(),
                key.into(),
                Default::default(),
                FieldTable::default(),
            )
            .await?;
    }
    let counts = queues.iter().map(|queue| {
        json!({
            "queue": format!("ShortString {}", queue.name()), "messages": format!("u32 {}", queue.message_count()),
            "consumers": format!("u32 {}", queue.consumer_count()),
        })
    });
    step("declare", json!({ "queues": counts.collect::<Vec<_>>() }));

    first
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    let mut confirmed = Vec::new();
    for body in ["acked", "nacked", "rejected", "requeued"] {
        match publish(&first, "work", body, None).await? {
            Confirmation::Ack(None) => confirmed.push(format!("&str {body}")),
            other => bail!("{body}: {other:?}"),
        }
    }
    let Confirmation::Ack(Some(returned)) = publish(&first, "nowhere", "unroutable", None).await?
    else {
        bail!("not returned");
    };
    step(
        "publish",
        json!({ "confirmed": confirmed, "returned": {
            "code": format!("u16 {}", returned.reply_code), "text": format!("ShortString {}", returned.reply_text),
            "key": format!("ShortString {}", returned.delivery.routing_key),
            "body": format!("Vec<u8> {}", String::from_utf8_lossy(&returned.delivery.data)),
        }}),
    );

    first.basic_qos(10, BasicQosOptions::default()).await?;
    let worked = consume(&first, "work", 5, async |delivery, _| {
        match (delivery.data.as_slice(), delivery.redelivered) {
            (b"nacked", _) => nack(delivery, false).await,
            (b"rejected", _) => {
                let options = BasicRejectOptions { requeue: false };
                delivery.reject(options).await?;
                Ok(())
            }
            (b"requeued", false) => nack(delivery, true).await,
            _ => ack(delivery).await,
        }
    });
    step("consume", json!({ "deliveries": worked.await? }));

    let dead = consume(&first, "dead letters", 3, async |delivery, count| {
        match delivery.data.as_slice() {
            b"nacked" => nack(delivery, false).await?,
            _ => ack(delivery).await?,
        }
        if count == 2 {
            publish(&first, "brief", "late", Some("50")).await?;
        }
        Ok(())
    });
    step("dead letters", json!({ "deliveries": dead.await? }));

    let again = consume(&first, "graves", 1, async |delivery, _| ack(delivery).await);
    step("second death", json!({ "deliveries": again.await? }));

    let got = first
        .basic_get("work".into(), BasicGetOptions::default())
        .await?;
    step("get", json!({ "empty": format!("bool {}", got.is_none()) }));

    let other = declare(&second, "work", kind, [("x-dead-letter-exchange", "other")]);
    let mut refusals = vec![refusal(other.await)?];
    let second = connection.create_channel().await?;
    let passive = QueueDeclareOptions {
        passive: true,
        ..Default::default()
    };
    let missing = second.queue_declare("missing".into(), passive, FieldTable::default());
    refusals.push(refusal(missing.await)?);
    step("refused", json!({ "refusals": refusals }));

    let mut messages = Map::new();
    for queue in &queues {
        let deleted = first
            .queue_delete(queue.name().clone(), Default::default())
            .await?;
        messages.insert(queue.name().to_string(), json!(format!("u32 {deleted}")));
    }
    first
        .exchange_delete("dead".into(), Default::default())
        .await?;
    step("delete", json!({ "messages": messages }));

    first.close(200, "done".into()).await?;
    connection.close(200, "done".into()).await?;
    step("close", Value::Null);
    Ok(())
}
