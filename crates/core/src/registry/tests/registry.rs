//! The registry itself.

use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::Mono;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Report};
use crate::registry::said_retries::SaidRetries;
use crate::registry::{Declared, FRESH_FOR, Form, Registry};

/// Queues that a session may know.
const MOST: usize = 10;

fn declared(taken_over: bool) -> Declared {
    Declared {
        said: DeclaredTarget::Policy {
            at_least_once: false,
        },
        retries: SaidRetries::default(),
        queue_type: QueueType::Default,
        taken_over,
        form: Form::default(),
        kept: Default::default(),
    }
}

#[test]
fn knowledge_ends_with_the_life_of_the_queue() {
    let mut registry = Registry::new(Catalogue::default(), MOST);
    assert!(registry.insert(ShortStr::copy(b"q").unwrap(), declared(true), Mono(0)));
    assert_eq!(*registry.get(b"q").unwrap().declared, declared(true));
    registry.end(&ShortStr::copy(b"q").unwrap(), Mono(0));
    assert_eq!(registry.get(b"q"), None);
}

/// What one user may not ask, another one may.
#[test]
fn what_a_user_asked_in_vain_is_unknown_to_others() {
    let registry = Registry::new(Catalogue::default(), MOST);
    let [q, worker, admin] = [&b"q"[..], b"worker", b"admin"].map(|it| ShortStr::copy(it).unwrap());
    let in_vain = Report::InVain(Some(worker.clone()));
    registry.tell(&q, &in_vain, Source::Refusal, Mono(0));
    let is_unknown = |user, at| registry.is_unknown(b"q", user, at);
    assert!(!is_unknown(Some(&worker), Mono(1)));
    assert!(is_unknown(Some(&admin), Mono(1)) && is_unknown(None, Mono(1)));
    assert!(is_unknown(Some(&worker), Mono(0).after(FRESH_FOR)));
}

#[test]
fn knowledge_is_fresh_for_a_minute_and_again_when_verified() {
    let mut registry = Registry::new(Catalogue::default(), MOST);
    let just_before = Mono(0).after(FRESH_FOR - Duration::from_micros(1));
    registry.insert(ShortStr::copy(b"q").unwrap(), declared(true), Mono(0));
    assert!(registry.is_fresh(b"q", just_before));
    assert!(!registry.is_fresh(b"q", Mono(0).after(FRESH_FOR)));
    registry.verified(b"q", just_before);
    assert!(registry.is_fresh(b"q", Mono(0).after(FRESH_FOR)));
    assert!(!registry.is_fresh(b"other", Mono(0)));
}

#[test]
fn at_the_bound_known_queues_stay_known() {
    let mut registry = Registry::new(Catalogue::default(), MOST);
    let name = |n: usize| ShortStr::new(n.to_string()).unwrap();
    for n in 0..MOST {
        assert!(registry.insert(name(n), declared(true), Mono(0)));
    }
    assert!(!registry.insert(name(MOST), declared(true), Mono(0)));
    assert!(registry.insert(name(7), declared(false), Mono(1)));
    assert!(!registry.get(&name(7)).unwrap().declared.taken_over);
}

#[test]
fn a_queue_that_ends_in_one_session_ends_in_all_of_its_vhost() {
    let catalogue = Catalogue::default();
    let [here, mut there, elsewhere] = ["v", "v", "w"].map(|vhost| {
        let mut registry = Registry::new(catalogue.clone(), MOST);
        registry.enter(ShortStr::new(vhost).unwrap());
        registry.insert(ShortStr::copy(b"q").unwrap(), declared(true), Mono(0));
        registry
    });
    assert!(there.is_alive(b"q", Mono(0)));
    here.doubt(&ShortStr::copy(b"q").unwrap());
    assert!(!there.is_alive(b"q", Mono(0)) && !there.is_fresh(b"q", Mono(0)));
    assert!(elsewhere.is_alive(b"q", Mono(0)));
    there.verified(b"q", Mono(0));
    assert!(there.is_fresh(b"q", Mono(0)));
    elsewhere.doubt(&ShortStr::copy(b"other").unwrap());
    assert!(elsewhere.is_alive(b"q", Mono(0)));
}
