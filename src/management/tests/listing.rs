//! Queues of real nodes, lists that end in the middle, and questions for single queues.

use super::*;
use crate::amqp::method::QueueDeclare;
use crate::machine::Mono;
use crate::management::listing::{Learner, Listing};
use crate::registry::catalogue::fact::Source;
use crate::registry::catalogue::{Catalogue, Report};
use crate::registry::{Declared, Form};

const QUEUES: [&str; 2] = [
    include_str!("../testdata/queues-3.10.8.json"),
    include_str!("../testdata/queues-4.3.6.json"),
];

fn listing(scene: &Scene) -> Listing {
    Listing {
        management: scene.management.clone(),
        clock: SystemClock::start(),
        learner: learner(),
    }
}

fn learner() -> Learner {
    Learner {
        vhost: name("a/b"),
        names: Names::default(),
        catalogue: Catalogue::default(),
    }
}

/// What the catalogue knows of a queue, by whom, and where its dead letters go.
fn known(learner: &Learner, queue: &str) -> Option<(QueueType, Source, DeclaredTarget)> {
    let known = learner.catalogue.get(&learner.vhost, queue.as_bytes())?;
    let declared = known.declared()?;
    let said = declared.value.said.clone();
    Some((declared.value.queue_type, declared.source, said))
}

fn to(exchange: &str, key: Option<&str>) -> DeclaredTarget {
    DeclaredTarget::Target(Target {
        exchange: name(exchange),
        routing_key: key.map(name),
        at_least_once: false,
    })
}

/// A float and an array are in nobody's way, and a stream has no dead letters.
#[test]
fn queues_of_real_nodes_come_into_the_catalogue() {
    let source = Source::Management;
    for answer in QUEUES {
        let learner = learner();
        let learned = learner.learn_all(answer.as_bytes(), Mono(1));
        assert!(learned.expect("JSON").is_whole);
        let quorum = (QueueType::Quorum, source, to("dlx", None));
        assert_eq!(known(&learner, "a/b%20 ü"), Some(quorum));
        let classic = (QueueType::Classic, source, to("", Some("dead")));
        assert_eq!(known(&learner, "classic"), Some(classic));
        let taken = learner.catalogue.get(&learner.vhost, b"taken");
        let taken = taken.expect("known");
        let declared = &taken.declared().expect("known").value;
        assert!(declared.taken_over);
        assert_eq!(declared.said, to("dlx", None));
        assert_eq!(declared.form.bits, QueueDeclare::DURABLE);
        let stream = known(&learner, "stream").expect("known");
        assert_eq!(stream.0, QueueType::Other);
        assert_eq!(known(&learner, "mine"), None, "it is exclusive");
    }
}

#[test]
fn what_a_list_lacks_is_doubted_only_if_it_is_whole() {
    let learner = learner();
    let is_doubted = |at, answer: &str| {
        let (vhost, queue) = (&learner.vhost, name("gone"));
        let declared = Declared::of_queue(Form::default(), QueueType::Classic, &learner.names);
        let told = Report::Declared(Arc::new(declared));
        let catalogue = &learner.catalogue;
        catalogue.learn(vhost, &queue, &told, Source::Declare, Mono(at));
        let life = catalogue.life(vhost, &queue);
        let read = learner.learn_all(answer.as_bytes(), Mono(5));
        (read.is_ok(), catalogue.life(vhost, &queue) != life)
    };
    let whole = QUEUES[0];
    let (cut, _) = whole.split_once("stream").expect("it is in there");
    assert_eq!(is_doubted(1, cut), (false, false));
    assert!(known(&learner, "classic").is_some(), "it was read before");
    assert_eq!(is_doubted(2, whole), (true, true));
    assert_eq!(is_doubted(6, whole), (true, false), "it came later");
}

#[tokio::test]
async fn all_queues_are_listed_and_single_ones_asked_for() {
    let scene = Scene::open().await;
    let listing = listing(&scene);
    let catalogue = &listing.learner.catalogue;
    let default_type = || {
        let known = catalogue.default_type(b"a/b")?;
        known.value
    };
    let one = r#"{"name":"%s","durable":true,"type":"classic","arguments":{}}"#;
    let answers = [
        // As 3.10.8 answers where no type is set: only its file may know.
        (r#"[{"name":"a/b","default_queue_type":"undefined"}]"#, None),
        (
            r#"[{"name":"a/b","default_queue_type":"quorum"}]"#,
            Some(QueueType::Quorum),
        ),
        (r#"[{"name":"a/b"}]"#, Some(QueueType::Quorum)),
    ];
    for (answer, expected) in answers {
        scene.says(on(answer));
        listing.list().await.expect("an answer");
        assert_eq!(default_type(), expected);
    }
    scene.was_asked("queues/a%2Fb?disable_stats=true&columns=name,");

    for (answer, is_known) in [
        (refused(), false),
        (GONE.to_owned(), false),
        (on(&one.replace("%s", "100% ü")), true),
    ] {
        scene.says(answer);
        listing.ask_for(&BTreeSet::from([name("100% ü")])).await;
        assert_eq!(known(&listing.learner, "100% ü").is_some(), is_known);
    }
    scene.was_asked("queues/a%2Fb/100%25%20%C3%BC?disable_stats=true&");
}

/// Only a change of the policies counts as one, and only a good answer is one.
#[tokio::test]
async fn changes_are_counted_and_whether_there_was_an_answer() {
    let mut scene = Scene::open().await;
    let live = scene.management.policies.clone();
    let mut before = live.changes();
    for (answer, hears, changed) in [
        (on("[]"), true, true),
        (on("[]"), true, false),
        (ok("<html>"), false, false),
        (on(POLICIES[0]), true, true),
        (on(POLICIES[0]), true, false),
    ] {
        scene.read(&answer).await;
        assert_eq!(live.hears_broker(), hears);
        assert_eq!(
            std::mem::replace(&mut before, live.changes()) != before,
            changed
        );
    }
}
