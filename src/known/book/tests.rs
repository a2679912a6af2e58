use super::*;
use crate::amqp::ids::name;

fn at(second: u64) -> Mono {
    Mono(0).after(Duration::from_secs(second))
}

#[derive(Default)]
struct Scene(Book);

impl Scene {
    fn sent(&mut self, queue: &str, second: u64) {
        self.aimed("", queue, second);
    }

    fn aimed(&mut self, exchange: &str, key: &str, second: u64) {
        let (exchange, key) = (name(exchange), name(key));
        let to = [&exchange, &key];
        self.0.sent(&name("v"), to, false, at(second));
    }

    fn count(&mut self, queue: &str, messages: u64, second: u64) {
        self.0
            .counted(&name("v"), &name(queue), messages, at(second));
    }

    /// Of the exchanges there are `hash`, of a plugin, and the direct `x`, with these keys and queues.
    fn survey(&mut self, bindings: &[(&str, &str)]) {
        let targets = self.0.targets(&name("v")).into_iter();
        let found = targets.map(|target| {
            let key = target.routing_key.as_ref();
            let bound = bindings
                .iter()
                .filter(|(of, _)| key.is_none_or(|key| *key == name(of)));
            let leads_to = match target.exchange.as_bytes() {
                b"x" => Leads::To(bound.map(|(_, queue)| name(queue)).collect()),
                b"hash" => Leads::Unknown,
                _ => Leads::Nowhere,
            };
            (target, leads_to)
        });
        let found = found.collect();
        self.0.surveyed(&name("v"), found);
    }

    fn known(&self, second: u64) -> Known {
        self.0.known(&name("v"), at(second))
    }

    /// `queue by targets: dead letters, messages, age of the oldest`
    fn lines(&self, second: u64) -> Vec<String> {
        let known = self.known(second);
        let lines = known.queues.iter().map(|queue| {
            let targets = queue.targets.iter().map(shown).collect::<Vec<_>>();
            let parking = if queue.parking { " (parking)" } else { "" };
            let number = |number: Option<u64>| number.map_or("?".to_owned(), |n| n.to_string());
            format!(
                "{}{parking} by {}: {}, {}, {}",
                queue.queue,
                targets.join(" "),
                queue.dead_letters,
                number(queue.messages),
                number(queue.oldest_seconds),
            )
        });
        lines.collect()
    }

    fn unknown(&self) -> Vec<String> {
        let known = self.known(0);
        let line = |(target, letters): &(Target, u64)| format!("{}: {letters}", shown(target));
        known.unknown.iter().map(line).collect()
    }
}

fn shown(target: &Target) -> String {
    let key = target.routing_key.as_ref();
    let key = key.map_or("*".to_owned(), ToString::to_string);
    format!("{}/{key}", target.exchange)
}

#[test]
fn a_queue_that_was_named_is_known_with_what_the_broker_tells() {
    let mut scene = Scene::default();
    scene.sent("dead", 10);
    scene.sent("dead", 20);
    let parking = name("dlx-proxy.parked");
    let to = [&ShortStr::EMPTY, &parking];
    scene.0.sent(&name("v"), to, true, at(5));
    assert_eq!(
        scene.lines(30),
        [
            "dead by /dead: 2, ?, ?",
            "dlx-proxy.parked (parking) by : 1, ?, ?"
        ]
    );
    scene.count("dead", 1, 60);
    assert_eq!(scene.lines(70)[0], "dead by /dead: 2, 1, 50");
    assert_eq!(scene.lines(91)[0], "dead by /dead: 2, ?, ?", "long ago");
    scene.0.gone(&name("v"), &name("dead"), at(91));
    assert_eq!(scene.lines(91).len(), 1);
    assert_eq!(scene.0.known(&name("other"), at(0)), Known::default());
}

