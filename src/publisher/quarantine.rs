//! Which dead letters may close the connection, and in which order that is tried; `turns` publishes them.
//!
//! ```text
//!             in flight when the connection was closed
//!                              │
//!                              ▼
//!  free ◀── all passed ── suspected ── closes it without other targets ──▶ convicted ── nothing closed for PROBATION ──▶ free
//!                         │       ▲                                        │      ▲
//!                         └ halves┘                                        └ rests┘ longer each time, until `retry-for`
//! ```
//! Suspicion falls on targets, not on single dead letters: mostly a queue cannot be published to, and then every dead letter for it closes the
//! connection. A *ward* holds all dead letters of one suspected or convicted target, also those that arrive later. So their order is kept, and
//! none of them can harm those of other targets. Suspected targets take turns in groups, and a group that closes the connection is halved. A
//! convicted target rests, and takes its turns alone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::amqp::ids::ShortStr;
use crate::machine::Mono;

use super::item::{Item, Key, Stage};
use super::quota::{self, Target};

/// How many dead letters are in flight in one turn.
const MOST_IN_TURN: usize = 512;
/// How long a convicted target rests before it is tried again. Each time that it closes the connection, its rest is doubled.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(32);
/// How long a convicted target must close nothing before it is free.
const PROBATION: Duration = Duration::from_secs(60);
/// How many convicted targets are remembered that have no dead letter here.
const MOST_REMEMBERED: usize = 1_024;
/// The shortest pause between two turns, in which all other dead letters are published. Mostly it is as long as the last turn.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// The shortest pause after a turn in which the connection was closed.
const PAUSE_AFTER_FAULT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Quarantine {
    wards: BTreeMap<Target, Ward>,
    /// Suspected targets, as they are to be tried together.
    groups: VecDeque<Vec<Target>>,
    /// The turn that is under way.
    pub(super) turn: Option<Turn>,
    next: Mono,
}

/// The dead letters of one target.
#[derive(Debug)]
struct Ward {
    waiting: VecDeque<Key>,
    /// How many of them, in front, were in flight when the connection was closed. Those behind only wait for them.
    suspects: usize,
    /// How many dead letters may be in flight in the next turn.
    batch: usize,
    sentence: Option<Sentence>,
}

/// Of a target that closed the connection alone.
#[derive(Clone, Copy, Debug)]
struct Sentence {
    rest: Duration,
    until: Mono,
    /// When somebody has to look: for that, or because `retry-for` of one of them is over.
    look: Mono,
    /// When it closed the connection the last time.
    closed: Mono,
}

/// While it lasts only its dead letters are published.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) targets: Vec<Target>,
    /// Those that have not left yet.
    pub(super) waiting: VecDeque<Key>,
    pub(super) flown: Vec<Key>,
    pub(super) stage: TurnStage,
    pub(super) began: Mono,
    /// The stage ends then, come what may.
    pub(super) until: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStage {
    /// That the broker has dealt with all that was published before: it cannot be blamed any more.
    Settling,
    /// That it has dealt with those of this turn. `certain`: nobody else can be blamed.
    InFlight { certain: bool },
}

/// Whose dead letters these are.
pub(super) fn target(item: &Item, parking: &ShortStr) -> Target {
    match item.stage {
        Stage::Target => quota::target(&item.publication),
        Stage::Bridge => (item.bridge.clone(), ShortStr::EMPTY),
        Stage::Parking(_) => (parking.clone(), ShortStr::EMPTY),
        // What has closed the connection already is not mixed with what is parked for other reasons.
        Stage::Apart => (
            parking.clone(),
            ShortStr::new(&b"apart"[..]).expect("it is short"),
        ),
    }
}

// === impl Quarantine ===

impl Quarantine {
    pub(super) fn is_empty(&self) -> bool {
        self.wards.is_empty()
    }

    /// Whether what goes to this target waits here.
    pub(super) fn holds(&self, target: &Target) -> bool {
        self.wards.contains_key(target)
    }

    /// Whether it closed the connection alone.
    pub(super) fn is_convicted(&self, target: &Target) -> bool {
        self.wards.get(target).is_some_and(Ward::is_convicted)
    }

    /// One more for a target that waits here.
    pub(super) fn join(&mut self, target: Target, key: Key) {
        let ward = self.wards.entry(target).or_default();
        ward.waiting.push_back(key);
    }

    /// These were in flight, in that order, when the connection was closed; nobody knows whose fault it was.
    pub(super) fn accuse(&mut self, accused: Vec<(Target, Key)>) {
        let mut group: Vec<Target> = Vec::new();
        for (target, key) in accused.into_iter().rev() {
            let ward = self.wards.entry(target.clone()).or_default();
            ward.give_back(key);
            if !ward.is_convicted() && !group.contains(&target) {
                group.push(target);
            }
        }
        group.reverse();
        self.leave_groups(&group);
        self.halve(group);
    }

