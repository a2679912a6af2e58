//! What the demonstration says: the dead letters as a table or as JSON, and all that is wrong with them. Apart because it needs no broker.

use std::time::{Duration, UNIX_EPOCH};

use humantime_serde::re::humantime::format_rfc3339_seconds;
use thiserror::Error;

use crate::columns;

/// How far the broker's clock may be from ours.
const CLOCKS_DIFFER_BY: u64 = 5 * 60;

/// A dead letter, or how one ought to be: its newest death, and how it was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetter {
    pub queue: String,
    pub reason: String,
    /// How often, there and for that reason.
    pub count: i64,
    /// What it had been published to.
    pub exchange: String,
    /// The keys it had been published with.
    pub routing_keys: Vec<String>,
    /// When: seconds since 1970.
    pub time: u64,
    /// Its TTL, if it had one.
    pub original_expiration: String,
    pub body: String,
    /// The exchange that delivered the dead letter.
    pub delivered_by: String,
    /// The key that the dead letter was delivered with.
    pub delivered_with: String,
}

/// The dead letters of a demonstration, beside those that ought to be.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    expected: Vec<DeadLetter>,
    seen: Vec<DeadLetter>,
}

/// All that is wrong with the dead letters.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", .0.join("; "))]
pub struct Wrong(pub Vec<String>);

// === impl DeadLetters ===

impl DeadLetters {
    /// In the order of those expected, whichever came first.
    pub(super) fn new(expected: Vec<DeadLetter>, mut seen: Vec<DeadLetter>) -> Self {
        seen.sort_by_key(|seen| {
            expected
                .iter()
                .position(|expected| expected.body == seen.body)
                .unwrap_or(usize::MAX)
        });
        Self { expected, seen }
    }

    pub fn table(&self) -> String {
        let mut rows = vec![
            [
                "QUEUE",
                "REASON",
                "COUNT",
                "EXCHANGE",
                "ROUTING KEYS",
                "TIME",
            ]
            .map(str::to_owned),
        ];
        rows.extend(self.seen.iter().map(DeadLetter::row));
        columns::aligned(&rows)
    }

    /// One object a line.
    pub fn json(&self) -> String {
        let mut lines = String::new();
        for DeadLetter {
            queue,
            reason,
            count,
            exchange,
            routing_keys,
            time,
            ..
        } in &self.seen
        {
            let [queue, reason, exchange] = [queue, reason, exchange].map(|text| quoted(text));
            let keys: Vec<_> = routing_keys.iter().map(|key| quoted(key)).collect();
            let keys = keys.join(",");
            lines += &format!(
                r#"{{"queue":{queue},"reason":{reason},"count":{count},"exchange":{exchange},"routing-keys":[{keys}],"time":{time}}}"#
            );
            lines.push('\n');
        }
        lines
    }

    /// # Errors
    /// Each dead letter that is missing, and each part of one that is not as it ought to be.
    pub fn check(&self) -> Result<(), Wrong> {
        let mut wrong = Vec::new();
        for expected in &self.expected {
            match self.seen.iter().find(|seen| seen.body == expected.body) {
                Some(seen) => expected.compare(seen, &mut wrong),
                None => wrong.push(format!(
                    "no dead letter came for the message that was {}",
                    expected.body
                )),
            }
        }
        for seen in &self.seen {
            if !self
                .expected
                .iter()
                .any(|expected| expected.body == seen.body)
            {
                wrong.push(format!(
                    "a dead letter with the body {:?} was not expected",
                    seen.body
                ));
            }
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Wrong(wrong))
        }
    }
}

// === impl DeadLetter ===

impl DeadLetter {
    fn row(&self) -> [String; 6] {
        let exchange = if self.exchange.is_empty() {
            "(default)"
        } else {
            &self.exchange
        };
        let time = UNIX_EPOCH
            .checked_add(Duration::from_secs(self.time))
            .filter(|_| self.time < 1 << 36); // humantime knows 4 digits of year
        [
            self.queue.clone(),
            self.reason.clone(),
            self.count.to_string(),
            exchange.to_owned(),
            self.routing_keys.join(" "),
            time.map_or_else(
                || self.time.to_string(),
                |time| format_rfc3339_seconds(time).to_string(),
            ),
        ]
    }

