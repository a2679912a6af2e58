//! An import against a scripted broker: `testdata/*.txt`.

use bytes::Bytes;

use super::*;
use crate::amqp::ids::name;
use crate::amqp::table::TableBuilder;
use crate::dead_letter::HistoryForm;
use crate::link::peer::{Rig, content, method, with_headers};
use crate::link::script::{Script, Words, check};

struct Scripted(Rig<Import>);

/// `3`: so many · `large`: as many bytes as may be on their way · `big`: its headers fit no frame · `broken` properties · `soon` and `far`: when
/// it is to be delivered.
fn messages(word: &str) -> Vec<Content> {
    let message = |properties: &'static [u8], body: Bytes| Content {
        properties: Bytes::from_static(properties),
        body,
    };
    let timed = |millis| {
        let mut headers = TableBuilder::default();
        headers.long(b"x-opt-delivery-time", millis);
        with_headers(headers, "body")
    };
    vec![match word {
        "large" => message(&[0, 0], vec![0; MOST_BYTES].into()),
        "broken" => message(b"\xff", "body".into()),
        "soon" => timed(5),
        "far" => timed(i64::MAX),
        "big" => {
            let mut headers = TableBuilder::default();
            headers.longstr(b"long", &[b'x'; 140_000]);
            with_headers(headers, "body")
        }
        number => {
            let number = number.parse().expect("a number");
            return vec![message(&[0, 0], "body".into()); number];
        }
    }]
}

impl Script for Scripted {
    type Machine = Import;

    /// `new` and messages.
    fn begin(words: &mut Words) -> Scripted {
        let mut all = VecDeque::new();
        while let Some(word) = words.next() {
            all.extend(messages(&word));
        }
        let settings = Settings {
            login: Login {
                vhost: name("/"),
                user: name("operator"),
                password: Bytes::from_static(b"secret"),
                seed: 1,
            },
            queue: name("dead"),
            messages: all,
            rules: RuleSettings {
                continue_history: true,
                history_form: HistoryForm::WRITTEN,
            },
            max_history: 100,
        };
        let now = Now {
            mono: Mono(1_000_000),
            ..Now::default()
        };
        let mut rig = Rig::new(Import::new(settings, now));
        rig.up("4.3.6");
        Scripted(rig)
    }

    fn rig(&mut self) -> &mut Rig<Import> {
        &mut self.0
    }

    /// `1 return`: its queue is not there.
    fn line(&mut self, words: &mut Words) -> bool {
        let is_return = words.verb == "return";
        if is_return {
            let returned = method(1, MethodId::BASIC_RETURN, |a| {
                a.short(312).shortstr(b"NO_ROUTE");
                a.shortstr(b"").shortstr(b"dead").end();
            });
            let message = messages("1").remove(0);
            self.0.broker(&content(returned, 1, &message));
        }
        is_return
    }

    fn told(&mut self) -> Vec<String> {
        let ended = self.0.fx.out.take();
        Vec::from_iter(ended.map(|ended| format!("{ended:?}")))
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("import/testdata");
}
