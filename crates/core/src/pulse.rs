//! Takes the pulse of the proxy's own queues, without IO: asks of each every ten seconds whether it still does its work. A queue that dies says
//! nothing by itself, and a declare does not tell either: of a quorum queue without a process, without a leader or without a majority the broker
//! answers that it has no messages and no consumers (measured: 3.10, 4.3), as of one that is empty. Whoever waits for the queue itself learns it:
//!
//! ```text
//! declare, passive ─▶ not found ──────────────────────────────────────────────▶ deleted
//!                  ─▶ it has messages: its leader said so ────────────────────▶ well
//!                  ─▶ the intake queue has consumers: consume, and end that ──▶ well
//!                  ─▶ nothing: get ─▶ empty, or refused as others consume (405) ▶ well
//!                                  ─▶ the connection is closed (541), or cut ──▶ dead
//! no answer, while the broker gives others ───────────────────────────────────▶ silent
//! ```
//! The second consumer of the intake queue gets nothing, as that queue has a single active one. A message that comes all the same goes back when
//! the channel is closed. As one of the answers costs the connection, this is a link apart. One that is silent keeps its channel: its answer, when
//! it comes, says that it is well again.
//!
//! It also keeps the mark of the user whose proxies work in the vhost (`mark.rs`), and says when that is another one's.
//!
//! Where a leader changes, a queue is away for some seconds. So a bad answer counts when the next one is bad, too, and silence when it lasts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::amqp::ids::{ChannelId, ShortStr};
use crate::amqp::method::{MethodId, QueueDeclare, QueueDeclareOk};
use crate::amqp::reply;
use crate::amqp::reply_code::{NOT_FOUND, REPLY_SUCCESS, RESOURCE_LOCKED};
use crate::link::{Frame, Link, Linked, Login, Loss};
use crate::machine::{Event, Mono, Now, Role, Trouble, Witness};
use crate::objects::{Names, OwnObject};
use crate::registry::existing_delays::ExistingDelays;

use self::mark::Mark;

pub mod mark;
#[cfg(test)]
mod tests;

/// Time between rounds. With [`PATIENCE`], a dead queue is reported in less than half a minute.
const EVERY: Duration = Duration::from_secs(10);
/// The next queue is checked after the last answer, or after this time.
const SLOW: Duration = Duration::from_secs(2);
/// A queue is silent after this time, ...
const PATIENCE: Duration = Duration::from_secs(15);
/// ... if the broker sent anything this long after the question. Each round asks it something.
const HEARD: Duration = Duration::from_secs(5);
/// Time between two bad answers that count.
const APART: Duration = Duration::from_secs(8);
/// Interval for a dead queue, whose answer costs the connection.
const SELDOM: Duration = Duration::from_secs(30);
const NO_QUEUE: &str = "no queue";
const TICK: Duration = Duration::from_secs(1);
const TAG: &[u8] = b"dlx-proxy pulse";

#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    pub names: Names,
    pub delays: ExistingDelays,
}

#[derive(Debug)]
pub enum Input {}

#[derive(Debug, Default)]
pub struct Output {
    /// An object that the intake makes is gone.
    pub missing: bool,
}

pub type Effects = crate::machine::Effects<Output>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// For the user mark, whose queue may come and go.
    Marked,
    Declared,
    Got,
    Consuming,
    /// Answered; its channel is being closed, which returns anything delivered.
    Closed,
}

#[derive(Debug)]
struct Asked {
    queue: ShortStr,
    at: Mono,
    awaited: Awaited,
}

#[derive(Debug, Default)]
struct Known {
    /// Last report: healthy (none), or not.
    said: Option<Option<Trouble>>,
    /// Since when it answers badly.
    bad: Option<Mono>,
    /// Since when an answer is awaited, also across connections that another queue has cost.
    awaited: Option<Mono>,
    not_before: Mono,
}

