//! What generated programs are made of: three queues, three exchanges and what is published to them. What would only show a stated
//! difference, or a race of the broker's own, is not drawn.

use fastrand::Rng;

/// Shorter than any rest waits.
const TTL: u32 = 5;

/// Draws its letters.
pub(crate) struct Alphabet {
    pub rng: Rng,
    /// Is there a queue that dead-letters without a key?
    keyless: bool,
    /// What a message drives out of a queue would be on its way to another at the same time as the next message.
    bounded: bool,
    /// Is there a queue in which nothing may wait for room, as it returns there and expires?
    hurried: bool,
    messages: usize,
}

// === impl Alphabet ===

impl Alphabet {
    pub(crate) fn new(seed: u64) -> Alphabet {
        Alphabet {
            rng: Rng::with_seed(seed),
            keyless: false,
            bounded: false,
            hurried: false,
            messages: 0,
        }
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.usize(..of.len())]
    }

    pub(crate) fn perhaps(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    /// The declares of the three queues, and policies of the proxy that say what some of them do not. `retries`: the broker has them itself.
    pub(crate) fn declares(&mut self, is_4x: bool, retries: bool) -> (Vec<String>, Vec<String>) {
        // Returns count in ways that depend on more than the client does, but for those of 4.x; and from 4.3 on a death does not end
        // the count of a quorum queue, as a publish does. So whatever returns to the queue with a limit is not dead.
        let mut arguments = if is_4x && self.perhaps(20) {
            let limit = self.rng.u8(1..3);
            let retries = match retries && self.perhaps(40) {
                true => self.retries(),
                false => String::new(),
            };
            vec![
                format!(
                    "x-queue-type: \"quorum\", x-dead-letter-exchange: \"\", x-dead-letter-routing-key: \"q2\", x-delivery-limit: {limit}{retries}"
                ),
                "x-queue-type: \"classic\"".to_owned(),
                self.arguments(3, "classic"),
            ]
        } else {
            let mut arguments = |n| {
                let kind = if self.perhaps(30) {
                    "quorum"
                } else {
                    "classic"
                };
                self.arguments(n, kind)
            };
            vec![arguments(1), arguments(2), arguments(3)]
        };
        let by_policy = self.perhaps(8);
        let policies = (1..).zip(&mut arguments).filter(|_| by_policy);
        let policies = policies.filter_map(|(n, arguments)| self.policy(n, arguments));
        let policies = policies.collect();
        let declare =
            |(n, arguments)| format!("queue.declare queue=q{n} durable arguments={{{arguments}}}");
        ((1..).zip(arguments).map(declare).collect(), policies)
    }

    /// What the proxy leaves to the broker: a type and a minimum, no multiplier.
    fn retries(&mut self) -> String {
        let kind = self.one(&["all", "failed", "returned", "disabled"]);
        format!(", x-delayed-retry-type: {kind:?}, x-delayed-retry-min: {TTL}")
    }

    /// Moves from the arguments of a queue what its policy may say: both keys, or the second one.
    fn policy(&mut self, n: u8, arguments: &mut String) -> Option<String> {
        let what = self.one(&["x-dead-letter-", "x-dead-letter-routing-key", "nothing"]);
        let (moved, left): (Vec<_>, Vec<_>) = arguments
            .split(", ")
            .map(str::to_owned)
            .partition(|argument| argument.starts_with(what));
        *arguments = left.join(", ");
        let definition = moved.join(", ").replace("x-", "");
        (!moved.is_empty())
            .then(|| format!("proxy-policy p{n} pattern=^q{n}$ definition={{{definition}}}"))
    }

    fn arguments(&mut self, n: u8, kind: &str) -> String {
        let mut all = vec![format!("x-queue-type: {kind:?}")];
        let mut returns = false;
        if self.perhaps(85) {
            let exchange = self.one(&["", "", "", "missing"]);
            all.push(format!("x-dead-letter-exchange: {exchange:?}"));
            let key = self
                .perhaps(70)
                .then(|| self.one(&["q1", "q2", "q3", "k", "t.a", ""]));
            all.extend(key.map(|key| format!("x-dead-letter-routing-key: {key:?}")));
            self.keyless |= key.is_none();
            returns = key.is_none_or(|key| key == format!("q{n}"));
        }
        // A dead letter is in its target before the original has left: the room that this makes comes too late for it in the same queue.
        if self.perhaps(20) {
            all.push(format!("x-message-ttl: {TTL}"));
            self.hurried |= returns;
        }
        if !returns && self.perhaps(20) {
            all.push(format!("x-max-length: {}", self.rng.u8(1..4)));
            self.bounded = true;
        }
        all.join(", ")
    }

    pub(crate) fn prefetch(&mut self) -> &'static str {
        match self.hurried {
            true => "0",
            false => self.one(&["0", "0", "1", "2", "5"]),
        }
    }

    pub(crate) fn binding(&mut self, verb: &str) -> String {
        let queue = self.one(&["q1", "q2", "q3"]);
        let (exchange, keys): (_, &[&str]) = match self.rng.u8(..3) {
            0 => ("e1", &["k", "q1", "q2", "q3", ""]),
            1 => ("e2", &[""]),
            _ => ("e3", &["#", "t.*", "*", "k", "q1"]),
        };
        let key = self.one(keys);
        format!("queue.{verb} queue={queue} exchange={exchange} routing-key={key:?}")
    }

    /// Publishes that rest together. `ordered`: confirms are to have an order.
    pub(crate) fn publishes(&mut self, ordered: bool) -> Vec<String> {
        let most = if ordered || self.bounded { 2 } else { 5 };
        (0..self.rng.usize(1..most))
            .map(|_| self.publish())
            .collect()
    }

    fn publish(&mut self) -> String {
        self.messages += 1;
        let exchange = self.one(&["", "", "", "e1", "e2", "e3"]);
        let key = match exchange {
            "" => self.one(&["q1", "q2", "q3"]),
            _ => self.one(&["q1", "q2", "k", "t.a", ""]),
        };
        let mut publish = format!(
            "basic.publish exchange={exchange:?} routing-key={key:?} delivery-mode=2 body=m{}",
            self.messages
        );
        if self.perhaps(12) {
            publish += &format!(" expiration={TTL}");
        }
        if self.perhaps(8) {
            let name = self.one(&["CC", "BCC"]);
            // Beside a queue that would close a cycle another sees another key (docs/guarantees.md).
            let others: &[&str] = if self.keyless {
                &["k"]
            } else {
                &["q1", "q2", "q3", "k"]
            };
            let other = self.one(others);
            publish += &format!(" headers={{{name}: A[{other:?}], n: {}}}", self.messages);
        }
        publish
    }
}
