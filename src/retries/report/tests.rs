//! What is said of what waits.

use super::*;
use crate::amqp::ids::name;
use crate::machine::Wall;
use crate::retries::waiting::Waiting;

const NOW: Wall = Wall(1_700_000_000_000);

fn waiting(queue: &str, due: u64, attempts: u64) -> Option<Waiting> {
    Some(Waiting {
        queue: name(queue),
        due: Wall(due),
        attempts,
    })
}

fn delay_queue(delay_ms: u64, leaving: Option<u64>) -> DelayQueue {
    DelayQueue {
        queue: format!("dlx-proxy.delay.{delay_ms}"),
        delay_ms,
        waiting: 4,
        leaving,
        looked_at: 3,
        has_delivery_limit: false,
    }
}

fn listing() -> Listing {
    let mut sources = Sources::default();
    for message in [
        waiting("orders", NOW.0 + 61_000, 1),
        waiting("orders", NOW.0 + 1_000, 3),
        waiting("jobs", NOW.0 - 60_000, 1),
        waiting("jobs", NOW.0 - 1_000, 1),
        None,
        waiting("odd", u64::MAX, 1),
    ] {
        sources.add(message, NOW);
    }
    let mut of_vhost = OfVhost::new(&name("/"));
    of_vhost.delay_queues = vec![delay_queue(1000, Some(1)), delay_queue(5000, None)];
    of_vhost.queues = sources.finish();
    of_vhost.intake = Some(Intake {
        queue: "dlx-proxy.intake".to_owned(),
        messages: 7,
        proxies: 0,
    });
    Listing {
        vhosts: vec![of_vhost],
    }
}

