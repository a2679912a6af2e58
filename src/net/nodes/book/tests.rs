//! Nodes a, b and c, whose addresses are 10.0.0.1 to 10.0.0.3.

use super::*;

fn node(name: &str) -> Node {
    Node {
        host: name.to_owned(),
        port: 5672,
    }
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 5672))
}

fn address(name: &str, last: u8) -> Address {
    Address {
        node: node(name),
        at: at(last),
    }
}

fn seconds(number: f64) -> Mono {
    Mono::default().after(Duration::from_secs_f64(100.0 + number))
}

fn book(order: Order) -> Book {
    book_of(order, 7)
}

fn book_of(order: Order, seed: u64) -> Book {
    let mut book = Book::new(&["a", "b", "c"].map(node), order, seed);
    for (name, last) in [("a", 1), ("b", 2), ("c", 3)] {
        book.found(&node(name), vec![at(last)]);
    }
    book
}

fn order(book: &mut Book, now: Mono) -> String {
    book.in_order(now)
        .iter()
        .map(|address| address.node.host.as_str())
        .collect()
}

fn fails(book: &mut Book, address: &Address, now: Mono) -> bool {
    book.tries(address, now);
    book.failed(address, now, "refused", now)
}

/// What happens when, and in which order nodes are tried then.
#[test]
fn who_failed_comes_last_until_its_rest_is_over() {
    for steps in [
        &["0 abc", "0 abc", "0 abc"][..], // the order of the settings
        &["0 a fails", "0.4 bca", "1 abc"],
        // When all rest: who failed first. The rest of b is over by then; that of c may be.
        &["0 b fails", "0.6 c fails", "1.2 a fails", "1.21 bca"],
        // After its rest one tries, and the others wait for what it says.
        &[
            "0 a fails",
            "2 abc",
            "2 a is tried",
            "2 bca",
            "2.1 a answers",
            "2.1 abc",
        ],
    ] {
        let mut book = book(Order::First);
        for step in steps {
            let (at, what) = step.split_once(' ').expect("a time");
            let now = seconds(at.parse().expect("a number"));
            let Some((node, does)) = what.split_once(' ') else {
                assert_eq!(order(&mut book, now), what, "{steps:?}: {step}");
                continue;
            };
            let at = address(node, 1 + node.as_bytes()[0] - b'a');
            match does {
                "fails" => assert!(fails(&mut book, &at, now)),
                "is tried" => book.tries(&at, now),
                _ => {
                    assert!(book.answered(&at), "that is news");
                    assert!(!book.answered(&at), "that is not");
                }
            }
        }
    }
}

#[test]
fn each_has_its_turn() {
    let mut book = book(Order::RoundRobin);
    let turns: Vec<_> = (0..6).map(|_| order(&mut book, seconds(0.0))).collect();
    assert_eq!(turns[..3], turns[3..]);
    let firsts: std::collections::BTreeSet<_> = turns.iter().map(|turn| &turn[..1]).collect();
    assert_eq!(firsts.len(), 3, "{turns:?}");
    assert!(
        turns
            .iter()
            .all(|turn| ["abc", "bca", "cab"].contains(&turn.as_str()))
    );
}

#[test]
fn proxies_begin_with_different_nodes() {
    let begins = |seed| order(&mut book_of(Order::RoundRobin, seed), seconds(0.0));
    let begins: std::collections::BTreeSet<_> = (0..20).map(begins).collect();
    assert_eq!(begins.len(), 3);
}

#[test]
fn rests_grow_and_are_bounded() {
    let mut book = book(Order::First);
    let a = address("a", 1);
    let mut now = seconds(0.0);
    for longest in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] {
        fails(&mut book, &a, now);
        let rest = now.until(book.known[&a].rests_until).as_secs_f64();
        assert!(
            longest / 2.0 <= rest && rest <= longest,
            "{rest} of {longest}"
        );
        now = book.known[&a].rests_until;
    }
    assert!(book.answered(&a));
    fails(&mut book, &a, now);
    assert!(
        now.until(book.known[&a].rests_until) <= FIRST,
        "an answer ends it"
    );
}