    /// The next turn begins, if there is one to begin.
    pub(super) fn begin(&mut self, now: Mono, patience: Duration) -> bool {
        if self.next > now {
            return false;
        }
        let due = |ward: &Ward| ward.sentence.is_some_and(|sentence| sentence.until <= now);
        let targets = match self.groups.pop_front() {
            Some(group) => group,
            None => {
                let convicted = self
                    .wards
                    .iter()
                    .find(|(_, ward)| !ward.waiting.is_empty() && due(ward));
                match convicted {
                    Some((target, _)) => vec![target.clone()],
                    None => return false,
                }
            }
        };
        let mut waiting = VecDeque::new();
        for target in &targets {
            if let Some(ward) = self.wards.get_mut(target) {
                let room = MOST_IN_TURN.saturating_sub(waiting.len());
                waiting.extend(ward.take(room));
            }
        }
        self.turn = Some(Turn {
            targets,
            waiting,
            flown: Vec::new(),
            stage: TurnStage::Settling,
            began: now,
            until: now.after(patience),
        });
        true
    }

    /// The turn is over, and closed nothing. Those that may go on as usual, in order.
    pub(super) fn passed(&mut self, targets: &[Target], began: Mono, now: Mono) -> Vec<Key> {
        self.pause(began.until(now).max(SHORTEST_PAUSE), now);
        let mut free = Vec::new();
        let mut again = Vec::new();
        for target in targets {
            let Some(ward) = self.wards.get_mut(target) else {
                continue;
            };
            ward.batch = (ward.batch * 2).clamp(1, MOST_IN_TURN);
            match &mut ward.sentence {
                Some(sentence) => (sentence.until, sentence.look) = (now, now),
                None if ward.suspects > 0 => again.push(target.clone()),
                None => {
                    free.extend(std::mem::take(&mut ward.waiting));
                    self.wards.remove(target);
                }
            }
        }
        if !again.is_empty() {
            self.groups.push_back(again);
        }
        free
    }

    /// The turn ended, and nobody can say anything about these: they get another one.
    pub(super) fn interrupted(&mut self, targets: Vec<Target>, keys: Vec<(Target, Key)>) {
        self.return_all(keys);
        let group: Vec<Target> = targets
            .into_iter()
            .filter(|target| {
                self.wards
                    .get(target)
                    .is_some_and(|ward| !ward.is_convicted())
            })
            .collect();
        if !group.is_empty() {
            self.groups.push_front(group);
        }
    }

    /// These flew in one turn, which closed the connection: of several targets, or several of one that it makes sense to tell apart.
    pub(super) fn halved(&mut self, keys: Vec<(Target, Key)>) {
        let mut group: Vec<Target> = Vec::new();
        for (target, _) in &keys {
            if !group.contains(target) {
                group.push(target.clone());
            }
        }
        let count = keys.len();
        self.return_all(keys);
        if let [target] = &group[..]
            && let Some(ward) = self.wards.get_mut(target)
        {
            ward.batch = (count / 2).max(1);
            if let Some(sentence) = &mut ward.sentence {
                sentence.until = Mono(0);
                return;
            }
        }
        self.halve(group);
    }

    /// These flew in one turn, and nothing else: their target closes the connection. True if that is news.
    pub(super) fn convict(&mut self, target: Target, keys: Vec<Key>, now: Mono) -> bool {
        self.leave_groups(std::slice::from_ref(&target));
        self.forget_one();
        let ward = self.wards.entry(target).or_default();
        let alone = keys.len() == 1;
        for key in keys.into_iter().rev() {
            // Another one goes first the next time: it need not be the target's fault.
            match alone {
                true => ward.waiting.push_back(key),
                false => ward.waiting.push_front(key),
            }
        }
        ward.suspects = 0;
        ward.batch = 1;
        let before = ward.sentence.map(|sentence| sentence.rest);
        let rest = before.map_or(FIRST_REST, |rest| {
            (rest * 2).clamp(FIRST_REST, LONGEST_REST)
        });
        let until = now.after(rest);
        ward.sentence = Some(Sentence {
            rest,
            until,
            look: until,
            closed: now,
        });
        before.is_none()
    }

    /// A dead letter of this target closed the connection by what it says. Others may do so, too: for a while each is published alone, without a rest.
    pub(super) fn watch(&mut self, target: Target, now: Mono) {
        self.leave_groups(std::slice::from_ref(&target));
        self.forget_one();
        let ward = self.wards.entry(target).or_default();
        ward.suspects = 0;
        let rest = ward
            .sentence
            .map_or(Duration::ZERO, |sentence| sentence.rest);
        ward.sentence = Some(Sentence {
            rest,
            until: now,
            look: now,
            closed: now,
        });
    }

    /// The connection was closed: others first.
    pub(super) fn pause_after_fault(&mut self, now: Mono) {
        self.pause(PAUSE_AFTER_FAULT, now);
    }