#[derive(Debug)]
pub struct Pulse {
    settings: Settings,
    link: Link,
    /// Pending and silent queues by channel.
    asked: BTreeMap<ChannelId, Asked>,
    free: BTreeSet<ChannelId>,
    round: VecDeque<ShortStr>,
    /// Start of the next round. The first one waits for a while, because the queues may still have
    /// to be made.
    next: Option<Mono>,
    tick: Mono,
    lost_at: Mono,
    known: BTreeMap<ShortStr, Known>,
    mark: Mark,
}

// === impl Pulse ===

impl Pulse {
    pub fn new(settings: Settings) -> Pulse {
        Pulse {
            link: Link::new(Role::Pulse, settings.login.clone()),
            settings,
            asked: BTreeMap::new(),
            free: BTreeSet::new(),
            round: VecDeque::new(),
            next: None,
            tick: Mono(0),
            lost_at: Mono(0),
            known: BTreeMap::new(),
            mark: Mark::default(),
        }
    }

    fn queues(&self) -> VecDeque<ShortStr> {
        let names = &self.settings.names;
        let delays = self.settings.delays.all().into_iter();
        [names.intake_queue().clone(), names.parking().clone()]
            .into_iter()
            .chain(delays.map(|millis| names.delay_queue(millis)))
            .collect()
    }

    fn mark_user(&mut self, now: Now, fx: &mut Effects) {
        let is_asked = |asked: &Asked| asked.awaited == Awaited::Marked;
        if self.link.is_up()
            && self.mark.is_due(now.mono)
            && !self.asked.values().any(is_asked)
            && let Some(channel) = self.channel(fx)
        {
            let Settings { names, login, .. } = &self.settings;
            mark::declare(fx.broker.build(&[]), channel, names, &login.user);
            let queue = names.user_mark().clone();
            self.begin(channel, queue, Awaited::Marked, now);
        }
    }

    fn begin(&mut self, channel: ChannelId, queue: ShortStr, awaited: Awaited, now: Now) {
        let at = now.mono;
        self.asked.insert(channel, Asked { queue, at, awaited });
        self.tick = now.mono.after(TICK);
    }

    fn ask(&mut self, now: Now, fx: &mut Effects) {
        let is_slow = |asked: &Asked| asked.at.after(SLOW) <= now.mono;
        while self.link.is_up()
            && self.asked.values().all(is_slow)
            && let Some(queue) = self.round.pop_front()
        {
            let known = self.known.entry(queue.clone()).or_default();
            let is_asked = self.asked.values().any(|asked| asked.queue == queue);
            if is_asked || known.not_before > now.mono {
                continue;
            }
            known.awaited.get_or_insert(now.mono);
            let Some(channel) = self.channel(fx) else {
                continue;
            };
            let out = fx.broker.build(&[]);
            reply::declare_queue(out, channel, &queue, QueueDeclare::PASSIVE, &[]);
            self.begin(channel, queue, Awaited::Declared, now);
        }
    }

    /// An open channel. `None`: silent queues occupy all of them.
    fn channel(&mut self, fx: &mut Effects) -> Option<ChannelId> {
        if let Some(free) = self.free.pop_first() {
            return Some(free);
        }
        let is_unused = |channel: &ChannelId| !self.asked.contains_key(channel);
        let channel = (1..=self.link.channel_max())
            .map(ChannelId)
            .find(is_unused)?;
        reply::channel_open(fx.broker.build(&[]), channel);
        Some(channel)
    }

    fn begin_round(&mut self, now: Now, fx: &mut Effects) {
        self.next = Some(now.mono.after(EVERY));
        self.round = self.queues();
        if !self.asked.is_empty()
            && let Some(channel) = self.channel(fx)
        {
            // Whoever is silent: does the broker answer?
            reply::channel_flow(fx.broker.build(&[]), channel);
            self.free.insert(channel);
        }
    }

