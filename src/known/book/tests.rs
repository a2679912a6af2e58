use super::*;
use crate::amqp::ids::name;
use crate::tests::lines_hold;

/// What the lines of a scene have made, in the vhost `v`, with the parking queue `parked`.
#[derive(Default)]
struct Scene(Book);

#[tokio::test]
async fn the_book_answers_as_its_table_says() {
    let mut scene = Scene::default();
    lines_hold("known/testdata/book.txt", async |line| match line {
        "" => {
            scene = Scene::default();
            String::new()
        }
        line => scene.line(line),
    })
    .await;
}

/// `EXCHANGE/KEY`; the key `*` is none.
fn target(text: &str) -> Target {
    let (exchange, key) = text.split_once('/').expect("a target");
    Target {
        exchange: name(exchange),
        routing_key: (key != "*").then(|| name(key)),
    }
}

fn shown(
    Target {
        exchange,
        routing_key,
    }: &Target,
) -> String {
    let key = routing_key.as_ref();
    format!(
        "{exchange}/{}",
        key.map_or("*".to_owned(), ToString::to_string)
    )
}

impl Scene {
    /// `SECOND VERB WORDS…`
    fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        let (vhost, book) = (name("v"), &mut self.0);
        let now = Mono(0).after(Duration::from_secs(number(0)));
        let said = |known: Queues| known.queues.iter().map(line_of).collect::<Vec<_>>();
        match (words[1], words.get(2).copied().unwrap_or_default()) {
            ("sent", to) => {
                let times = words.get(3).map_or(1, |_| number(3));
                for time in 0..times {
                    let to = target(&to.replace('#', &format!("{time:03}")));
                    let to = [&to.exchange, &to.routing_key.unwrap_or_default()];
                    book.sent(&vhost, to, None, now);
                }
            }
            ("parks", cause) => book.sent(
                &vhost,
                [&ShortStr::EMPTY, &name("parked")],
                Some(cause),
                now,
            ),
            ("counted", queue) => book.counted(&vhost, &name(queue), number(3), now),
            ("gone", queue) => book.gone(&vhost, &name(queue), now),
            ("watched", _) => book.watched(&vhost, now),
            ("survey", _) => self.survey(&words[2..]),
            ("expect", _) => {
                let targets = words[2..]
                    .iter()
                    .flat_map(|text| match text.split_once('#') {
                        Some((_, times)) => (0..times.parse().expect("a number"))
                            .map(|time: u32| target(&format!("/q{time:03}")))
                            .collect(),
                        None => vec![target(text)],
                    });
                book.expect(&vhost, &name("parked"), &targets.collect());
            }
            ("causes", cause) => book.parked(&vhost, &[(name(cause), number(3) as usize)]),
            ("queues", _) => return said(book.known(&vhost, now)).join(" | "),
            ("all", _) => {
                let known = book.known(&vhost, now);
                return format!(
                    "{} queues, {} unknown targets, {} letters left out, {} not counted, {:?} parked",
                    known.queues.len(),
                    known.unknown.len(),
                    known.left_out,
                    known.uncounted,
                    known.parked
                );
            }
            ("unknown", _) => {
                let unknown = book.known(&vhost, now).unknown.into_iter();
                let unknown = unknown.map(|(to, letters)| format!("{}: {letters}", shown(&to)));
                return unknown.collect::<Vec<_>>().join(" | ");
            }
            ("wants-survey", _) => return book.wants_survey(&vhost, now).to_string(),
            ("standing", to) => return format!("{:?}", book.standing(&vhost, &target(to))),
            ("due", _) => {
                let due = book.due(&vhost, now);
                return match due.len() {
                    ..10 => due
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(" "),
                    many => format!("{many} queues"),
                };
            }
            _ => panic!("{line}"),
        }
        String::new()
    }

    /// Of the exchanges there are `hash`, of a plugin, and the direct `x`, with these `KEY=QUEUE`.
    fn survey(&mut self, bindings: &[&str]) {
        let targets = self.0.targets(&name("v")).into_iter();
        let found = targets.map(|target| {
            let key = target.routing_key.as_ref();
            let bound = bindings.iter().filter_map(|bound| bound.split_once('='));
            let bound = bound.filter(|(of, _)| key.is_none_or(|key| *key == name(of)));
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
}

/// `queue by targets: dead letters, messages, age of the oldest`
fn line_of(queue: &crate::known::DeadLetterQueue) -> String {
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
}

#[test]
fn the_queues_of_all_vhosts_are_bounded() {
    let mut book = Book::default();
    for vhost in 0..10 {
        for number in 0..MOST_QUEUES {
            let (vhost, queue) = (name(&format!("v{vhost}")), name(&format!("q{number}")));
            book.sent(&vhost, [&ShortStr::EMPTY, &queue], None, Mono(0));
        }
    }
    assert_eq!(book.room(), 0);
}
