//! Declares: what is asked before one goes on, in which form it does, and what is known of its queue then. With that goes all else for which the broker
//! is asked about a queue.
//!
//! ```text
//!  declare ── no probe can be made ──▶ in doubt: how was the queue last seen, by this session or another?
//!                 │
//!                 ▼
//!              Quieting: all that the client sent before on its channel is answered
//!                 │ mode `off` ──▶ AsItIs: the original form. It fits, or the broker says why not; where it meets a queue that may have been
//!                 ▼                   taken over: IfThere, like any other
//!              IfThere: is there such a queue?              (rewritten arguments, x-max-age: makes nothing, S7.3)
//!                 │ no, and the user may write              │ there is        │ there is another
//!                 │ to the intake exchange                  ▼                 ▼
//!                 ▼                                      Ensuring        the broker's words tell what goes on
//!              Never: may the user write to                 │
//!                 the exchange?  (original arguments,       ▼
//!                 │ x-expires -1: makes nothing, S7.6)   the rewritten form goes on, as one that makes no queue
//!                 │ yes            │ 403 ──▶ the original
//!                 ▼
//!              Ensuring: the intake exchange ──▶ Rewritten: that form makes the queue ──▶ it goes on
//! ```
//! [`table`] has the rules, `takeover` carries them out. The client is not read meanwhile. The probe has a channel of its own beside the client's, on
//! the client's connection, since exclusive queues are visible only there.
//!
//! Two things hold at each arrow, however the queue comes and goes in between. A form that can make a queue is sent only when this connection
//! has shown that it may write to both exchanges, and the intake exchange is there; any other rewritten form is one that makes none. And the
//! intake exchange is made only for a queue that has it, or when both permissions are known: behind a 403 nothing is left.
//!
//! In doubt (no probe can be made, `probe-timeout`) a queue that was last seen with this intake exchange is declared with it, in the form that
//! makes none; all others as the client wrote them.

mod default_type;
mod inquiry;
mod known;
mod lenient;
mod pending;
mod question;
mod read;
mod rights;
mod table;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::amqp::frame;
use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{Close, MethodId, QueueDeclare};
use crate::amqp::reply;
use crate::machine::{Event, Fallback, Leg, Mono};
use crate::objects::DeclaredTarget;
use crate::registry::arguments::Wanted;
use crate::registry::believed::Believed;

use super::channel::Channel;
use super::delays::Right;
use super::frames::{Handled, Method};
use super::line::Line;
use super::replies::{Accepted, asked_for};

pub(super) use question::Why;

use pending::Pending;
use question::{Answer, Question};
use rights::Asks;

/// How long the broker's permission is trusted, per connection.
const PERMITTED_FOR: Duration = Duration::from_secs(60);
/// Number of intake exchanges.
const MOST_PERMITTED: usize = 64;
const MOST_RIGHTS: usize = 1000;
const NOTHING: DeclaredTarget = DeclaredTarget::Policy {
    at_least_once: false,
};

/// Questions to the broker, one at a time, and their remembered answers.
#[derive(Debug, Default)]
pub(super) struct Declares {
    asked: Option<Asked>,
    until: Mono,
    probe: ChannelId,
    open: bool,
    /// The queue of the last answered question, until its command continues.
    answered: Option<ShortStr>,
    /// Boxed: most connections learn nothing.
    learned: Option<Box<Learned>>,
}

#[derive(Debug)]
struct Learned {
    /// Intake exchanges that this connection may write to, together with their targets.
    permitted: Believed<ShortStr, ()>,
    /// Publishes that this connection may make.
    rights: Believed<Right, ()>,
    /// Queues whose ineffective or harmful arguments were logged.
    told: BTreeSet<ShortStr>,
}

#[derive(Debug)]
enum Asked {
    Declare(Box<Pending>),
    Queue(Question),
    Publish(Asks),
}

// === impl Learned ===

impl Default for Learned {
    fn default() -> Learned {
        Learned {
            permitted: Believed::new(PERMITTED_FOR, MOST_PERMITTED),
            rights: Believed::new(PERMITTED_FOR, MOST_RIGHTS),
            told: BTreeSet::new(),
        }
    }
}

// === impl Declares ===

impl Declares {
    fn learned(&mut self) -> &mut Learned {
        self.learned.get_or_insert_default()
    }

