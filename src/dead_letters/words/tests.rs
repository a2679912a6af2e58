use serde_json::{Value, json};

use super::*;

fn shown(changes: Value) -> Shown {
    let mut shown = json!({
        "id": 7, "vhost": "/", "queue": "dead", "by": "me", "to": "source", "state": "completed", "begun": 1, "ended": 2,
        "ready": 40, "seen": 40, "gone": 0, "stay": {}, "cause": null,
    });
    for (name, value) in changes.as_object().into_iter().flatten() {
        shown[name] = value.clone();
    }
    serde_json::from_value(shown).expect("a redrive")
}

fn meant(ready: Option<u64>, matched: u64, stopped: &str) -> Meant {
    let answer =
        json!({"ready": ready, "matched": matched, "stopped": stopped, "notes": [], "groups": []});
    serde_json::from_value(answer).expect("a dry run")
}

fn to_queue(queue: &str) -> To {
    To {
        to_queue: Some(queue.into()),
        to_exchange: None,
        to_routing_key: None,
        history: None,
    }
}

#[test]
fn how_many_are_meant() {
    let some = meant(Some(40), 12, "end");
    assert_eq!(some.number(None), "12 of 40 messages");
    assert_eq!(some.number(Some(5)), "5 of 40 messages");
    assert_eq!(some.number(Some(50)), "12 of 40 messages");
    assert_eq!(meant(Some(1), 1, "end").number(None), "1 of 1 message");
    assert_eq!(meant(None, 1, "end").number(None), "1 message");
    assert_eq!(meant(None, 2, "end").number(None), "2 messages");
    let cut = meant(Some(40), 12, "messages");
    assert_eq!(cut.number(None), "at least 12 of 40 messages");
    assert_eq!(cut.number(Some(20)), "at least 12 of 40 messages");
    assert_eq!(cut.number(Some(12)), "12 of 40 messages");
    assert!(meant(Some(40), 0, "end").is_none());
    assert!(!meant(Some(40), 0, "time").is_none(), "others may be");
    assert!(!some.is_none());
}

#[test]
fn the_question_says_what_will_be() {
    let (queue, back) = (
        OsStr::new("de\x1bad"),
        "back to the queues that they died in",
    );
    let source = To {
        to_queue: None,
        ..to_queue("")
    };
    assert_eq!(to(Some(&source)).as_deref(), Some(back));
    assert_eq!(
        question("12 of 40 messages", queue, Some(back)),
        r"Send 12 of 40 messages in de\u{1b}ad back to the queues that they died in? [y/N] "
    );
    assert_eq!(
        to(Some(&to_queue("q\x1b"))).as_deref(),
        Some(r"to the queue q\u{1b}")
    );
    let mut exchange = To {
        to_exchange: Some("x".into()),
        ..source
    };
    assert_eq!(to(Some(&exchange)).as_deref(), Some("to the exchange x"));
    exchange.to_routing_key = Some("k".into());
    assert_eq!(
        to(Some(&exchange)).as_deref(),
        Some("to the exchange x with the routing key k")
    );
    assert_eq!(to(None), None);
    assert_eq!(
        question("1 message", queue, None),
        r"Remove 1 message in de\u{1b}ad for good? Type the name of the queue to say yes: "
    );
    assert_eq!(
        dry_run("1 message", queue, Some(back)),
        "In de\\u{1b}ad, 1 message would go back to the queues that they died in.\n"
    );
    assert_eq!(
        dry_run("1 message", queue, None),
        "In de\\u{1b}ad, 1 message would be removed.\n"
    );
}

#[test]
fn only_a_yes_is_one() {
    let queue = OsStr::new("dead");
    for yes in ["y\n", "Y\n", " yes\r\n"] {
        assert!(is_yes(yes.as_bytes(), queue, Some("there")), "{yes:?}");
        assert!(!is_yes(yes.as_bytes(), queue, None), "{yes:?}");
    }
    for no in ["", "\n", "n\n", "dead\n", "yy\n"] {
        assert!(!is_yes(no.as_bytes(), queue, Some("there")), "{no:?}");
    }
    assert!(is_yes(b"dead\n", queue, None));
    assert!(!is_yes(b"Dead\n", queue, None));
    assert!(!is_yes(b"", queue, None));
}

