//! What sessions know of each other: whose it is, how long it is believed, how much of it there is.

use crate::amqp::ids::ShortStr;
use crate::machine::{Learned, Mono, Recall, Recalled};
use crate::registry::shared::{LIMITED_FOR, MOST, SEEN_FOR, Shared, Who};

const START: Mono = Mono(1);

fn name(text: impl ToString) -> ShortStr {
    ShortStr::new(text.to_string()).unwrap()
}

fn who(vhost: &str, user: &str) -> Who {
    Who {
        vhost: name(vhost),
        user: Some(name(user)),
    }
}

fn ask(shared: &Shared, who: &Who, now: Mono) -> Recalled {
    let about = Recall { queue: name("q") };
    shared.recall(who, about, now)
}

fn queue(queue: impl ToString, intake: Option<&str>) -> Learned {
    Learned::Queue {
        queue: name(queue),
        intake: intake.map(name),
    }
}

#[test]
fn a_channel_limit_is_of_one_user_in_all_vhosts_for_a_day() {
    let mut shared = Shared::default();
    shared.learn(&who("/", "bob"), Learned::ChannelLimit, START);
    let limited = |who: &Who, now| ask(&shared, who, now).channel_limit;
    assert!(limited(&who("v", "bob"), START));
    assert!(!limited(&who("/", "bob"), START.after(LIMITED_FOR)));
    assert!(!limited(&who("/", "eve"), START));
}

#[test]
fn a_queue_is_what_it_was_last_seen_as_by_anybody_in_its_vhost() {
    let mut shared = Shared::default();
    let (bob, eve) = (who("/", "bob"), who("/", "eve"));
    let seen = |shared: &Shared, who: &Who, now| ask(shared, who, now).seen;
    assert_eq!(seen(&shared, &eve, START), None);
    shared.learn(&bob, queue("q", Some("dlx-proxy/dlx")), START);
    assert_eq!(
        seen(&shared, &eve, START),
        Some(Some(name("dlx-proxy/dlx")))
    );
    assert_eq!(seen(&shared, &eve, START.after(SEEN_FOR)), None);
    assert_eq!(seen(&shared, &who("v", "bob"), START), None);
    shared.learn(&bob, queue("q", None), START);
    assert_eq!(seen(&shared, &eve, START), Some(None));
    shared.learn(&eve, Learned::Deleted(name("q")), START);
    assert_eq!(seen(&shared, &eve, START), None);
}

/// Else all users whose login does not show them would be one.
#[test]
fn nothing_is_kept_of_a_user_without_a_name() {
    let mut shared = Shared::default();
    let nobody = Who {
        vhost: name("/"),
        user: None,
    };
    shared.learn(&nobody, Learned::ChannelLimit, START);
    shared.learn(&nobody, queue("q", None), START);
    let recalled = ask(&shared, &nobody, START);
    assert!(!recalled.channel_limit);
    assert_eq!(recalled.seen, Some(None));
}

#[test]
fn at_the_bound_what_is_not_believed_any_more_goes_first_then_all() {
    let mut shared = Shared::default();
    let bob = who("/", "bob");
    let later = START.after(SEEN_FOR / 2);
    for n in 1..MOST {
        shared.learn(&bob, queue(n, None), START);
    }
    shared.learn(&bob, queue("q", None), later);
    shared.learn(&bob, queue("q", None), later); // no further one: nothing goes
    let seen = |shared: &Shared, queue: &str, now| {
        let about = Recall { queue: name(queue) };
        shared.recall(&bob, about, now).seen.is_some()
    };
    assert!(seen(&shared, "1", later) && seen(&shared, "q", later));
    let end = START.after(SEEN_FOR);
    for n in 0..MOST - 1 {
        shared.learn(&bob, queue(format!("second {n}"), None), end);
    }
    assert!(seen(&shared, "q", end), "only the expired have gone");
    shared.learn(&bob, queue("one too many", None), end);
    assert!(!seen(&shared, "q", end) && seen(&shared, "one too many", end));
}