#[test]
fn bindings_tell_where_a_named_exchange_leads() {
    let mut scene = Scene::default();
    scene.aimed("x", "k", 10);
    scene.aimed("x", "k", 20);
    scene.aimed("hash", "k", 20);
    assert_eq!(scene.unknown(), ["hash/k: 1", "x/k: 2"]);
    scene.survey(&[("k", "a"), ("k", "b")]);
    assert_eq!(scene.unknown(), ["hash/k: 1"]);
    assert_eq!(scene.lines(30), ["a by x/k: 2, ?, ?", "b by x/k: 2, ?, ?"]);
    // What came before the survey counts, too.
    scene.aimed("x", "k", 30);
    scene.sent("a", 40);
    scene.count("a", 4, 60);
    scene.count("b", 1, 60);
    assert_eq!(
        scene.lines(60),
        ["a by /a x/k: 4, 4, 50", "b by x/k: 3, 1, 30"]
    );
    // A binding has gone.
    scene.survey(&[("k", "b")]);
    scene.aimed("x", "k", 70);
    assert_eq!(scene.lines(70), ["a by /a: 4, 4, 60", "b by x/k: 4, 1, 40"]);
}

#[test]
fn a_survey_is_wanted_seldom() {
    let mut scene = Scene::default();
    let vhost = name("v");
    scene.sent("dead", 10);
    assert!(!scene.0.wants_survey(&vhost, at(10)), "nothing is unknown");
    scene.aimed("x", "k", 10);
    assert!(scene.0.wants_survey(&vhost, at(10)));
    assert!(!scene.0.wants_survey(&vhost, at(20)), "one is under way");
    scene.survey(&[("k", "a")]);
    assert!(!scene.0.wants_survey(&vhost, at(100)));
    scene.aimed("x", "new", 110);
    assert!(scene.0.wants_survey(&vhost, at(110)));
    scene.survey(&[]);
    assert!(!scene.0.wants_survey(&vhost, at(700)));
    assert!(scene.0.wants_survey(&vhost, at(710)), "bindings change");
}

#[test]
fn a_target_of_which_nothing_can_be_told_is_not_asked_for_again_and_again() {
    let mut scene = Scene::default();
    scene.aimed("hash", "k", 10);
    assert!(scene.0.wants_survey(&name("v"), at(10)));
    scene.survey(&[]);
    scene.aimed("hash", "k", 20);
    assert!(!scene.0.wants_survey(&name("v"), at(100)));
    assert_eq!(scene.unknown(), ["hash/k: 2"]);
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut scene = Scene::default();
    for number in 0..MOST_QUEUES + 5 {
        scene.sent(&format!("q{number}"), 0);
    }
    for number in 0..MOST_EXCHANGES + 5 {
        scene.aimed(&format!("x{number}"), "k", 0);
    }
    let known = scene.known(0);
    assert_eq!((known.queues.len(), known.left_out), (MOST_QUEUES, 10));
    assert_eq!(known.unknown.len(), MOST_EXCHANGES);
    scene.sent("q0", 0);
    assert_eq!(scene.known(0).left_out, 10, "that one is known");

    for vhost in 0..10 {
        for number in 0..MOST_QUEUES {
            let (vhost, queue) = (name(&format!("v{vhost}")), name(&format!("q{number}")));
            let to = [&ShortStr::EMPTY, &queue];
            scene.0.sent(&vhost, to, false, at(0));
        }
    }
    assert_eq!(scene.0.room(), 0);
}

#[test]
fn of_an_exchange_only_some_keys_are_told_apart() {
    let mut scene = Scene::default();
    for number in 0..100 {
        scene.aimed("x", &format!("k{number:02}"), 10);
    }
    let unknown = scene.unknown();
    assert_eq!(unknown.len(), MOST_KEYS + 1);
    assert_eq!(unknown[0], format!("x/*: {}", 100 - MOST_KEYS));
    scene.survey(&[("k99", "late")]);
    assert_eq!(
        scene.lines(20),
        [format!("late by x/*: {}, ?, ?", 100 - MOST_KEYS)]
    );
}

