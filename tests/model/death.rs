//! What a message has died of: `x-death` and its companions, and whether it goes round. `mc:record_death`, `rabbit_dead_letter`

use crate::codec::value::{Array, Bytes, Table, Value};

use super::broker::Millis;
use super::facts::Reason;

/// Newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Deaths {
    entries: Vec<Death>,
    /// Reason, queue, exchange of the first and of the last.
    first: Option<(Reason, Bytes, Bytes)>,
    last: Option<(Reason, Bytes, Bytes)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Death {
    queue: Bytes,
    reason: Reason,
    count: u64,
    /// Of the first time, as are the others.
    time: Millis,
    exchange: Bytes,
    keys: Vec<Bytes>,
    expiration: Option<u64>,
}

/// Where and how it had been published when it died.
pub(super) struct Publication<'a> {
    pub exchange: &'a [u8],
    pub keys: Vec<Bytes>,
    pub ttl: Option<u64>,
}

impl Deaths {
    pub(super) fn record(
        &mut self,
        queue: &[u8],
        reason: Reason,
        of: &Publication<'_>,
        now: Millis,
    ) {
        let is = |death: &Death| death.queue == queue && death.reason == reason;
        let death = match self.entries.iter().position(is) {
            Some(at) => {
                let mut death = self.entries.remove(at);
                death.count += 1;
                death
            }
            None => Death {
                queue: queue.to_vec(),
                reason,
                count: 1,
                time: now,
                exchange: of.exchange.to_vec(),
                keys: of.keys.clone(),
                expiration: of.ttl,
            },
        };
        self.entries.insert(0, death);
        let event = (reason, queue.to_vec(), of.exchange.to_vec());
        self.first.get_or_insert(event.clone());
        self.last = Some(event);
    }

    /// Would it go round without anybody having rejected it?
    pub(super) fn is_cycle(&self, target: &[u8]) -> bool {
        let mut entries = self.entries.iter();
        let Some(at) = entries.position(|death| death.queue == target) else {
            return false;
        };
        let lap = &self.entries[..=at];
        lap.iter().all(|death| death.reason != Reason::Rejected)
    }

    /// In place of what a client may have written there.
    pub(super) fn write(&self, headers: &mut Table) {
        if self.entries.is_empty() {
            return;
        }
        let mut put = |name: &str, value: Value| {
            headers.fields.retain(|(of, _)| of != name.as_bytes());
            headers.fields.push((name.as_bytes().to_vec(), value));
        };
        let items = self.entries.iter().map(Death::table).collect();
        let rest = Bytes::new();
        put("x-death", Value::Array(Array { items, rest }));
        self.write_ends(headers);
    }

    /// The first and the last alone: what exchanges can route by.
    pub(super) fn write_ends(&self, headers: &mut Table) {
        let mut put = |name: &str, value: Value| {
            headers.fields.retain(|(of, _)| of != name.as_bytes());
            headers.fields.push((name.as_bytes().to_vec(), value));
        };
        for (which, event) in [("first", &self.first), ("last", &self.last)] {
            if let Some((reason, queue, exchange)) = event {
                let name = |what: &str| format!("x-{which}-death-{what}");
                put(&name("reason"), string(reason.name().as_bytes()));
                put(&name("queue"), string(queue));
                put(&name("exchange"), string(exchange));
            }
        }
    }
}

impl Death {
    fn table(&self) -> Value {
        let mut fields = Vec::new();
        let mut put = |name: &str, value: Value| fields.push((name.as_bytes().to_vec(), value));
        if let Some(ttl) = self.expiration {
            put("original-expiration", string(ttl.to_string().as_bytes()));
        }
        put("count", Value::Integer(b'l', self.count.into()));
        put("reason", string(self.reason.name().as_bytes()));
        put("queue", string(&self.queue));
        put("time", Value::Integer(b'T', (self.time / 1000).into()));
        put("exchange", string(&self.exchange));
        let items = self.keys.iter().map(|key| string(key)).collect();
        let rest = Bytes::new();
        put("routing-keys", Value::Array(Array { items, rest }));
        let rest = Bytes::new();
        Value::Table(Table { fields, rest })
    }
}

fn string(text: &[u8]) -> Value {
    Value::Text(text.to_vec())
}