    fn refused(&mut self, asked: &Asked, code: u16, text: &str, now: Now, fx: &mut Effects) {
        if asked.awaited == Awaited::Marked {
            return fx.events.extend(self.mark.answered(Some(text.as_bytes())));
        }
        match code {
            NOT_FOUND if text.contains(NO_QUEUE) => {
                self.missing(&asked.queue, now, fx);
            }
            // A classic queue whose node is away.
            NOT_FOUND => {
                let words = text.replace(char::is_control, "?");
                let trouble = Trouble::State(format!("is away: {words}"));
                self.bad(asked.queue.clone(), trouble, now, fx);
            }
            // Of a queue with a single active consumer the queue itself says so.
            RESOURCE_LOCKED if asked.awaited == Awaited::Got => self.well(asked.queue.clone(), fx),
            // It may not be asked: nobody knows.
            _ => {}
        }
    }

    fn missing(&mut self, queue: &ShortStr, now: Now, fx: &mut Effects) {
        let known = self.known.entry(queue.clone()).or_default();
        // It was never seen: perhaps its declare is still on its way.
        let was_there = known.said.take_if(|said| *said != Some(Trouble::Deleted));
        if was_there.is_some() {
            let queue = queue.clone();
            fx.events.push(Event::OwnQueueGone { queue });
        }
        match self.settings.names.parse(queue) {
            // The next message makes it again.
            Some(OwnObject::DelayQueue(millis)) if was_there.is_some() => {
                self.settings.delays.deleted(millis);
                self.known.remove(queue);
            }
            Some(OwnObject::DelayQueue(_)) => {}
            _ => {
                fx.out.missing = true;
                self.bad(queue.clone(), Trouble::Deleted, now, fx);
            }
        }
    }

    fn well(&mut self, queue: ShortStr, fx: &mut Effects) {
        let known = self.known.entry(queue.clone()).or_default();
        (known.bad, known.awaited) = (None, None);
        self.say(queue, None, fx);
    }

    fn bad(&mut self, queue: ShortStr, trouble: Trouble, now: Now, fx: &mut Effects) {
        let known = self.known.entry(queue.clone()).or_default();
        let since = *known.bad.get_or_insert(now.mono);
        if since.until(now.mono) >= APART {
            self.say(queue, Some(trouble), fx);
        }
    }

    fn say(&mut self, queue: ShortStr, trouble: Option<Trouble>, fx: &mut Effects) {
        let known = self.known.entry(queue.clone()).or_default();
        if known.said.as_ref() != Some(&trouble) {
            known.said = Some(trouble.clone());
            let witness = Witness::Amqp;
            fx.events.push(Event::OwnQueue {
                queue,
                witness,
                trouble,
            });
        }
    }

    fn find_silent(&mut self, now: Now, fx: &mut Effects) {
        let heard = self.link.last_heard();
        let is_silent = |asked: &&Asked| {
            let known = self.known.get(&asked.queue);
            let since = known.and_then(|known| known.awaited);
            let is_late =
                |since: Mono| since.after(PATIENCE) <= now.mono && since.after(HEARD) <= heard;
            since.is_some_and(is_late) && asked.at.after(SLOW) <= now.mono
        };
        let silent = self.asked.values().filter(is_silent);
        let silent: Vec<ShortStr> = silent.map(|asked| asked.queue.clone()).collect();
        for queue in silent {
            self.say(queue, Some(Trouble::Silent), fx);
        }
    }

