//! A publish: is it permitted, where does it go, what does the publisher hear?

use std::collections::BTreeSet;

use crate::codec::methods::{Arg, Args, Method};
use crate::codec::value::Bytes;
use crate::codec::wire::{BODY_FRAME, HEADER};

use super::broker::Broker;
use super::call::{Call, Content, find};
use super::channel::At;
use super::declaring::Access;
use super::facts::{Fact, Reason, Why};
use super::jobs::{Confirm, Job};
use super::message::Message;
use super::queue::{Entry, Overflow};
use super::refusal::{Answer, refuse, show};

/// Octets of a frame that are not its payload.
const AROUND: usize = 8;

/// The largest body.
const LARGEST: usize = 16 * 1024 * 1024;

impl Broker {
    pub(super) fn basic_publish(&mut self, at: At, call: &Call) -> Answer<()> {
        if call.bit("immediate") {
            return refuse(540, "immediate=true");
        }
        let empty = Content::default();
        let content = call.content.as_ref().unwrap_or(&empty);
        if content.body.len() > LARGEST {
            let size = content.body.len();
            let text = format!("message size {size} is larger than configured max size {LARGEST}");
            return refuse(406, text);
        }
        let (exchange, key) = (call.text("exchange"), call.text("routing-key"));
        self.may(at.conn, Access::Write, "exchange", &exchange)?;
        match self.exchanges.get(&exchange) {
            None => return self.no_exchange(&exchange),
            Some(found) if found.internal => {
                let what = self.rs("exchange", &exchange);
                return refuse(403, format!("cannot publish to internal {what}"));
            }
            Some(_) => {}
        }
        let message = Message::published(&exchange, &key, content)?;
        self.check_user_id(at, content)?;
        if self.channel(at).transactional {
            return Ok(());
        }
        let publish = self.channel(at).confirms.then(|| {
            let channel = self.channel(at);
            channel.publishes += 1;
            channel.publishes
        });
        let queues = self.route(&exchange, &message);
        self.facts.push(Fact::Published {
            conn: at.conn,
            channel: at.channel,
            exchange: exchange.clone(),
            key: key.clone(),
            body: message.body.clone(),
            properties: content.properties.clone(),
            publish: publish.unwrap_or(0),
            into: queues.iter().cloned().collect(),
        });
        if queues.is_empty() && call.bit("mandatory") {
            self.give_back(at, &exchange, &key, &message);
        }
        if let Some(publish) = publish {
            let none = || BTreeSet::from([Bytes::new()]);
            let waits = if queues.is_empty() {
                none()
            } else {
                queues.clone()
            };
            self.channel(at).unconfirmed.insert(publish, waits);
            if queues.is_empty() {
                self.tell(at, Some(publish), b"", Ok(None));
            }
        }
        for queue in &queues {
            let done = self.enqueue(queue, message.clone());
            self.tell(at, publish, queue, done.map(Some));
        }
        Ok(())
    }

    fn check_user_id(&self, at: At, content: &Content) -> Answer<()> {
        let user = self.user(at.conn);
        match find(&content.properties, "user-id") {
            Some(Arg::Text(id)) if id != user.name.as_bytes() && !user.impersonator => {
                let text = format!(
                    "user_id property set to '{}' but authenticated user was '{}'",
                    show(id),
                    user.name
                );
                refuse(406, text)
            }
            _ => Ok(()),
        }
    }

    fn tell(&mut self, at: At, publish: Option<u64>, queue: &[u8], done: Result<Option<u64>, ()>) {
        if let Some(publish) = publish {
            self.jobs.push(Job::Confirm(Confirm {
                at,
                publish,
                queue: queue.to_vec(),
                good: done.is_ok(),
                id: done.ok().flatten(),
            }));
        }
    }

    fn give_back(&mut self, at: At, exchange: &[u8], key: &[u8], message: &Message) {
        let args = vec![
            ("reply-code", Arg::Number(312)),
            ("reply-text", Arg::Text(b"NO_ROUTE".to_vec())),
            ("exchange", Arg::Text(exchange.to_vec())),
            ("routing-key", Arg::Text(key.to_vec())),
        ];
        self.send_content(
            at,
            "basic.return",
            args,
            message.content([None; 2]),
            &message.body,
        );
        self.facts.push(Fact::Returned {
            conn: at.conn,
            channel: at.channel,
            body: message.body.clone(),
        });
    }

    /// A method, a header as large as it is, and the body in frames as large as was agreed.
    pub(super) fn send_content(
        &mut self,
        at: At,
        name: &str,
        args: Args,
        mut properties: Args,
        body: &Bytes,
    ) {
        self.reply(at, name, args);
        properties.push((crate::codec::methods::BODY, Arg::Text(body.clone())));
        let header = Method::encode_header(&properties);
        let connection = self.connection(at.conn);
        connection.frame(HEADER, at.channel, &header);
        let most = match connection.frame_max {
            0 => usize::MAX,
            most => most as usize - AROUND,
        };
        for piece in body.chunks(most) {
            connection.frame(BODY_FRAME, at.channel, piece);
        }
    }

    // === into a queue

    /// `Err`: it was refused. Else its number there.
    pub(super) fn enqueue(&mut self, name: &[u8], mut message: Message) -> Result<u64, ()> {
        let (id, now) = (self.next_number(), self.now);
        let queue = self.queues.get_mut(name).ok_or(())?;
        message.copy = id;
        self.facts.push(Fact::Queued {
            queue: name.to_vec(),
            copy: id,
        });
        if queue.is_stream() {
            queue.append(id, message);
            self.serve_stream(name);
            return Ok(id);
        }
        let size = message.body.len() as u64;
        let closed = self.refusing.as_ref();
        let refused = queue.refuses(size) || closed.is_some_and(|of| name.starts_with(of));
        let ttl = [message.ttl, queue.ttl].into_iter().flatten().min();
        let entry = Entry {
            id,
            expires: ttl.map(|ttl| now + ttl),
            delivered: false,
            acquired: None,
            failed: message.failed,
            offset: None,
            message,
        };
        if refused {
            if queue.overflow == Overflow::RejectPublishDlx {
                self.die(name, entry, Reason::Maxlen);
            } else {
                self.facts.push(Fact::Dropped {
                    queue: name.to_vec(),
                    copy: id,
                    body: entry.message.body,
                    why: Why::Full,
                });
            }
            return Err(());
        }
        queue.put(entry);
        self.serve(name);
        // Only what nobody got at once says that a delivery of it failed elsewhere.
        let queue = self.queues.get_mut(name).ok_or(())?;
        let back = queue.ready.back_mut();
        if let Some(entry) = back.filter(|entry| entry.id == id) {
            entry.delivered = entry.failed.is_some_and(|failed| failed > 0);
        }
        self.trim(name);
        Ok(id)
    }

    /// Down to what there may be.
    pub(super) fn trim(&mut self, name: &[u8]) {
        while let Some(queue) = self.queues.get_mut(name) {
            if !queue.is_over(queue.depth(), queue.bytes()) {
                return;
            }
            if queue.overflow != Overflow::DropHead {
                queue.full = true;
                return;
            }
            let Some(entry) = queue.take_head() else {
                return;
            };
            self.die(name, entry, Reason::Maxlen);
        }
    }
}
