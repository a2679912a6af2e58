//! What a demonstration found, beside what it ought to find.

use serde_json::{Value, json};
use thiserror::Error;

/// Tolerated difference between the clocks, in seconds.
const CLOCKS_DIFFER_BY: u64 = 5 * 60;

#[derive(Clone, Debug)]
pub struct DeadLetters {
    expected: Vec<Value>,
    seen: Vec<Value>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", .0.join("; "))]
pub struct Wrong(pub Vec<String>);

// === impl DeadLetters ===

impl DeadLetters {
    pub(super) fn new(expected: Vec<Value>, mut seen: Vec<Value>) -> DeadLetters {
        let place = |seen: &Value| expected.iter().position(|it| it["body"] == seen["body"]);
        seen.sort_by_key(|seen| place(seen).unwrap_or(usize::MAX));
        DeadLetters { expected, seen }
    }

    pub fn seen(&self) -> Value {
        json!({ "dead-letters": self.seen })
    }

    pub fn check(&self) -> Result<(), Wrong> {
        let mut wrong = Vec::new();
        for expected in &self.expected {
            match self.seen.iter().find(|it| it["body"] == expected["body"]) {
                Some(seen) => compare(expected, seen, &mut wrong),
                None => wrong.push(format!(
                    "no dead letter came for the message {}",
                    expected["body"]
                )),
            }
        }
        for seen in &self.seen {
            if self.expected.iter().all(|it| it["body"] != seen["body"]) {
                wrong.push(format!(
                    "a dead letter with the body {} was not expected",
                    seen["body"]
                ));
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(Wrong(wrong)),
        }
    }
}

fn compare(expected: &Value, seen: &Value, wrong: &mut Vec<String>) {
    for (what, ours) in expected.as_object().into_iter().flatten() {
        let theirs = &seen[what];
        let is_near = |ours: u64| {
            theirs
                .as_u64()
                .is_some_and(|it| it.abs_diff(ours) <= CLOCKS_DIFFER_BY)
        };
        if ours != theirs && !(what == "time" && ours.as_u64().is_some_and(is_near)) {
            let body = &expected["body"];
            wrong.push(format!(
                "the message {body}: {what} is {theirs}, not {ours}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(queue: &str, body: &str) -> Value {
        json!({"queue": queue, "body": body, "count": 1, "time": 1_763_717_712})
    }

    #[test]
    fn what_is_missing_wrong_or_strange_is_said() {
        let expected = ["rejected", "expired", "maxlen", "near"].map(|body| dead("a", body));
        let late = json!({"queue": "a", "body": "expired", "count": 2, "time": 0});
        let mut near = dead("a", "near");
        near["time"] = json!(1_763_717_712 + CLOCKS_DIFFER_BY);
        let seen = vec![dead("d", "other"), late, near, dead("a", "rejected")];
        let found = DeadLetters::new(expected.to_vec(), seen);
        assert_eq!(found.seen()["dead-letters"][0]["body"], "rejected");
        let Wrong(wrong) = found.check().expect_err("much is wrong");
        insta::assert_snapshot!(wrong.join("\n"), @r#"
        the message "expired": count is 2, not 1
        the message "expired": time is 0, not 1763717712
        no dead letter came for the message "maxlen"
        a dead letter with the body "other" was not expected
        "#);
    }
}