impl Scene {
    fn expect(&mut self, targets: &[(&str, &str)]) {
        let target = |(exchange, key): &(&str, &str)| Target {
            exchange: name(exchange),
            routing_key: (*key != "*").then(|| name(key)),
        };
        let targets = targets.iter().map(target).collect();
        self.0.expect(&name("v"), &name("parked"), &targets);
    }

    fn standing(&self, exchange: &str, key: &str) -> Standing {
        let target = Target {
            exchange: name(exchange),
            routing_key: (key != "*").then(|| name(key)),
        };
        self.0.standing(&name("v"), &target)
    }

    fn due(&self, second: u64) -> Vec<String> {
        let due = self.0.due(&name("v"), at(second));
        due.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn the_targets_of_queues_are_known_before_anything_dies() {
    let mut scene = Scene::default();
    scene.expect(&[
        ("", "dead"),
        ("", "gone"),
        ("x", "k"),
        ("missing", "*"),
        ("", "*"),
    ]);
    assert_eq!(scene.due(0), ["dead", "gone", "parked"]);
    scene.count("dead", 100_024, 0);
    scene.0.gone(&name("v"), &name("gone"), at(0));
    assert!(scene.0.wants_survey(&name("v"), at(0)));
    scene.survey(&[("k", "behind")]);
    let lines = [
        "behind by x/k: 0, ?, ?",
        "dead by /dead: 0, 100024, ?",
        "parked (parking) by : 0, ?, ?",
    ];
    assert_eq!(scene.lines(600), lines, "counted seldom");
    assert_eq!(scene.unknown(), [""; 0], "nothing went elsewhere");
    let standings = [
        ("", "dead"),
        ("", "gone"),
        ("", "parked"),
        ("x", "k"),
        ("x", "other"),
        ("missing", "*"),
    ];
    assert_eq!(
        standings.map(|(exchange, key)| scene.standing(exchange, key)),
        [
            Standing::Queue,
            Standing::NoQueue,
            Standing::Unknown,
            Standing::Queue,
            Standing::Unknown,
            Standing::NoExchange
        ]
    );
    // Of those that nothing was sent to, only what was not asked for of late.
    assert_eq!(scene.due(10), ["behind", "parked"]);
    scene.sent("dead", 20);
    assert_eq!(scene.due(20), ["behind", "dead", "parked"]);
    assert_eq!(scene.due(600), ["behind", "dead", "gone", "parked"]);
    // No queue has these targets any more.
    scene.expect(&[]);
    assert_eq!(
        scene.lines(20),
        [
            "dead by /dead: 1, 100024, ?",
            "parked (parking) by : 0, ?, ?"
        ]
    );
    assert_eq!(scene.standing("missing", "*"), Standing::Unknown);
}

#[test]
fn targets_that_may_be_empty_go_for_those_that_dead_letters_went_to() {
    let mut scene = Scene::default();
    let names: Vec<_> = (0..MOST_QUEUES + 5)
        .map(|number| format!("q{number:03}"))
        .collect();
    let targets: Vec<_> = names.iter().map(|name| ("", name.as_str())).collect();
    scene.expect(&targets);
    let known = scene.known(0);
    assert_eq!((known.queues.len(), known.uncounted), (MOST_QUEUES, 6));
    assert_eq!(scene.due(0).len(), SELDOM_AT_ONCE);
    scene.count("parked", 1, 0);
    scene.count("q000", 1, 0);
    scene.sent("new", 0);
    let known = scene.known(0);
    let left = |name: &str| {
        known
            .queues
            .iter()
            .any(|queue| queue.queue == crate::amqp::ids::name(name))
    };
    assert_eq!((known.queues.len(), known.left_out), (MOST_QUEUES, 0));
    assert_eq!(
        ["new", "parked", "q000", "q001"].map(left),
        [true, true, true, false]
    );
}

#[test]
fn what_is_parked_is_told_by_cause() {
    let mut scene = Scene::default();
    let causes = vec![(name("unroutable"), 3), (name(""), 1)];
    scene.0.parked(&name("v"), &causes);
    assert_eq!(scene.known(0).parked, causes);
}
