//! One of the two ways that a script is played: its connection, its queues, and what it saw.

use dlx_proxy::amqp::ids::ChannelId;
use dlx_proxy::amqp::method::MethodId;

use super::script::{Command, End, Script};
use crate::calls;
use crate::lab::{Way, until};
use crate::raw::{self, Raw, closed};
use crate::scene::Kind;

/// To publish in confirm mode, and to look into the queue afterwards.
const HELPER: u16 = 1;
/// The script's own.
const SCRIPT: u16 = 2;
/// Of the consumer of the dead letters.
const DEAD: u16 = 3;

/// A connection and its two queues.
pub(super) struct Side {
    raw: Raw,
    work: String,
    dead: String,
    /// Messages, over all rounds.
    published: u64,
    /// The script before this one, in case that more died of it than should.
    last: String,
}

// === impl Side ===

impl Side {
    pub(super) async fn open(way: &Way, kind: Kind, name: &str, port: u16) -> Side {
        let mut raw = Raw::open(&way.broker, port, &way.vhost, Default::default()).await;
        let (work, dead) = (format!("{name}.{kind}"), format!("{name}.{kind}.dead"));
        for channel in [HELPER, DEAD] {
            raw.open_channel(channel).await;
        }
        raw.declare(HELPER, &dead, &[]).await;
        let kind = kind.to_string();
        let arguments = [
            ("x-queue-type", kind.as_str()),
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", &dead),
        ];
        raw.declare(HELPER, &work, &arguments).await;
        raw.consume(DEAD, &dead, true).await;
        raw.ask(HELPER, calls::confirms()).await;
        Side {
            raw,
            work,
            dead,
            published: 0,
            last: String::new(),
        }
    }

    pub(super) async fn play(&mut self, round: usize, script: &Script) -> End {
        self.publish(round, script.no_ack.len()).await;
        self.raw.open_channel(SCRIPT).await;
        self.deliver(round, script).await;

        let mut end = End::default();
        let mut model = script.begin();
        let mut out = Vec::new();
        for command in &script.commands {
            command.put(&mut out, SCRIPT);
            model.apply(command);
            if let Command::Wait = command {
                self.raw.send(&std::mem::take(&mut out)).await;
                self.dead_letters(round, &mut end, model.end.dead.len())
                    .await;
            }
        }
        out.extend(calls::qos(0).on(ChannelId(SCRIPT)));
        self.raw.send(&out).await;
        end.closed = self.end_channel().await;

        let expected = script.model();
        self.dead_letters(round, &mut end, expected.dead.len())
            .await;
        // They may be on their way back from the channel that was closed. All that is there is taken: one too many would be as wrong.
        until("all that went back", async || {
            while let Some(tag) = self.take(round).await {
                end.back.insert(tag);
            }
            end.back.len() >= expected.back.len()
        })
        .await;
        self.last = format!("{script:?}");
        end
    }

    /// Puts this many messages into the queue: tag and round are their bodies.
    async fn publish(&mut self, round: usize, messages: usize) {
        let mut out = Vec::new();
        for tag in 1..=messages {
            raw::publish(
                &mut out,
                HELPER,
                &self.work,
                format!("{round} {tag}").as_bytes(),
                self.raw.tune.frame_max,
            );
        }
        self.raw.send(&out).await;
        let first = self.published + 1;
        self.published += messages as u64;
        self.raw.confirmed(HELPER, first, self.published).await;
    }

    async fn deliver(&mut self, round: usize, script: &Script) {
        let mut out = Vec::new();
        if script.by_get {
            for no_ack in &script.no_ack {
                raw::method(&mut out, SCRIPT, MethodId::BASIC_GET, |a| {
                    a.short(0)
                        .shortstr(self.work.as_bytes())
                        .octet(u8::from(*no_ack))
                        .end();
                });
            }
        } else {
            raw::consume(&mut out, SCRIPT, &self.work, false);
        }
        self.raw.send(&out).await;
        let delivery = if script.by_get {
            MethodId::BASIC_GET_OK
        } else {
            self.raw.reply(SCRIPT, MethodId::BASIC_CONSUME_OK).await;
            MethodId::BASIC_DELIVER
        };
        for tag in 1..=script.no_ack.len() as u64 {
            let (_, body) = self.raw.content(SCRIPT, delivery).await;
            assert_eq!(message(&body), (round, tag));
        }
        if !script.by_get {
            self.raw
                .call(SCRIPT, MethodId::BASIC_CANCEL, |a| {
                    a.shortstr(self.work.as_bytes()).octet(0).end()
                })
                .await;
            self.raw.reply(SCRIPT, MethodId::BASIC_CANCEL_OK).await;
        }
    }

    /// The script's channel answers, or it has been closed; either way it ends.
    async fn end_channel(&mut self) -> Option<raw::Closed> {
        let answer = self.raw.next(SCRIPT).await;
        let closed = closed(&answer.payload);
        if closed.is_some() {
            self.raw
                .call(SCRIPT, MethodId::CHANNEL_CLOSE_OK, |_| {})
                .await;
        } else {
            assert_eq!(
                MethodId::peek(&answer.payload),
                Some(MethodId::BASIC_QOS_OK)
            );
            let mut out = Vec::new();
            raw::close_channel(&mut out, SCRIPT);
            self.raw.send(&out).await;
            self.raw.reply(SCRIPT, MethodId::CHANNEL_CLOSE_OK).await;
        }
        closed
    }

    /// Reads dead letters until there are this many.
    async fn dead_letters(&mut self, round: usize, end: &mut End, number: usize) {
        while end.dead.len() < number {
            let (_, body) = self.raw.content(DEAD, MethodId::BASIC_DELIVER).await;
            let (of, tag) = message(&body);
            assert_eq!(
                of, round,
                "a dead letter of message {tag} in {} that should not be, of {}",
                self.dead, self.last
            );
            end.dead.push(tag);
        }
    }

    /// Takes one message off the queue, if there is any.
    async fn take(&mut self, round: usize) -> Option<u64> {
        let body = self.raw.take(HELPER, &self.work).await?;
        let (of, tag) = message(&body);
        assert_eq!(
            of, round,
            "message {tag} of another round, in {}",
            self.work
        );
        Some(tag)
    }

    /// Nothing may be left over.
    pub(super) async fn close(mut self) {
        for queue in [&self.dead, &self.work] {
            let left = self.raw.delete(HELPER, queue).await;
            assert_eq!(left, 0, "messages left in {queue}");
        }
        self.raw.close().await;
    }
}

/// Round and tag.
fn message(body: &[u8]) -> (usize, u64) {
    let text = String::from_utf8_lossy(body);
    let (round, tag) = text.split_once(' ').expect("round and tag");
    (round.parse().expect("a round"), tag.parse().expect("a tag"))
}
