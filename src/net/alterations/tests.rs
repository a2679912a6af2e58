//! What walks and alterations of one queue mean to each other, and what is known of it afterwards.

use bytes::Bytes;
use serde_json::{from_value, json};

use super::*;
use crate::alteration::Order;
use crate::dead_letter::{HistoryForm, RuleSettings};
use crate::link::Login;
use crate::objects::Names;

fn settings(order: Order) -> Settings {
    Settings {
        login: Login {
            vhost: Vhost::EMPTY,
            user: ShortStr::EMPTY,
            password: Bytes::new(),
            seed: 0,
        },
        names: Names::default(),
        order,
        task: Task::Finish,
        rules: RuleSettings {
            continue_history: false,
            history_form: HistoryForm::WRITTEN,
        },
    }
}

#[test]
fn only_a_queue_that_is_made_as_ordered_has_its_arguments() {
    let order = |new| {
        let order = json!({"queue": "q", "durable": true, "quorum": false, "bindings": [], "old": {}, "new": new});
        settings(from_value(order).expect("an order"))
    };
    let ordered = order(json!({"x-max-length": 2, "x-dlx-proxy-altered": "x-max-length"}));
    let before = order(json!({}));
    let known = |catalogue: &Catalogue| {
        let known = catalogue.get(b"", b"q").expect("a queue");
        let form = known.declared().expect("a declare").value.form.clone();
        (form.arguments.is_empty(), known.altered().is_some())
    };
    for (made, knows) in [
        (Made::Otherwise, (true, true)),
        (Made::Stays, (true, true)),
        (Made::Ordered, (false, true)),
    ] {
        let catalogue = Catalogue::default();
        learn(&catalogue, &before, Made::Ordered, Mono(1));
        assert_eq!(known(&catalogue), (true, false));
        let life = catalogue.life(b"", b"q");
        learn(&catalogue, &ordered, made, Mono(2));
        assert_eq!(known(&catalogue), knows, "{made:?}");
        assert_ne!(catalogue.life(b"", b"q"), life, "{made:?}");
    }
}

#[test]
fn a_queue_is_walked_or_made_anew() {
    let hub = Hub::new(Box::new(|_, _, _| ()));
    let name = |text: &str| ShortStr::copy(text.as_bytes()).expect("a name");
    let (vhost, queue) = (Vhost::from(name("/")), name("q"));
    let begin = |hub: &Hub| {
        let reach = Reach {
            vhost: vhost.clone(),
            queue: queue.clone(),
            exchanges: BTreeSet::new(),
        };
        let (to, _) = mpsc::channel(1);
        hub.begin_swap(reach, Box::new(|_| ()), to)
    };
    let walking = [(); 2].map(|()| hub.walking(&vhost, &queue));
    let [first, second] = walking;
    drop(first);
    assert_eq!(begin(&hub).err(), Some(Failure::Walked));
    drop(second);
    let held = begin(&hub);
    assert!(hub.walking(&vhost, &queue).is_none());
    assert!(hub.walking(&vhost, &name("another")).is_some());
    drop(held);
    assert!(hub.walking(&vhost, &queue).is_some());
}
