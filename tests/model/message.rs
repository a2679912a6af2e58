//! A message, as it was published and as it is delivered. What the broker notes about it stands beside the headers, not in them, and is
//! written into them when it goes out. `mc_amqpl`

use crate::codec::methods::{Arg, Args};
use crate::codec::value::{Bytes, Table, Value};

use super::arguments::type_name;
use super::call::{Content, find};
use super::death::Deaths;
use super::refusal::{Answer, refuse, show};

#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// Its number where it lies, or lay last: what tells copies apart that look the same.
    pub copy: u64,
    /// It was published to last.
    pub exchange: Bytes,
    /// The routing key, then CC and BCC keys, as far as they count.
    pub keys: Vec<Bytes>,
    pub bcc: Vec<Bytes>,
    /// Without the headers.
    pub properties: Args,
    pub headers: Option<Table>,
    pub body: Bytes,
    pub persistent: bool,
    /// Of its own, in milliseconds.
    pub ttl: Option<u64>,
    pub deaths: Deaths,
    /// How often a delivery of it failed, in all its queues so far.
    pub failed: Option<u64>,
}

impl Message {
    pub(super) fn published(exchange: &[u8], key: &[u8], content: &Content) -> Answer<Message> {
        let mut properties = content.properties.clone();
        let headers = match find(&properties, "headers") {
            Some(Arg::Table(table)) => Some(table.clone()),
            _ => None,
        };
        properties.retain(|(name, _)| *name != "headers");
        let ttl = expiration(&properties)?;
        let mut keys = vec![key.to_vec()];
        let mut bcc = Vec::new();
        for name in ["CC", "BCC"] {
            let Some(value) = headers.as_ref().and_then(|headers| headers.get(name)) else {
                continue;
            };
            let Value::Array(array) = value else {
                let kind = type_name(value);
                let text =
                    format!("invalid message: {{unacceptable_type_in_header,\"{name}\",{kind}}}");
                return refuse(406, text);
            };
            for item in &array.items {
                if let Value::Text(key) = item {
                    keys.push(key.clone());
                    if name == "BCC" {
                        bcc.push(key.clone());
                    }
                }
            }
        }
        let headers = headers.map(|mut headers| {
            headers.fields.retain(|(name, _)| name != b"BCC");
            headers
        });
        Ok(Message {
            copy: 0,
            exchange: exchange.to_vec(),
            keys,
            bcc,
            persistent: find(&properties, "delivery-mode") == Some(&Arg::Number(2)),
            properties,
            headers,
            body: content.body.clone(),
            ttl,
            deaths: Deaths::default(),
            failed: None,
        })
    }

    pub(super) fn key(&self) -> Bytes {
        self.keys.first().cloned().unwrap_or_default()
    }

    /// As quorum queues take it.
    pub(super) fn priority(&self) -> u64 {
        match find(&self.properties, "priority") {
            Some(Arg::Number(priority)) => (*priority).min(31),
            _ => 4,
        }
    }

    pub(super) fn routing_headers(&self) -> Table {
        let mut headers = self.headers.clone().unwrap_or_default();
        self.deaths.write_ends(&mut headers);
        headers
    }

    /// Its properties for a client. `counts`: those of a quorum queue, `x-acquired-count` and `x-delivery-count`.
    pub(super) fn content(&self, counts: [Option<u64>; 2]) -> Args {
        let had = self.headers.is_some();
        let mut headers = self.headers.clone().unwrap_or_default();
        self.deaths.write(&mut headers);
        for (name, count) in ["x-acquired-count", "x-delivery-count"].iter().zip(counts) {
            if let Some(count) = count {
                let field = (name.as_bytes().to_vec(), Value::Integer(b'l', count.into()));
                headers.fields.insert(0, field);
            }
        }
        headers.fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        headers.fields.dedup_by(|(a, _), (b, _)| a == b);
        headers.fields.iter_mut().for_each(|(_, value)| long(value));
        let mut properties = self.properties.clone();
        properties.retain(|(name, _)| *name != "expiration");
        if let Some(ttl) = self.ttl {
            properties.push(("expiration", Arg::Text(ttl.to_string().into_bytes())));
        }
        if had || !headers.fields.is_empty() {
            properties.push(("headers", Arg::Table(headers)));
        }
        properties
    }
}

/// `L` is read as `l`.
fn long(value: &mut Value) {
    match value {
        Value::Integer(tag @ b'L', _) => *tag = b'l',
        Value::Array(array) => array.items.iter_mut().for_each(long),
        Value::Table(table) => table.fields.iter_mut().for_each(|(_, value)| long(value)),
        _ => {}
    }
}

fn expiration(properties: &Args) -> Answer<Option<u64>> {
    let Some(Arg::Text(text)) = find(properties, "expiration") else {
        return Ok(None);
    };
    let invalid = |why: &str| {
        let text = show(text);
        refuse(406, format!("invalid expiration '{text}': {why}"))
    };
    // As Erlang reads a number: what follows it is named.
    let digits = text
        .iter()
        .enumerate()
        .take_while(|(at, octet)| octet.is_ascii_digit() || *at == 0 && b"+-".contains(octet))
        .count();
    let Ok(number) = String::from_utf8_lossy(&text[..digits]).parse::<i128>() else {
        return invalid("no_integer");
    };
    if digits < text.len() {
        let rest = show(&text[digits..]);
        return invalid(&format!("{{leftover_string,\"{rest}\"}}"));
    }
    if number < 0 {
        return invalid(&format!("{{value_negative,{number}}}"));
    }
    if number > 315_360_000_000 {
        return invalid(&format!("{{value_too_large,{number}}}"));
    }
    Ok(Some(number as u64))
}
