//! Runs the table of conflicts, and what it does not show.

use std::sync::Arc;

use super::fact::Source;
use super::{Catalogue, Life, MOST_IN_SHARD, Queue, Report, Shard};
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::machine::Mono;
use crate::objects::{DeclaredTarget, QueueType};
use crate::registry::{Declared, Form};

#[test]
fn conflicts_end_as_the_table_says() {
    crate::tables::hold("registry/catalogue/testdata", |lines| {
        let catalogue = Catalogue::default();
        let answers = lines.iter().filter_map(|line| answer(&catalogue, line));
        answers.collect::<Vec<_>>().join("\n")
    });
}

fn answer(catalogue: &Catalogue, line: &str) -> Option<String> {
    let (vhost, queue) = (name("/"), name("q"));
    let words: Vec<_> = line.split(' ').collect();
    let tell = |at: &str, source, told| {
        let at = Mono(at.parse().expect("a moment"));
        catalogue.learn(&vhost, &queue, &told, source, at);
    };
    let intake = |exchange: &str| (exchange != "none").then(|| name(exchange));
    match words[..] {
        ["ask"] => {
            return Some(
                catalogue
                    .get(b"/", b"q")
                    .map_or("unknown".to_owned(), shown),
            );
        }
        ["life"] => return Some(format!("life {}", catalogue.life(b"/", b"q").0)),
        ["doubt"] => catalogue.doubt(&vhost, &queue),
        [at, "end"] => catalogue.end(&vhost, &queue, Mono(at.parse().unwrap())),
        [at, "type", of] => tell(at, Source::Declare, Report::Type(queue_type(of))),
        [at, "refusal", exchange] => tell(at, Source::Refusal, Report::Intake(intake(exchange))),
        [at, by @ ("declare" | "listed" | "refused"), of, exchange] => {
            let source = match by {
                "declare" => Source::Declare,
                "listed" => Source::Management,
                _ => Source::Refusal,
            };
            let declared = Arc::new(declared(queue_type(of), exchange));
            tell(at, source, Report::Declared(declared));
        }
        [at, "in", "vain"] => tell(at, Source::Refusal, Report::InVain(None)),
        ["news"] => return Some(format!("news {}", catalogue.news())),
        _ => panic!("what does this say? {line}"),
    }
    None
}

fn queue_type(word: &str) -> QueueType {
    match word {
        "classic" => QueueType::Classic,
        "quorum" => QueueType::Quorum,
        _ => panic!("which type? {word}"),
    }
}

fn declared(queue_type: QueueType, intake: &str) -> Declared {
    let mut arguments = TableBuilder::default();
    let taken_over = intake != "none";
    if taken_over {
        arguments.longstr(b"x-dead-letter-exchange", intake.as_bytes());
    }
    Declared {
        said: DeclaredTarget::Policy {
            at_least_once: false,
        },
        retries: Default::default(),
        queue_type,
        taken_over,
        form: Form::of(0, &arguments.finish()),
        kept: Default::default(),
    }
}

fn shown(queue: Arc<Queue>) -> String {
    let of_type = queue.queue_type.as_ref().map(|fact| {
        let value = match fact.value {
            QueueType::Quorum => "quorum",
            _ => "classic",
        };
        format!("type {value} {}", fact.at.0)
    });
    let intake = queue.intake.as_ref().map(|fact| {
        let value = fact.value.as_ref();
        let value = value.map_or("none".to_owned(), ToString::to_string);
        format!("intake {value} {}", fact.at.0)
    });
    let declared = queue.declared.as_ref();
    let declared = declared.map(|fact| match fact.source {
        Source::Declare => format!("declared {}", fact.at.0),
        Source::Management => format!("listed {}", fact.at.0),
        Source::Refusal => format!("told {}", fact.at.0),
    });
    let asked = queue.asked.map(|at| format!("asked in vain {}", at.0));
    let facts = [of_type, intake, declared, asked];
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    match facts.is_empty() {
        true => "nothing".to_owned(),
        false => facts.join(", "),
    }
}

#[test]
fn queues_of_two_vhosts_are_two() {
    let catalogue = Catalogue::default();
    let told = Report::Type(QueueType::Quorum);
    catalogue.learn(&name("a"), &name("q"), &told, Source::Declare, Mono(1));
    assert!(catalogue.get(b"b", b"q").is_none());
    catalogue.doubt(&name("b"), &name("q"));
    assert_eq!(catalogue.clone().life(b"a", b"q").0, 1);
    catalogue.forget(b"a", b"q");
    assert!(catalogue.get(b"a", b"q").is_none());
}

/// Each of thousands of clients may make a queue with a unique name.
#[test]
fn at_the_bound_the_one_goes_of_which_nobody_has_spoken_for_the_longest_time() {
    let (vhost, mut shard) = (name("/"), Shard::default());
    let queue = |n: usize| name(&n.to_string());
    for n in 0..=MOST_IN_SHARD {
        let mut known = Queue::new(Life::default());
        let told = Report::Type(QueueType::Classic);
        known.learn(&told, Source::Declare, Mono(n as u64), Life::default());
        shard = shard.with(&vhost, &queue(n), known.clone());
        shard = shard.with(&vhost, &queue(n), known); // no further one: nothing goes
    }
    assert!(shard.get(b"/", b"0").is_none());
    assert!((1..=MOST_IN_SHARD).all(|n| shard.get(b"/", &queue(n)).is_some()));
}

/// RabbitMQ compares no argument that it does not know (S7.3).
#[test]
fn what_is_altered_makes_no_other_queue() {
    let catalogue = Catalogue::default();
    let told = |source, altered: bool, at: u64| {
        let mut arguments = TableBuilder::default();
        if altered {
            arguments.longstr(b"x-dlx-proxy-altered", b"x-expires");
        }
        let mut declared = declared(QueueType::Classic, "none");
        declared.form = Form::of(0, &arguments.finish());
        let told = Report::Declared(Arc::new(declared));
        catalogue.learn(&name("/"), &name("q"), &told, source, Mono(at));
        catalogue.life(b"/", b"q")
    };
    let life = told(Source::Declare, false, 10);
    assert_eq!(told(Source::Management, true, 20), life);
}

#[test]
fn a_late_list_does_not_say_what_is_altered() {
    let catalogue = Catalogue::default();
    let listed = |names: &[u8], at: u64| {
        let mut arguments = TableBuilder::default();
        arguments.longstr(b"x-dlx-proxy-altered", names);
        let mut declared = declared(QueueType::Classic, "none");
        declared.form = Form::of(0, &arguments.finish());
        let told = Report::Declared(Arc::new(declared));
        catalogue.learn(&name("/"), &name("q"), &told, Source::Management, Mono(at));
        let known = catalogue.get(b"/", b"q").expect("it is listed");
        known.altered().expect("something is").to_vec()
    };
    assert_eq!(listed(b"x-expires,x-max-length", 20).len(), 2);
    assert_eq!(listed(b"x-expires", 10).len(), 2);
    assert_eq!(listed(b"x-expires", 30).len(), 1);
}
