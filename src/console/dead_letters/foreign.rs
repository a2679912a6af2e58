//! Messages as the management API (`/api/queues/…/get`) and rabbitmqadmin print them, as lines that the proxy imports.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::amqp::ids::ShortStr;
use crate::amqp::table::{ArrayBuilder, TableBuilder, Value};
use crate::dead_letter::hex;

/// From the highest flag bit (15) to the lowest (2).
const PROPERTIES: [&str; 14] = [
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
];

/// A line for each message.
///
/// # Errors
/// Why a message is none.
pub(super) fn lines(messages: &[Json]) -> Result<String, String> {
    let line = |(number, message): (usize, &Json)| {
        let line = line(message).map_err(|why| format!("message {}: {why}", number + 1));
        Ok(line?.to_string() + "\n")
    };
    messages.iter().enumerate().map(line).collect()
}

fn line(message: &Json) -> Result<Json, &'static str> {
    let payload = message["payload"].as_str().ok_or("it has no payload")?;
    let body = match message["payload_encoding"].as_str() {
        Some("base64") => BASE64_STANDARD.decode(payload),
        _ => Ok(payload.into()),
    };
    let body = body.map_err(|_| "its payload is not base64")?;
    let size = message["payload_bytes"].as_u64();
    if size.is_some_and(|size| size != body.len() as u64) {
        return Err("its payload was cut: get it without `truncate`");
    }
    let properties = properties(&message["properties"]).ok_or("its properties cannot be read")?;
    let (raw, text) = (hex::digits(&properties), hex::digits(&body));
    Ok(json!({"raw-properties": raw, "body": {"encoding": "hex", "text": text, "cut": false}}))
}

fn properties(of: &Json) -> Option<Vec<u8>> {
    let (mut flags, mut values) = (0u16, Vec::new());
    for (bit, name) in (2..16).rev().zip(PROPERTIES) {
        match (name, &of[name]) {
            (_, Json::Null) => continue,
            ("headers", headers) => {
                let table = table(headers.as_object()?, false)?;
                values.extend(u32::try_from(table.len()).ok()?.to_be_bytes());
                values.extend(table);
            }
            ("delivery_mode" | "priority", value) => {
                values.push(value.as_u64()?.try_into().ok()?);
            }
            ("timestamp", value) => values.extend(value.as_u64()?.to_be_bytes()),
            (_, value) => short(&mut values, value.as_str()?)?,
        }
        flags |= 1 << bit;
    }
    Some([&flags.to_be_bytes()[..], &values].concat())
}

/// `is_death`: of `x-death`, where a `time` is a timestamp. JSON does not say so.
fn table(fields: &Map<String, Json>, is_death: bool) -> Option<Vec<u8>> {
    let mut table = TableBuilder::default();
    for (name, field) in fields {
        let (tag, data) = match field.as_u64().filter(|_| is_death && name == "time") {
            Some(time) => (b'T', time.to_be_bytes().to_vec()),
            None => typed(field, name == "x-death")?,
        };
        let name = ShortStr::copy(name.as_bytes())?;
        table.value(&name, &Value { tag, data: &data });
    }
    Some(table.finish())
}

fn typed(value: &Json, is_death: bool) -> Option<(u8, Vec<u8>)> {
    Some(match value {
        Json::Null => (b'V', Vec::new()),
        Json::Bool(flag) => (b't', vec![u8::from(*flag)]),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => (b'l', whole.to_be_bytes().to_vec()),
            None => (b'd', number.as_f64()?.to_be_bytes().to_vec()),
        },
        Json::String(text) => (b'S', text.as_bytes().to_vec()),
        Json::Array(items) => {
            let mut array = ArrayBuilder::default();
            for item in items {
                let (tag, data) = typed(item, is_death)?;
                array.value(&Value { tag, data: &data });
            }
            (b'A', array.finish())
        }
        Json::Object(fields) => (b'F', table(fields, is_death)?),
    })
}

fn short(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.push(text.len().try_into().ok()?);
    out.extend(text.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::properties::{Properties, Property};
    use crate::amqp::table::Table;
    use crate::letter::Line;

    #[test]
    fn a_message_of_the_management_api_is_a_line() {
        let message = json!({
            "payload_bytes": 2, "redelivered": false, "exchange": "", "routing_key": "dead", "message_count": 0,
            "properties": {"delivery_mode": 2, "priority": 3, "expiration": "60000", "timestamp": 1_700_000_000, "user_id": "guest", "headers": {
                "a": 1, "b": -1.5, "c": true, "d": null, "e": ["x", {"time": 1}],
                "x-death": [{"count": 1, "queue": "orders", "time": 1_700_000_000}]}},
            "payload": "/wA=", "payload_encoding": "base64",
        });
        let line = lines(&[message]).expect("a message");
        let content = Line::read(line.trim_end().as_bytes()).expect("a line");
        assert_eq!(content.body, &b"\xff\0"[..]);
        let properties = Properties::parse(&content.properties).expect("properties");
        assert_eq!(properties.get(Property::Priority), Some(&[3][..]));
        assert_eq!(properties.get(Property::Expiration), Some(&b"60000"[..]));
        let headers = Table(properties.headers().expect("headers"));
        let tag = |name: &[u8]| headers.get(name).expect("whole").map(|value| value.tag);
        let tags = [&b"a"[..], b"b", b"c", b"d", b"e", b"x-death"].map(tag);
        assert_eq!(tags, [b'l', b'd', b't', b'V', b'A', b'A'].map(Some));
        let raw = hex::digits(properties.headers().expect("headers"));
        let time = |tag: u8| hex::digits(&[b"\x04time", &[tag][..]].concat());
        assert!(
            raw.contains(&time(b'T')) && raw.contains(&time(b'l')),
            "{raw}"
        );
    }

    #[test]
    fn what_is_no_message_is_named() {
        let text = |payload: &str| json!({"payload": payload, "payload_bytes": 1, "payload_encoding": "string", "properties": []});
        assert!(lines(&[text("a")]).is_ok());
        for (message, why) in [
            (json!({}), "message 2: it has no payload"),
            (
                text("ab"),
                "message 2: its payload was cut: get it without `truncate`",
            ),
            (
                json!({"payload": "?", "payload_encoding": "base64"}),
                "message 2: its payload is not base64",
            ),
            (
                json!({"payload": "", "properties": {"priority": 256}}),
                "message 2: its properties cannot be read",
            ),
        ] {
            assert_eq!(lines(&[text("a"), message]), Err(why.to_owned()));
        }
    }
}