    /// Frees the targets that have closed nothing for long: what waits for a turn, in order.
    pub(super) fn parole(&mut self, now: Mono) -> Vec<Key> {
        let mut free = Vec::new();
        let on = self.turn.as_ref().map_or(&[][..], |turn| &turn.targets);
        self.wards.retain(|target, ward| {
            let over = ward.sentence.is_some_and(|sentence| {
                sentence.closed.after(PROBATION) <= now && (sentence.until <= now)
            });
            // It has to have been tried since, or to have nothing that could be.
            let free_now =
                over && (ward.batch > 1 || ward.waiting.is_empty()) && !on.contains(target);
            if free_now {
                free.extend(std::mem::take(&mut ward.waiting));
            }
            !free_now
        });
        free
    }

    /// Takes out those of convicted targets whose time is over. `left`: how long they have; nothing for those that have ended.
    pub(super) fn expired(
        &mut self,
        now: Mono,
        left: impl Fn(Key) -> Option<Duration>,
    ) -> Vec<Key> {
        let mut over = Vec::new();
        for ward in self.wards.values_mut() {
            let Some(sentence) = ward
                .sentence
                .as_mut()
                .filter(|sentence| sentence.look <= now)
            else {
                continue;
            };
            let mut least = LONGEST_REST;
            ward.waiting.retain(|&key| match left(key) {
                Some(Duration::ZERO) => {
                    over.push(key);
                    false
                }
                Some(left) => {
                    least = least.min(left);
                    true
                }
                None => false,
            });
            let look = now.after(least.max(PAUSE_AFTER_FAULT));
            sentence.look = if sentence.until > now {
                look.min(sentence.until)
            } else {
                look
            };
        }
        over
    }

    /// All that waits for a convicted target.
    pub(super) fn waiting_for(&self, target: &Target) -> Vec<Key> {
        let ward = self.wards.get(target);
        ward.map(|ward| ward.waiting.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Nobody has time to rest.
    pub(super) fn hurry(&mut self, now: Mono) {
        for sentence in self
            .wards
            .values_mut()
            .filter_map(|ward| ward.sentence.as_mut())
        {
            sentence.look = sentence.look.min(now);
        }
    }

    /// When something is to be done, while the broker can be reached.
    pub(super) fn wake(&self) -> Option<Mono> {
        if let Some(turn) = &self.turn {
            return Some(turn.until);
        }
        let group = (!self.groups.is_empty()).then_some(self.next);
        let waiting = self.wards.values().filter(|ward| !ward.waiting.is_empty());
        let convicted = waiting.filter_map(|ward| {
            let sentence = ward.sentence?;
            Some(sentence.until.max(self.next).min(sentence.look))
        });
        convicted.chain(group).min()
    }

    fn pause(&mut self, pause: Duration, now: Mono) {
        self.next = self.next.max(now.after(pause));
    }

    fn return_all(&mut self, keys: Vec<(Target, Key)>) {
        for (target, key) in keys.into_iter().rev() {
            self.wards.entry(target).or_default().give_back(key);
        }
    }

    /// Two halves are the next to be tried, or the only one.
    fn halve(&mut self, mut group: Vec<Target>) {
        let behind = group.split_off(group.len().div_ceil(2));
        for half in [behind, group] {
            if !half.is_empty() {
                self.groups.push_front(half);
            }
        }
    }

    fn leave_groups(&mut self, targets: &[Target]) {
        for group in &mut self.groups {
            group.retain(|target| !targets.contains(target));
        }
        self.groups.retain(|group| !group.is_empty());
    }

    /// Makes room for a target.
    fn forget_one(&mut self) {
        let empty = |(_, ward): &(&Target, &Ward)| ward.is_convicted() && ward.waiting.is_empty();
        if self.wards.len() >= MOST_REMEMBERED
            && let Some(target) = self
                .wards
                .iter()
                .find(empty)
                .map(|(target, _)| target.clone())
        {
            self.wards.remove(&target);
        }
    }
}

// === impl Ward ===

impl Default for Ward {
    fn default() -> Ward {
        Ward {
            waiting: VecDeque::new(),
            suspects: 0,
            batch: MOST_IN_TURN,
            sentence: None,
        }
    }
}

impl Ward {
    fn is_convicted(&self) -> bool {
        self.sentence.is_some()
    }

    /// Puts an item back, in front of its ward.
    fn give_back(&mut self, key: Key) {
        self.waiting.push_front(key);
        if !self.is_convicted() {
            self.suspects += 1;
        }
    }

    /// Takes the items of the next turn.
    fn take(&mut self, room: usize) -> Vec<Key> {
        let waiting = if self.is_convicted() {
            self.waiting.len()
        } else {
            self.suspects
        };
        let count = waiting.min(self.batch).min(room);
        self.suspects = self.suspects.saturating_sub(count);
        self.waiting.drain(..count).collect()
    }
}
