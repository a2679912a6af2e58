//! How a message can come into one queue: by its name at the default exchange, or by exchanges whose bindings lead to it.

use std::collections::BTreeSet;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::amqp::properties::Properties;
use crate::amqp::table::Table;

/// More routing keys of a publish; RabbitMQ takes `BCC` out before the delivery.
const MORE_KEYS: [&[u8]; 2] = [b"CC", b"BCC"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    pub vhost: Vhost,
    pub queue: ShortStr,
    /// From which some binding, or an alternate exchange, leads to the queue.
    pub exchanges: BTreeSet<ShortStr>,
}

// === impl Reach ===

impl Reach {
    pub fn is_of(&self, vhost: &Vhost, queue: &ShortStr) -> bool {
        self.vhost == *vhost && self.queue == *queue
    }

    /// Whether a message that is published there may come into the queue. `None`: only its headers tell.
    pub fn has(&self, exchange: &[u8], routing_key: &[u8]) -> Option<bool> {
        match exchange {
            [] if *routing_key == *self.queue => Some(true),
            [] => None,
            exchange => Some(self.exchanges.contains(exchange)),
        }
    }

    /// Whether the headers of a message name more routing keys. What cannot be read may.
    pub fn has_more_keys(properties: &[u8]) -> bool {
        let Ok(properties) = Properties::parse(properties) else {
            return true;
        };
        let headers = Table(properties.headers().unwrap_or_default());
        MORE_KEYS
            .iter()
            .any(|name| !matches!(headers.get(name), Ok(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;
    use crate::amqp::table::TableBuilder;

    #[test]
    fn a_queue_is_reached_by_its_name_and_by_exchanges_that_lead_to_it() {
        let reach = Reach {
            vhost: name("/"),
            queue: name("orders"),
            exchanges: [name("shop")].into(),
        };
        assert_eq!(reach.has(b"", b"orders"), Some(true));
        assert_eq!(reach.has(b"", b"other"), None);
        assert_eq!(reach.has(b"shop", b"other"), Some(true));
        assert_eq!(reach.has(b"other", b"orders"), Some(false));
    }

    #[test]
    fn headers_may_name_more_keys() {
        let with = |name: &[u8]| {
            let mut headers = TableBuilder::default();
            headers.longstr(name, b"orders");
            let headers = headers.finish();
            let length = (headers.len() as u32).to_be_bytes();
            [&[0x20, 0][..], &length, &headers].concat()
        };
        assert!(Reach::has_more_keys(&with(b"CC")));
        assert!(Reach::has_more_keys(&with(b"BCC")));
        assert!(!Reach::has_more_keys(&with(b"cc")));
        assert!(!Reach::has_more_keys(&[0, 0]));
        assert!(Reach::has_more_keys(b"\xff"));
    }
}
