//! Runs the blocks of `testdata/*.txt`. `UPDATE=1` rewrites their answers; a human reads the diff.
//!
//! A block is a comment with the rule's number, a command, the message it is about, `----` and the answer:
//! `plan` a death · `publish` and `deliver` an edit of a message that passes · `hide` its user-id · `signal` what intake reads · `return` what
//! becomes of a message that a client returned · `aside` and `target` what it carries into a queue of ours, and into another. `delays` and
//! `verdict` have no message.
//! Names of bridges are put right first, as all callers do.

use std::path::Path;

use crate::amqp::ids::name;
use crate::dead_letter::proof::{self, Parked};
use crate::dead_letter::{
    Bridges, Death, Dialect, Disposal, Rules, Target, delivery_time, plan, private, signal,
};
use crate::machine::{Reason, Wall};

use super::message;
use super::rendered::render;
use super::retried;
use super::script::{Words, parts};

#[test]
fn rules_hold_as_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dead_letter/testdata");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no tables");
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let answered = answer_all(&text);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, answered).unwrap();
        } else if answered != text {
            wrong.push(difference(&path, &text, &answered));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn answer_all(text: &str) -> String {
    let blocks = text.trim_end().split("\n\n").map(|block| {
        let Some((asked, _)) = block.split_once("\n----") else {
            return block.to_owned(); // only a comment
        };
        format!("{asked}\n----\n{}", answer(asked))
    });
    blocks.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn difference(path: &Path, text: &str, answered: &str) -> String {
    let blocks = text
        .trim_end()
        .split("\n\n")
        .zip(answered.trim_end().split("\n\n"));
    let wrong: Vec<_> = blocks
        .filter(|(expected, got)| expected != got)
        .map(|(expected, got)| format!("{expected}\n>>>> is now\n{got}"))
        .collect();
    format!("{}:\n{}", path.display(), wrong.join("\n\n"))
}

fn answer(asked: &str) -> String {
    let lines: Vec<&str> = asked
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let (command, message) = match lines.as_slice() {
        [command] => return retried::answer(Words::of(command)),
        [command, message] => (*command, *message),
        _ => panic!("a block has a command and a message:\n{asked}"),
    };
    let mut words = Words::of(command);
    let message = message::build(message);
    let bridges = Bridges::new(name("dlx-proxy.bridge/"));
    let content = bridges.content(&message.content);
    match words.verb.as_str() {
        "plan" => {
            let queue = name(&words.take("queue").unwrap());
            let death = Death {
                queue: &queue,
                reason: Reason::parse(words.take("reason").unwrap().as_bytes()).unwrap(),
                exchange: bridges.behind(message.exchange.as_bytes()),
                routing_key: message.key.as_bytes(),
                content: &content,
                recorded: words.flag("recorded"),
                by: None,
            };
            let now = words.take("now").unwrap().parse().unwrap();
            let target = target(&mut words);
            let rules = rules(&mut words);
            words.done();
            show(plan(&death, &target, &rules, now).unwrap())
        }
        "publish" => {
            let rules = rules(&mut words);
            words.done();
            let key = message.key.as_bytes();
            changed(private::on_publish(
                &message.content.properties,
                key,
                &rules,
            ))
        }
        "deliver" => {
            let dialect = words.take("dialect");
            let own = words.take("own").unwrap_or_default();
            words.done();
            let dialect = dialect.map_or(Dialect::V4, |name| generation(&name));
            let properties = &message.content.properties;
            changed(bridges.on_delivery(properties, own.as_bytes(), dialect))
        }
        "prove" => {
            let own = words.take("own").unwrap();
            let (exchange, cause) = (words.take("exchange"), words.take("cause"));
            let unproven = words.flag("unproven");
            words.done();
            let properties = &message.content.properties;
            let parked = exchange.as_ref().zip(cause.as_ref());
            let parked = parked.map(|(exchange, cause)| Parked {
                exchange: exchange.as_bytes(),
                cause: cause.as_bytes(),
            });
            changed(match unproven {
                true => proof::unproven(properties, own.as_bytes(), parked.unwrap()),
                false => proof::prove(properties, own.as_bytes(), parked),
            })
        }
        "return" => {
            let rules = rules(&mut words);
            retried::returned(words, &message, &rules).map_or("native".to_owned(), show)
        }
        "aside" => {
            words.done();
            changed(delivery_time::set_aside(&message.content.properties))
        }
        "target" => {
            let now = words.take("now").unwrap().parse().unwrap();
            words.done();
            let properties = delivery_time::for_target(&message.content.properties, Wall(now));
            let too_far = properties.as_ref().is_some_and(|it| it.too_far);
            let lost = if too_far { "without its time, " } else { "" };
            format!("{lost}{}", changed(properties.map(|it| it.properties)))
        }
        "strip" => {
            words.done();
            changed(private::stripped(&message.content.properties))
        }
        "signal" => {
            words.done();
            match signal(message.key.as_bytes(), &content) {
                Err(implausible) => format!("implausible: {implausible}"),
                Ok(signal) => format!(
                    "signal queue={} reason={} exchange={} count={}",
                    signal.queue,
                    signal.reason.as_str(),
                    message::quoted(signal.exchange),
                    signal.count
                ),
            }
        }
        other => panic!("no command {other}"),
    }
}

fn target(words: &mut Words) -> Target {
    let target = words.take("target").unwrap();
    let target = parts(target.trim_start_matches('(').trim_end_matches(')'));
    Target {
        exchange: name(&target[0]),
        routing_key: target.get(1).map(|key| name(key)),
        at_least_once: words.flag("at-least-once"),
    }
}

fn generation(name: &str) -> Dialect {
    match name {
        "3.x" => Dialect::V3,
        "3.13" => Dialect::V3_13,
        "4.x" => Dialect::V4,
        other => panic!("no dialect {other}"),
    }
}

fn rules(words: &mut Words) -> Rules {
    Rules {
        dialect: generation(&words.take("dialect").unwrap()),
        max_history: words
            .take("max-history")
            .map_or(256, |n| n.parse().unwrap()),
        continue_history: words.take("history").is_none_or(|mode| mode == "continue"),
        stamp: Default::default(),
    }
}

fn show(verdict: Disposal) -> String {
    match verdict {
        Disposal::Drop(lap) => {
            let lap: Vec<_> = lap.iter().map(ToString::to_string).collect();
            format!("drop cycle [{}]", lap.join(", "))
        }
        Disposal::Publish(publication) => published("publish", &publication),
        Disposal::Park(publication, cause) => published(&format!("park {cause:?}"), &publication),
        Disposal::Retry(publication) => {
            published(&format!("retry: {:?}", publication.purpose), &publication)
        }
        Disposal::LeaveToBroker(why) => format!("leave to the broker: {why:?}"),
    }
}

fn published(how: &str, publication: &crate::machine::Publication) -> String {
    format!(
        "{how} exchange={} key={} {}",
        message::quoted(&publication.exchange),
        message::quoted(&publication.routing_key),
        render(&publication.content.properties)
    )
}

fn changed(properties: Option<::bytes::Bytes>) -> String {
    properties.map_or("same".to_owned(), |properties| {
        format!("changed {}", render(&properties))
    })
}
