//! An alteration against a scripted broker and scripted sessions (`testdata`).

use serde_json::json;

use super::*;
use crate::link::peer::{Rig, login};
use crate::link::script::{Script, Words, check};

mod plans;

struct Scripted {
    rig: Rig<Alteration>,
}

fn order(quorum: bool) -> Order {
    let limits = |length: u32| [("x-max-length".to_owned(), json!(length))].into();
    Order {
        queue: "q".to_owned(),
        durable: true,
        quorum,
        old: limits(1),
        new: limits(2),
        bindings: vec![Binding {
            source: "x".to_owned(),
            routing_key: "key".to_owned(),
            arguments: Arguments::new(),
        }],
    }
}

impl Script for Scripted {
    type Machine = Alteration;

    /// `new [quorum] [finish] [wait=MS]`
    fn begin(words: &mut Words) -> Scripted {
        let wait = words.option_number("wait").unwrap_or(10_000);
        let settings = Settings {
            login: login(),
            names: Names::default(),
            order: order(words.flag("quorum")),
            task: match words.flag("finish") {
                true => Task::Finish,
                false => Task::Alter(Duration::from_millis(wait)),
            },
        };
        let now = Now {
            mono: Mono(1_000_000),
            ..Now::default()
        };
        Scripted {
            rig: Rig::new(Alteration::new(settings, now)),
        }
    }

    fn rig(&mut self) -> &mut Rig<Alteration> {
        &mut self.rig
    }

    /// `told 1..3`: so many sessions were told · `held 1`, `settled 1`, `cancelled 1`, `gone 1` · `paused`: the publisher.
    fn line(&mut self, words: &mut Words) -> bool {
        let ready = match words.verb.as_str() {
            "told" => {
                let owners = words.numbers().map(Owner).collect();
                self.rig.input(Input::Told(owners));
                return true;
            }
            "paused" => {
                self.rig.input(Input::Paused);
                return true;
            }
            "gone" => {
                self.rig.input(Input::Gone(Owner(words.number())));
                return true;
            }
            "held" => Ready::Held,
            "settled" => Ready::Settled,
            "cancelled" => Ready::Cancelled,
            _ => return false,
        };
        let owner = Owner(words.number());
        self.rig.input(Input::Ready(owner, ready));
        true
    }

    fn told(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.rig.fx.out);
        let swaps = out.swap.iter().map(|told| format!("sessions: {told:?}"));
        let ended = out.ended.iter().map(|ended| match ended {
            Ok(altered) => format!("done: {altered:?}"),
            Err(failure) => format!("failed: {failure}"),
        });
        swaps.chain(ended).collect()
    }
}

#[test]
fn scripts_show_what_comes_of_them() {
    check::<Scripted>("alteration/testdata");
}

#[test]
fn an_order_is_read_as_it_was_written() {
    let order = order(true);
    assert_eq!(Order::read(&order.text()), Some(order));
    assert_eq!(Order::read("nothing"), None);
}
