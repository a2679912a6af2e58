//! Runs the tables: what a letter says of itself, and which filters take it. A block is a message and its way, as in the tables of
//! `dead_letter`, and lines that ask.

use std::str::FromStr;

use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::HistoryForm;
use crate::dead_letter::tests::away::BROKERS;
use crate::dead_letter::tests::journey::Journey;
use crate::dead_letter::tests::script::{Words, spelled};
use crate::letter::{Detail, ErrorHeaders, Filter, Id, Letter, beginning};
use crate::machine::{Reason, Wall};

#[test]
fn letters_say_what_the_tables_say() {
    crate::tables::hold("letter/testdata", |lines| {
        let mut journey = Journey::new(BROKERS[3], HistoryForm::WRITTEN, lines[0]);
        let mut answers = Vec::new();
        for line in &lines[1..] {
            match line.starts_with("- ") {
                true => drop(journey.step(line)),
                false => answers.push(answer(&journey, line)),
            }
        }
        answers.join("\n")
    });
}

fn answer(journey: &Journey, line: &str) -> String {
    let letter = Letter {
        exchange: name(&journey.exchange),
        routing_key: name(&journey.key),
        properties: journey.content.properties.clone(),
        ..super::letter(TableBuilder::default(), "one two three")
    };
    let mut words = Words::of(line);
    let answer = match words.verb.as_str() {
        "shown" => shown(&letter),
        "id" => letter.id().to_string(),
        "history" => Detail::of(&letter, &ErrorHeaders::default())
            .history
            .join("\n"),
        "source" => {
            let last = letter.last_death();
            let queue = last.source.map(|queue| queue.to_string());
            let (time, deaths) = (last.died_at.map(Wall::seconds), last.deaths.len());
            format!("{queue:?} {:?} {time:?} of {deaths}", last.reason)
        }
        "waits" => letter.waiting().map_or("no".to_owned(), |it| {
            let (queue, due, attempts) = (it.queue, it.due.0, it.attempts);
            format!("for {queue} until {due}, {attempts} times")
        }),
        "filter" => {
            let filter = filter(&mut words);
            let is_all = if filter.is_all() { " all" } else { "" };
            match filter.takes(&letter) {
                true => format!("takes{is_all}"),
                false => "refuses".to_owned(),
            }
        }
        other => panic!("no verb {other}"),
    };
    words.done();
    answer
}

/// A line for each field that says something.
fn shown(letter: &Letter) -> String {
    let detail = Detail::of(letter, &ErrorHeaders::default());
    let detail = serde_json::to_value(detail).unwrap();
    let fields = detail.as_object().unwrap().iter();
    let told = fields.filter(|(_, value)| !value.is_null() && **value != false);
    let lines = told.map(|(field, value)| format!("{field}: {value}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn filter(words: &mut Words) -> Filter {
    let mut filter = Filter {
        source: words.take("source").map(|queue| name(&queue)),
        reason: words
            .take("reason")
            .and_then(|it| Reason::parse(it.as_bytes())),
        routing_key: words.take("key").map(|key| name(&key)),
        body: words.take("body").map(String::into_bytes),
        died_by: words
            .take("died-by")
            .map(|by| Wall::of_seconds(by.parse().unwrap())),
        died_since: words
            .take("died-since")
            .map(|since| Wall::of_seconds(since.parse().unwrap())),
        waits: words
            .take("waits")
            .map(|queue| (queue != "anywhere").then(|| name(&queue))),
        exact: words.take("exact").map(|_| ErrorHeaders::default()),
        ..Filter::default()
    };
    let error = words
        .take("error")
        .and_then(|line| beginning(spelled(&line).as_bytes()));
    filter.error = error.map(|line| (ErrorHeaders::default(), line));
    while let Some((name, value)) = words.take_header() {
        filter.headers.push((name.into(), value.into()));
    }
    while let Some(id) = words.take("id") {
        filter.ids.push(Id::from_str(&id).unwrap());
    }
    filter
}