    fn compare(&self, seen: &DeadLetter, wrong: &mut Vec<String>) {
        let about = format!("the message that was {}", self.body);
        let mut equal = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                wrong.push(format!("{about}: {what} is {theirs}, not {ours}"));
            }
        };
        let text = |text: &String| format!("{text:?}");
        equal("queue", text(&self.queue), text(&seen.queue));
        equal("reason", text(&self.reason), text(&seen.reason));
        equal("count", self.count.to_string(), seen.count.to_string());
        equal("exchange", text(&self.exchange), text(&seen.exchange));
        equal(
            "routing-keys",
            format!("{:?}", self.routing_keys),
            format!("{:?}", seen.routing_keys),
        );
        equal(
            "original-expiration",
            text(&self.original_expiration),
            text(&seen.original_expiration),
        );
        equal(
            "the exchange of its delivery",
            text(&self.delivered_by),
            text(&seen.delivered_by),
        );
        equal(
            "the key of its delivery",
            text(&self.delivered_with),
            text(&seen.delivered_with),
        );
        if self.time.abs_diff(seen.time) > CLOCKS_DIFFER_BY {
            wrong.push(format!(
                "{about}: time is {}, and it is {} now",
                seen.time, self.time
            ));
        }
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted += &format!("\\u{:04x}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(queue: &str, reason: &str) -> DeadLetter {
        DeadLetter {
            queue: queue.to_owned(),
            reason: reason.to_owned(),
            count: 1,
            routing_keys: vec![queue.to_owned()],
            time: 1_763_717_712,
            body: reason.to_owned(),
            ..DeadLetter::default()
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let seen = vec![
            dead("orders", "rejected"),
            DeadLetter {
                exchange: "work".to_owned(),
                ..dead("q", "maxlen")
            },
        ];
        insta::assert_snapshot!(DeadLetters::new(Vec::new(), seen).table(), @r#"
        QUEUE   REASON    COUNT  EXCHANGE   ROUTING KEYS  TIME
        orders  rejected  1      (default)  orders        2025-11-21T09:35:12Z
        q       maxlen    1      work       q             2025-11-21T09:35:12Z
        "#);
    }

    #[test]
    fn json_is_escaped() {
        let seen = vec![DeadLetter {
            exchange: "a\"\\\n".to_owned(),
            ..dead("q", "maxlen")
        }];
        insta::assert_snapshot!(DeadLetters::new(Vec::new(), seen).json(), @r#"{"queue":"q","reason":"maxlen","count":1,"exchange":"a\"\\\u000a","routing-keys":["q"],"time":1763717712}"#);
    }

    #[test]
    fn what_is_missing_wrong_or_strange_is_said() {
        let expected = vec![
            dead("a", "rejected"),
            dead("b", "expired"),
            dead("c", "maxlen"),
        ];
        let late = DeadLetter {
            count: 2,
            time: 0,
            ..dead("b", "expired")
        };
        let seen = vec![dead("a", "rejected"), late, dead("d", "other")];
        let Wrong(wrong) = DeadLetters::new(expected, seen)
            .check()
            .expect_err("much is wrong");
        insta::assert_snapshot!(wrong.join("\n"), @r#"
        the message that was expired: count is 2, not 1
        the message that was expired: time is 0, and it is 1763717712 now
        no dead letter came for the message that was maxlen
        a dead letter with the body "other" was not expected
        "#);
    }

    #[test]
    fn right_is_right() {
        let all = vec![dead("a", "rejected"), dead("b", "expired")];
        assert_eq!(DeadLetters::new(all.clone(), all).check(), Ok(()));
    }
}