#[test]
fn progress_fits_a_line() {
    let running = json!({"state": "running", "ended": null, "seen": 10, "gone": 9, "stay": {"unroutable": 1}});
    assert_eq!(
        progress(&shown(running.clone()), None),
        "Redrive 7: [##--------]  25 % 10 of 40 seen, 9 gone, 1 stays"
    );
    assert_eq!(
        progress(&shown(running), Some(9)),
        "Redrive 7: [##########] 100 % 10 of 40 seen, 9 gone, 1 stays"
    );
    let early = json!({"state": "waiting", "ready": null, "seen": 3, "to": "nowhere"});
    assert_eq!(
        progress(&shown(early), None),
        "Purge 7: 3 seen, 0 gone, waits for the broker"
    );
    let huge = json!({"state": "paused", "ready": 0, "seen": 3, "stay": {"a": 2}});
    assert_eq!(
        progress(&shown(huge), None),
        "Redrive 7: 3 of 0 seen, 0 gone, 2 stay, paused"
    );
}

#[test]
fn the_end_is_a_sentence_and_a_code() {
    let some = json!({"unroutable": 2, "no\x1b_exchange": 1});
    for (changes, sentence, code) in [
        (
            json!({"gone": 12}),
            "Redrive 7 has ended: 12 messages went.",
            Outcome::All,
        ),
        (
            json!({"gone": 1, "to": "nowhere"}),
            "Purge 7 has ended: 1 message was removed.",
            Outcome::All,
        ),
        (
            json!({}),
            "Redrive 7 has ended: no message was meant.",
            Outcome::All,
        ),
        (
            json!({"gone": 2, "stay": some}),
            r"Redrive 7 has ended: 2 messages went; 3 stay (no\u{1b}_exchange: 1, unroutable: 2).",
            Outcome::InPart,
        ),
        (
            json!({"stay": {"unroutable": 1}}),
            "Redrive 7 has ended: no message went; 1 stays (unroutable: 1).",
            Outcome::Failed,
        ),
        (
            json!({"state": "cancelled", "to": "nowhere"}),
            "Purge 7 was cancelled. Until then no message was removed.",
            Outcome::InPart,
        ),
        (
            json!({"state": "cancelled", "gone": 2, "stay": {"unroutable": 1}}),
            "Redrive 7 was cancelled. Until then 2 messages went; 1 stays (unroutable: 1).",
            Outcome::InPart,
        ),
        (
            json!({"state": "failed", "gone": 2, "cause": "NOT_FOUND\x1b"}),
            r"Redrive 7 failed: NOT_FOUND\u{1b}. Until then 2 messages went.",
            Outcome::Failed,
        ),
    ] {
        let shown = shown(changes);
        assert_eq!(ended(&shown), format!("{sentence}\n"));
        assert_eq!(outcome(&shown), code, "{sentence}");
    }
}

#[test]
fn an_answer_that_does_not_show_all_is_one_in_part() {
    for (stopped, expected) in [
        (None, Outcome::All),
        (Some("end"), Outcome::All),
        (Some("enough"), Outcome::All),
        (Some("others"), Outcome::InPart),
        (Some("messages"), Outcome::InPart),
    ] {
        assert_eq!(Outcome::of_look(stopped), expected, "{stopped:?}");
    }
    let shown = shown(json!({"gone": 15, "seen": 15, "cause": "some did not come"}));
    assert_eq!(outcome(&shown), Outcome::InPart);
    let text = "Redrive 7 has ended: 15 messages went; some did not come.\n";
    assert_eq!(ended(&shown), text);
    let forgotten = self::shown(json!({"state": "cancelled", "cause": "it was paused"}));
    let text = "Redrive 7 was cancelled: it was paused. Until then no message went.\n";
    assert_eq!(ended(&forgotten), text);
}
