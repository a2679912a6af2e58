//! The pulse against a scripted broker: `testdata/*.txt`. All queues are well, but those of which a line says what they do.

use std::collections::BTreeMap;

use super::*;
use crate::amqp::method::MethodId;
use crate::link::peer::{Rig, Sent, close, login, method};
use crate::link::script::{Script, Words, check, tell};

struct Scripted {
    rig: Rig<Pulse>,
    /// What queues do: `messages` · `alone`: the intake queue without consumers · `refused`: 405 · `taken`: a message that came meanwhile ·
    /// `silent` to a get, `mute` to all · `dead`: closes the connection · `gone` · `away` · `forbidden` · `eve`: another user's mark · `full`.
    does: BTreeMap<String, String>,
    /// Asked last on a channel.
    asked: BTreeMap<u16, String>,
}

impl Script for Scripted {
    type Machine = Pulse;

    /// Up, its mark made; the first round begins after ten seconds.
    fn begin(words: &mut Words) -> Scripted {
        let delays = ExistingDelays::default();
        delays.used(1000);
        let mut script = Scripted {
            rig: Rig::new(Pulse::new(Settings {
                login: login(),
                names: Names::default(),
                delays,
            })),
            does: BTreeMap::new(),
            asked: BTreeMap::new(),
        };
        if !words.flag("fresh") {
            script.rig.up("4.3.6");
            tell(&mut script, &mut None);
        }
        script
    }

    fn rig(&mut self) -> &mut Rig<Pulse> {
        &mut self.rig
    }

    /// `parked is silent`: so it is from now on, `well`: no more.
    fn line(&mut self, words: &mut Words) -> bool {
        if words.channel.is_some() || !words.flag("is") {
            return false;
        }
        let queue = format!("dlx-proxy.{}", words.verb);
        self.does.insert(queue, words.word());
        true
    }

    fn told(&mut self) -> Vec<String> {
        let missing = std::mem::take(&mut self.rig.fx.out.missing);
        Vec::from_iter(missing.then(|| "asks the intake to make it".to_owned()))
    }

    fn answer(&mut self, sent: &Sent) -> (bool, Vec<u8>) {
        let (channel, id) = (sent.channel, sent.method());
        let declared = (id == Some(MethodId::QUEUE_DECLARE)).then(|| {
            let declare = QueueDeclare::parse(&sent.payload).unwrap();
            String::from_utf8(declare.queue.to_vec()).unwrap()
        });
        if let Some(queue) = declared {
            self.asked.insert(channel, queue);
        }
        let queue = self.asked.get(&channel).cloned().unwrap_or_default();
        let does = self.does.get(&queue).map_or("well", String::as_str);
        let refuse = |code, text: &str| close(channel, code, text, MethodId::QUEUE_DECLARE);
        let counts = |messages, consumers| {
            method(channel, MethodId::QUEUE_DECLARE_OK, |a| {
                a.shortstr(b"q").long(messages).long(consumers).end();
            })
        };
        let is = |id| method(channel, id, |a| a.shortstr(b"").end());
        let answer = match (id, does) {
            (Some(MethodId::CHANNEL_CLOSE), _) => is(MethodId::CHANNEL_CLOSE_OK),
            (Some(MethodId::QUEUE_DECLARE), "gone") => refuse(404, "NOT_FOUND - no queue"),
            (Some(MethodId::QUEUE_DECLARE), "away") => refuse(
                404,
                "NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor",
            ),
            (Some(MethodId::QUEUE_DECLARE), "forbidden") => refuse(403, "ACCESS_REFUSED"),
            (Some(MethodId::QUEUE_DECLARE), "eve") => refuse(
                406,
                "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-routing-key' for queue 'dlx-proxy.user' in vhost '/': received 'proxy' but current is 'eve'",
            ),
            (Some(MethodId::QUEUE_DECLARE), "full") => refuse(
                406,
                "PRECONDITION_FAILED - cannot declare queue 'dlx-proxy.user': queue limit in vhost '/' (1) is reached",
            ),
            (Some(MethodId::QUEUE_DECLARE), "messages") => counts(3, 0),
            (Some(MethodId::QUEUE_DECLARE), "alone" | "refused") => counts(0, 0),
            (_, "mute") | (Some(MethodId::BASIC_GET | MethodId::BASIC_CONSUME), "silent") => {
                Vec::new()
            }
            (Some(MethodId::QUEUE_DECLARE), _) => counts(0, u32::from(queue == "dlx-proxy.intake")),
            (Some(MethodId::BASIC_GET), "refused") => {
                close(channel, 405, "RESOURCE_LOCKED", MethodId::BASIC_GET)
            }
            (Some(MethodId::BASIC_GET), "taken") => is(MethodId::BASIC_GET_OK),
            (Some(MethodId::BASIC_GET), "dead") => {
                close(0, 541, "INTERNAL_ERROR", MethodId::BASIC_GET)
            }
            (Some(MethodId::BASIC_GET), _) => is(MethodId::BASIC_GET_EMPTY),
            (Some(MethodId::BASIC_CONSUME), _) => is(MethodId::BASIC_CONSUME_OK),
            _ => Vec::new(),
        };
        (true, answer)
    }
}

#[test]
fn it_does_what_the_scripts_say() {
    check::<Scripted>("pulse/testdata");
}
