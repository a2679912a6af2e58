//! Which queues a target may lead to, for people.

use std::collections::BTreeSet;

use super::{Kind, Routing, SortedBinding, topic};
use crate::amqp::ids::ShortStr;
use crate::machine::Destination;

/// Per target; with more bindings the result is unknown.
const MOST_BINDINGS: usize = 4096;

impl Routing {
    pub fn has(&self, exchange: &[u8]) -> bool {
        self.exchanges.contains_key(exchange)
    }

    /// Possible queues for this exchange and key (`None`: any key), whatever the headers. `None`:
    /// unknown.
    pub fn leads_to(&self, exchange: &[u8], key: Option<&[u8]>) -> Option<BTreeSet<ShortStr>> {
        let mut queues = BTreeSet::new();
        let mut seen = BTreeSet::from([exchange]);
        let mut due = vec![exchange];
        let mut left = MOST_BINDINGS;
        while let Some(next) = due.pop() {
            let (name, known) = self.exchanges.get_key_value(next)?;
            let bindings: Box<dyn Iterator<Item = &SortedBinding>> = match (known.kind, key) {
                (Kind::Unknown, _) => return None,
                (Kind::Direct, Some(key)) => Box::new(self.with_key(name, key)),
                _ => Box::new(self.range(name)),
            };
            // Else a message may find no destination here although there are some.
            let all_alike = match known.kind {
                Kind::Fanout => true,
                Kind::Direct | Kind::Topic => key.is_some(),
                Kind::Headers | Kind::Unknown => false,
            };
            let mut found = false;
            for binding in bindings {
                left = left.checked_sub(1)?;
                if known.kind == Kind::Topic
                    && key.is_some_and(|key| !topic::matches(&binding.routing_key, key))
                {
                    continue;
                }
                found = true;
                match &binding.destination {
                    Destination::Queue(queue) => drop(queues.insert(queue.clone())),
                    Destination::Exchange(exchange) => {
                        if seen.insert(exchange) {
                            due.push(exchange);
                        }
                    }
                }
            }
            if let Some(alternate) = &known.alternate
                && !(found && all_alike)
                && seen.insert(alternate)
            {
                due.push(alternate);
            }
        }
        Some(queues)
    }
}