#[test]
fn a_listing_reads_well() {
    insta::assert_snapshot!(listing().text(), @r#"
    VHOST  DELAY QUEUE           WAITING  LEAVING  LOOKED AT
    /      dlx-proxy.delay.1000  4        1        3
    /      dlx-proxy.delay.5000  4        -        3

    VHOST  QUEUE          MESSAGES  EARLIEST              LATEST                ATTEMPTS  OVERDUE
    /      (of no proxy)  1         -                     -                     -         0
    /      jobs           2         2023-11-14T22:12:20Z  2023-11-14T22:13:19Z  1         1
    /      odd            1         9999-12-31T23:59:59Z  9999-12-31T23:59:59Z  1         0
    /      orders         2         2023-11-14T22:13:21Z  2023-11-14T22:14:21Z  1 to 3    0

    no proxy takes messages from dlx-proxy.intake in vhost /, where 7 wait; what comes back waits there
    "#);
}

#[test]
fn a_listing_is_one_line_of_json() {
    insta::assert_snapshot!(listing().json(), @r#"{"vhosts":[{"vhost":"/","delay-queues":[{"queue":"dlx-proxy.delay.1000","delay-ms":1000,"waiting":4,"leaving":1,"looked-at":3,"has-delivery-limit":false},{"queue":"dlx-proxy.delay.5000","delay-ms":5000,"waiting":4,"leaving":null,"looked-at":3,"has-delivery-limit":false}],"queues":[{"queue":null,"messages":1,"earliest":null,"latest":null,"attempts":null,"overdue":0},{"queue":"jobs","messages":2,"earliest":"2023-11-14T22:12:20Z","latest":"2023-11-14T22:13:19Z","attempts":[1,1],"overdue":1},{"queue":"odd","messages":1,"earliest":"9999-12-31T23:59:59Z","latest":"9999-12-31T23:59:59Z","attempts":[1,1],"overdue":0},{"queue":"orders","messages":2,"earliest":"2023-11-14T22:13:21Z","latest":"2023-11-14T22:14:21Z","attempts":[1,3],"overdue":0}],"intake":{"queue":"dlx-proxy.intake","messages":7,"proxies":0}}]}"#);
}

#[test]
fn where_nothing_waits_that_is_said() {
    let mut listing = listing();
    let of_vhost = &mut listing.vhosts[0];
    of_vhost.delay_queues.clear();
    of_vhost.queues.clear();
    of_vhost.missing = vec!["dlx-proxy.delay.7".to_owned()];
    of_vhost.intake = None;
    insta::assert_snapshot!(listing.text(), @r#"
    no delay queue is there

    there is no queue dlx-proxy.delay.7 in vhost /
    "#);
}

#[test]
fn a_delivery_limit_is_named() {
    let mut listing = listing();
    let of_vhost = &mut listing.vhosts[0];
    of_vhost.delay_queues[0].has_delivery_limit = true;
    if let Some(intake) = &mut of_vhost.intake {
        intake.proxies = 1;
    }
    let text = listing.text();
    let note =
        "dlx-proxy.delay.1000 in vhost / has a delivery limit: its messages were not looked at\n";
    assert!(text.ends_with(note), "{text}");
}

#[test]
fn releases_read_well() {
    let released = |queue: &str, released, cut_short| Released {
        vhost: "/".to_owned(),
        queue: queue.to_owned(),
        released: Some(released),
        removed: None,
        put_back: 2,
        cut_short,
    };
    let mut releases = Releases::default();
    assert_eq!(releases.text(), "0 released\n");
    releases.delay_queues = vec![
        released("dlx-proxy.delay.1000", 10, false),
        released("dlx-proxy.delay.60000", 1, true),
    ];
    releases.without_proxy(&name("/"), &name("dlx-proxy.intake"));
    insta::assert_snapshot!(releases.text(), @r#"
    VHOST  DELAY QUEUE            RELEASED  PUT BACK
    /      dlx-proxy.delay.1000   10        2
    /      dlx-proxy.delay.60000  1         2

    11 released

    no proxy takes messages from dlx-proxy.intake in vhost /: what was released waits there until one does
    dlx-proxy.delay.60000 in vhost / was not looked through to its end: too many messages of other queues are in front
    "#);
    insta::assert_snapshot!(releases.json(), @r#"{"delay-queues":[{"vhost":"/","queue":"dlx-proxy.delay.1000","released":10,"put-back":2,"cut-short":false},{"vhost":"/","queue":"dlx-proxy.delay.60000","released":1,"put-back":2,"cut-short":true}],"notes":["no proxy takes messages from dlx-proxy.intake in vhost /: what was released waits there until one does"]}"#);
}

#[test]
fn what_is_removed_is_not_called_released() {
    let mut removed = Releases::new(true);
    removed.delay_queues.push(Released {
        vhost: "/".to_owned(),
        queue: "dlx-proxy.delay.1000".to_owned(),
        released: None,
        removed: Some(3),
        put_back: 2,
        cut_short: false,
    });
    insta::assert_snapshot!(removed.text(), @r#"
    VHOST  DELAY QUEUE           REMOVED  PUT BACK
    /      dlx-proxy.delay.1000  3        2

    3 removed
    "#);
    assert!(removed.json().contains(r#""removed":3,"put-back":2"#));
}

#[test]
fn no_name_reaches_a_terminal_raw() {
    let mut sources = Sources::default();
    sources.add(waiting("a\u{202e}b", NOW.0, 1), NOW);
    let mut of_vhost = OfVhost::new(&name("v\u{2066}"));
    of_vhost.queues = sources.finish();
    of_vhost.missing = vec!["q\n\u{9b}".to_owned()];
    let listing = Listing {
        vhosts: vec![of_vhost],
    };
    let is_plain = |char: char| crate::letter::is_harmless(char) || char == '\n';
    let text = listing.text();
    assert!(text.chars().all(is_plain), "{text}");
    assert!(
        text.contains(r"there is no queue q\n\u{9b} in vhost v\u{2066}"),
        "{text}"
    );
    assert!(listing.json().chars().all(is_plain), "{}", listing.json());
}