#[test]
fn many_that_tried_at_once_are_one_failure() {
    let mut book = book(Order::First);
    let a = address("a", 1);
    let (began, now) = (seconds(0.0), seconds(1.0));
    book.tries(&a, began);
    let why = |i| format!("reason {i}");
    let news: Vec<_> = (0..100)
        .map(|i| book.failed(&a, began, &why(i), now))
        .collect();
    assert_eq!(news.iter().filter(|news| **news).count(), 1);
    assert!(now.until(book.known[&a].rests_until) <= FIRST);
}

#[test]
fn another_reason_is_news() {
    let mut book = book(Order::First);
    let a = address("a", 1);
    let mut fails = |why: &str, at| {
        book.tries(&a, seconds(at));
        book.failed(&a, seconds(at), why, seconds(at))
    };
    let (refused, certificate) = ("Connection refused", "its certificate is another's");
    assert!(fails(refused, 0.0));
    assert!(!fails(refused, 10.0));
    assert!(fails(certificate, 20.0));
    assert!(!fails(certificate, 30.0));
}

#[test]
fn one_that_accepts_and_says_nothing_rests_longer_each_time() {
    let mut book = book(Order::First);
    let a = address("a", 1);
    for _ in 0..5 {
        let now = seconds(0.0);
        book.tries(&a, now);
        book.opened(&a);
        book.closed(&a);
        book.failed(&a, now, "it says nothing", now);
    }
    assert!(seconds(0.0).until(book.known[&a].rests_until) >= Duration::from_secs(8));
}

#[test]
fn a_name_has_the_addresses_that_it_had_last() {
    let mut book = Book::new(&[node("a")], Order::First, 7);
    book.found(&node("a"), vec![at(2), at(1), at(2)]);
    let all = |book: &mut Book| -> Vec<_> {
        book.in_order(seconds(0.0))
            .into_iter()
            .map(|address| address.at)
            .collect()
    };
    assert_eq!(all(&mut book), [at(1), at(2)]);
    book.opened(&address("a", 1));
    book.opened(&address("a", 2));
    assert_eq!(book.closed(&address("a", 2)), Some(0));
    let gone = book.found(&node("a"), vec![at(3)]);
    assert_eq!(
        gone,
        [address("a", 2)],
        "nobody is connected to it any more"
    );
    assert_eq!(all(&mut book), [at(3)]);
    assert_eq!(
        book.closed(&address("a", 1)),
        None,
        "the last one there is gone"
    );
    assert!(book.known.is_empty());
}

#[test]
fn memory_is_bounded() {
    let mut book = Book::new(&[node("a")], Order::RoundRobin, 7);
    for first in 0..1000_u32 {
        let addresses = (0..100)
            .map(|last| SocketAddr::from((std::net::Ipv4Addr::from(first * 100 + last), 1)));
        book.found(&node("a"), addresses.collect());
        for address in book.in_order(seconds(0.0)) {
            fails(&mut book, &address, seconds(0.0));
        }
    }
    assert_eq!(book.known.len(), MOST_ADDRESSES);
}

#[test]
fn since_when_a_node_is_away_counts_from_its_first_failure() {
    let mut book = book(Order::First);
    let b = address("b", 2);
    for at in [1.0, 5.0, 20.0] {
        fails(&mut book, &b, seconds(at));
    }
    let away = book.away(seconds(31.0));
    assert_eq!(away.len(), 1);
    assert!(
        away[0].starts_with("node b:5672") && away[0].ends_with("has been away for 30 s (refused)"),
        "{away:?}"
    );
    book.answered(&b);
    assert_eq!(book.away(seconds(32.0)), [""; 0]);
    fails(&mut book, &b, seconds(40.0));
    assert!(book.away(seconds(45.0))[0].contains("for 5 s"));
}