    /// Handles the client's `queue.declare`. It may have to wait for another one.
    pub(super) fn declare(&mut self, method: Method<'_>, line: &mut Line<'_, '_>) -> Handled {
        let channel = method.channel;
        let stripped = without_line_breaks(method.payload);
        let payload = stripped.as_deref().unwrap_or(method.payload);
        let declare = QueueDeclare::parse(payload).ok();
        let Some(declare) = declare.filter(|declare| !declare.has(QueueDeclare::PASSIVE)) else {
            let queue = declare.and_then(|declare| ShortStr::copy(declare.queue));
            let unseen = declare.is_some_and(|declare| declare.has(QueueDeclare::NO_WAIT));
            line.expect_declare(channel, queue.unwrap_or_default(), None, unseen);
            line.pass_declare(method, payload, None);
            return Handled::Done;
        };
        let is_it = |queue: &ShortStr| **queue == *declare.queue;
        let is_answered = self.answered.as_ref().is_some_and(is_it);
        let own = is_answered.then(|| line.registry.queue_type(declare.queue));
        let own = own.flatten();
        let mut read = line.read(declare, payload, own);
        let modern = line.modern(&read);
        if let Some((payload, kept)) = &modern
            && let Ok(declare) = QueueDeclare::parse(payload)
        {
            read = line.read(declare, payload, own);
            read.kept.clone_from(kept);
        }
        if self.waits_for_the_type(&read, is_answered, line) {
            return Handled::Wait;
        }
        self.tell_of_retries(&read, line);
        let (retries, taken_out) = line.retries_of_declare(&read);
        if let Some(payload) = &taken_out
            && let Ok(declare) = QueueDeclare::parse(payload)
        {
            (read.payload, read.declare) = (payload, declare);
        }
        let accepted = match line.wanted(&read) {
            Wanted::Nothing if line.is_retried(&read, retries.clone()) => {
                Accepted::Managed(read.as_it_is(NOTHING, retries))
            }
            Wanted::Nothing => Accepted::Plain(read.as_it_is(NOTHING, retries)),
            Wanted::Leave(cause) => {
                line.remember_declared(channel, read.declare);
                let queue = read.queue();
                line.turn.event(Event::DeclareLeft { queue, cause });
                Accepted::Type(read.declare.bits, read.queue_type)
            }
            Wanted::Keep(said) => Accepted::Managed(read.as_it_is(said, retries)),
            Wanted::Probe(..) if self.is_on_its_way() => return line.hold(),
            Wanted::Probe(aim, said, intake) => {
                let lenient = line.lenient(&read);
                let pending = Pending::new(channel, &read, (aim, said, intake), retries, lenient);
                self.answered = None;
                self.begin(Box::new(pending), line);
                return Handled::Done;
            }
        };
        self.answered = None;
        let unseen = declare.has(QueueDeclare::NO_WAIT);
        line.expect_declare(channel, read.queue(), Some(accepted), unseen);
        let reworded = modern.as_ref().map(|(payload, _)| payload.as_slice());
        line.pass_declare(method, payload, taken_out.as_deref().or(reworded));
        Handled::Done
    }

    pub(super) fn is_on_its_way(&self) -> bool {
        self.asked.is_some() || self.open
    }

    pub(super) fn channel(&self) -> Option<ChannelId> {
        self.open.then_some(self.probe)
    }

    pub(super) fn until(&self) -> Option<Mono> {
        // A publish waits as long as the broker lets it wait: an alarm may block the connection.
        let asked = self.asked.as_ref();
        asked
            .filter(|asked| !matches!(asked, Asked::Publish(_)))
            .map(|_| self.until)
    }

    /// The client's channel with an undecided declare.
    pub(super) fn declaring(&self) -> Option<ChannelId> {
        match &self.asked {
            Some(Asked::Declare(pending)) => Some(pending.channel),
            Some(Asked::Queue(_) | Asked::Publish(_)) | None => None,
        }
    }

    /// The user's permissions may have changed.
    pub(super) fn forget_rights(&mut self) {
        if let Some(learned) = &mut self.learned {
            learned.permitted.clear();
            learned.rights.clear();
        }
    }

    /// Whether a method must wait until the probe's channel is closed. The broker counts it until
    /// then, so another channel could exceed the limit, or have the same number.
    pub(super) fn blocks(
        &self,
        channel: ChannelId,
        channels: &BTreeMap<ChannelId, Box<Channel>>,
    ) -> bool {
        self.is_on_its_way() && channel != ChannelId::CONNECTION && !channels.contains_key(&channel)
    }

    /// The connection is closing: ends all questions, but still hides answers on the probe's
    /// channel.
    pub(super) fn give_up(&mut self, channels: &mut BTreeMap<ChannelId, Box<Channel>>) {
        self.asked = None;
        if std::mem::take(&mut self.open) {
            let hidden = Channel {
                hidden: true,
                ..Channel::default()
            };
            channels.insert(self.probe, Box::new(hidden));
        }
    }

    /// The client's channel is closed: its declare must not make a queue.
    pub(super) fn abandon(&mut self, channel: ChannelId, line: &mut Line<'_, '_>) {
        self.answered = None;
        if self
            .take_declare(|pending| pending.channel == channel)
            .is_some()
        {
            self.end(line);
        }
        let is_its =
            |asked: &mut Asked| matches!(asked, Asked::Publish(asks) if asks.channel == channel);
        if self.asked.take_if(is_its).is_some() {
            self.end(line);
        }
    }

    pub(super) fn timed_out(&mut self, line: &mut Line<'_, '_>) {
        match self.asked.take() {
            Some(Asked::Declare(pending)) => self.too_late(pending, line),
            Some(Asked::Queue(question)) if question.form.is_some() => {
                self.told(question, Answer::None, line);
            }
            Some(Asked::Queue(question)) => {
                let queue = question.queue.clone();
                self.asked = Some(Asked::Queue(question));
                self.looked_up(&queue, line);
            }
            Some(asked @ Asked::Publish(_)) => self.asked = Some(asked),
            None => {}
        }
    }