    fn answer(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) {
        let (channel, id) = (frame.channel, frame.method());
        if id == Some(MethodId::CHANNEL_CLOSE) {
            let (code, text) = frame.closed(fx);
            self.free.remove(&channel);
            if let Some(asked) = self.asked.remove(&channel) {
                self.known.entry(asked.queue.clone()).or_default().awaited = None;
                self.refused(&asked, code, &text, now, fx);
            }
            return;
        }
        let out = fx.broker.build(&[]);
        let Some(asked) = self.asked.get_mut(&channel) else {
            return;
        };
        let is_intake = asked.queue == *self.settings.names.intake_queue();
        let (next, is_free) = match (asked.awaited, id) {
            (Awaited::Marked, Some(MethodId::QUEUE_DECLARE_OK)) => {
                self.asked.remove(&channel);
                self.free.insert(channel);
                return fx.events.extend(self.mark.answered(None));
            }
            (Awaited::Declared, Some(MethodId::QUEUE_DECLARE_OK)) => {
                let ok = QueueDeclareOk::parse(frame.payload);
                match ok.map_or((0, 0), |ok| (ok.message_count, ok.consumer_count)) {
                    (_, 1..) if is_intake => {
                        reply::qos(out, channel, 1);
                        reply::consume(out, channel, &asked.queue, TAG, b"");
                        (Awaited::Consuming, false)
                    }
                    (0, 0) => {
                        reply::get(out, channel, &asked.queue);
                        (Awaited::Got, false)
                    }
                    _ => (Awaited::Closed, true),
                }
            }
            (Awaited::Got, Some(MethodId::BASIC_GET_EMPTY)) => (Awaited::Closed, true),
            (Awaited::Got, Some(MethodId::BASIC_GET_OK))
            | (Awaited::Consuming, Some(MethodId::BASIC_CONSUME_OK)) => {
                reply::close(out, channel, REPLY_SUCCESS, b"", MethodId(0, 0));
                (Awaited::Closed, false)
            }
            (Awaited::Closed, Some(MethodId::CHANNEL_CLOSE_OK)) => {
                self.asked.remove(&channel);
                return;
            }
            _ => return,
        };
        asked.awaited = next;
        if next == Awaited::Closed {
            let queue = asked.queue.clone();
            self.well(queue, fx);
        }
        if is_free {
            self.asked.remove(&channel);
            self.free.insert(channel);
        }
    }
}

impl Linked for Pulse {
    type Input = Input;
    type Output = Output;

    fn link(&self) -> &Link {
        &self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    /// After a long absence the broker may have been down too, so earlier waiting does not count.
    fn up(&mut self, now: Now, _: &mut Effects) {
        self.next.get_or_insert(now.mono.after(EVERY));
        if self.lost_at.after(SLOW) < now.mono {
            for known in self.known.values_mut() {
                known.awaited = None;
            }
        }
    }

    fn frame(&mut self, frame: Frame<'_>, now: Now, fx: &mut Effects) -> Result<(), &'static str> {
        self.answer(frame, now, fx);
        Ok(())
    }

    fn lost(&mut self, _: Loss, now: Now, fx: &mut Effects) {
        let mut asked = std::mem::take(&mut self.asked);
        self.free.clear();
        self.lost_at = now.mono;
        // Where another queue is silent, the broker ends the connection without a word, and some seconds later (3.10, 4.3: measured). Meanwhile it
        // answers nothing, not even a declare.
        asked.retain(|_, asked| !matches!(asked.awaited, Awaited::Declared | Awaited::Marked));
        self.mark.lost();
        if let Some(last) = asked.into_values().max_by_key(|asked| asked.at) {
            self.bad(last.queue.clone(), Trouble::Dead, now, fx);
            let known = self.known.entry(last.queue).or_default();
            known.awaited = None;
            if matches!(known.said, Some(Some(_))) {
                known.not_before = now.mono.after(SELDOM);
            }
        }
    }

    fn on_input(&mut self, input: Input, _: Now, _: &mut Effects) {
        match input {}
    }

    fn ends(&mut self, now: Now, fx: &mut Effects) {
        self.link.goodbye(now, fx);
    }

    fn due(&mut self, now: Now, fx: &mut Effects) {
        if self.link.is_up() && self.next.is_some_and(|next| next <= now.mono) {
            self.begin_round(now, fx);
        }
        if self.tick <= now.mono {
            self.tick = now.mono.after(TICK);
            self.find_silent(now, fx);
        }
    }

    fn wake(&self) -> Option<Mono> {
        let next = self.next.filter(|_| self.link.is_up());
        let tick = Some(self.tick).filter(|_| !self.asked.is_empty());
        let mark = Some(self.mark.due).filter(|_| self.link.is_up());
        [next, tick, mark].into_iter().flatten().min()
    }

    fn after(&mut self, now: Now, fx: &mut Effects) {
        self.mark_user(now, fx);
        self.ask(now, fx);
    }
}