    /// A method of the broker on the probe's channel, hidden from the client.
    pub(super) fn probe_reply(&mut self, method: Method<'_>, line: &mut Line<'_, '_>) {
        let probe = method.channel;
        let refused = match method.id {
            MethodId::QUEUE_DECLARE_OK | MethodId::TX_ROLLBACK_OK => None,
            MethodId::CHANNEL_CLOSE => {
                // If it crossed our own close, the client goes on already, and may be within a frame; and ours is answered all the same.
                line.inject(probe, |out| reply::close_ok(out, probe));
                self.open = self.asked.is_none();
                let Ok(close) = Close::parse(method.payload) else {
                    return; // as if nothing had come
                };
                Some(close)
            }
            MethodId::CHANNEL_CLOSE_OK => {
                self.open &= self.asked.is_some();
                return;
            }
            _ => return,
        };
        match self.asked.take() {
            Some(Asked::Declare(pending)) => self.answered(pending, refused, line),
            Some(Asked::Queue(question)) if question.form.is_some() => {
                let answer = refused.map_or(Answer::Fits, Answer::Refused);
                self.told(question, answer, line);
            }
            Some(Asked::Publish(asks)) => self.may_or_not(&asks, refused, line),
            other => self.asked = other,
        }
    }

    /// Sends frames on the probe's channel, and opens it if needed.
    fn say(&mut self, frames: &[u8], line: &mut Line<'_, '_>) {
        let probe = self.probe;
        let is_open = std::mem::replace(&mut self.open, true);
        line.inject(probe, |out| {
            if !is_open {
                reply::channel_open(out, probe);
            }
            out.extend_from_slice(frames);
        });
    }

    /// Picks the probe's channel number, or says why there is none: the broker limits channels, not
    /// numbers (S7.10).
    fn take_number(&mut self, line: &Line<'_, '_>) -> Result<(), Fallback> {
        let limits = &line.settings.channel_limits;
        let is_limited = |user: &ShortStr| limits.has(user, line.now());
        if line.peer.user.as_ref().is_some_and(is_limited) {
            return Err(Fallback::ChannelLimit);
        }
        let mut numbers = (1..=u16::MAX).rev().map(ChannelId);
        let free = numbers.find(|channel| !line.channels.contains_key(channel));
        let has_room = line.channels.len() < line.peer.channel_max();
        self.probe = free.filter(|_| has_room).ok_or(Fallback::NoChannel)?;
        Ok(())
    }

    fn take_declare(&mut self, is_it: impl Fn(&Pending) -> bool) -> Option<Box<Pending>> {
        let is_it = |asked: &mut Asked| matches!(asked, Asked::Declare(pending) if is_it(pending));
        match self.asked.take_if(is_it) {
            Some(Asked::Declare(pending)) => Some(pending),
            Some(Asked::Queue(_) | Asked::Publish(_)) | None => None,
        }
    }

    fn end(&mut self, line: &mut Line<'_, '_>) {
        line.release();
        if self.open {
            let probe = self.probe;
            line.inject(probe, |out| {
                reply::close(out, probe, 200, b"", MethodId(0, 0));
            });
        }
    }
}

impl Line<'_, '_> {
    /// Whether the broker survives refusing a probe: some versions crash at certain names.
    fn can_refuse(&self, queue: &[u8], exchange: &[u8], intake: &[u8]) -> bool {
        let vhost = &self.peer.vhost;
        let wording = self.peer.wording;
        wording.is_some_and(|wording| wording.can_refuse(queue, vhost, exchange, intake))
    }

    fn pass_declare(&mut self, method: Method<'_>, payload: &[u8], taken_out: Option<&[u8]>) {
        let asking = asked_for(MethodId::QUEUE_DECLARE, taken_out.unwrap_or(payload));
        match asking.as_deref().or(taken_out) {
            Some(payload) => frame::put(self.turn.build(Leg::Broker), 1, method.channel, |out| {
                out.extend_from_slice(payload)
            }),
            None => self.turn.pass(Leg::Client, method.range()),
        }
    }
}

/// Removes line breaks from the queue's name, as the broker does (`strip_cr_lf`). A name of line
/// breaks alone stays: an empty one would ask the broker for a name.
fn without_line_breaks(payload: &[u8]) -> Option<Vec<u8>> {
    const NAME: usize = 6; // behind class, method and ticket
    let declare = QueueDeclare::parse(payload).ok()?;
    let mut name = declare.queue.to_vec();
    name.retain(|byte| !b"\r\n".contains(byte));
    let rest = payload.get(NAME + 1 + declare.queue.len()..)?;
    let stripped = [payload.get(..NAME)?, &[name.len() as u8], &name, rest].concat();
    (!name.is_empty() && name.len() < declare.queue.len()).then_some(stripped)
}
