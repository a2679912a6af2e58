//! An operator, who sends dead letters back or removes them, and now and then holds that up or ends it. Not in all worlds; what is drawn for it has
//! a generator of its own, so that the worlds without it stay what they are.

use dlx_proxy::amqp::ids::ShortStr;
use dlx_proxy::console::redrives::{NotBegun, Order};
use dlx_proxy::dead_letter::redrive::{Destination, Redrive};
use dlx_proxy::letter::Filter;
use dlx_proxy::link::Login;
use fastrand::Rng;

use super::model::{MessageView, Rights, User};
use super::net::Micros;
use super::plan::Plan;
use super::proxy::{names, short, vhost};
use super::world::World;

/// What a walk holds when it is held up for so long is put back.
const LONG: Micros = 310_000_000;
/// In its last deeds it has one in so many steps.
const LAST_RARITY: u32 = 200;
/// Makes another seed of a seed.
const OPERATOR: u64 = 0x6f70_6572_6174_6f72;
/// With this the names begin by which the accounts know who has sent a message back.
pub(crate) const BY: &str = "operator.";
/// Who may publish to exchanges of that prefix alone, and so send nothing back to a queue.
const AUDITOR: &str = "auditor";
const AUDITED: &str = "dlx";

/// Begins redrives.
pub(crate) struct Operator {
    rng: Rng,
    /// One deed in so many steps; 0: none.
    rarity: u32,
    /// The number of the last one: no other of this world has it.
    last: u64,
    /// Those that were begun, with their proxies.
    begun: Vec<(usize, u64)>,
    /// So many more when nothing goes wrong any more.
    last_ones: u8,
    /// It lets what it holds up go on then.
    resumes: Option<Micros>,
}

/// What is wanted, as the accounts judge it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub number: u64,
    pub queue: String,
    /// Nothing: it removes messages.
    pub to: Option<Destination>,
    pub keeps_history: bool,
    /// Only messages whose numbers have this digit.
    pub digit: Option<u8>,
    pub most: u64,
    pub by_auditor: bool,
    order: Order,
}

// === impl Operator ===

impl Operator {
    pub(crate) fn draw(seed: u64) -> Operator {
        let mut rng = Rng::with_seed(seed ^ OPERATOR);
        let rarity = match rng.bool() {
            true => [60, 200, 800][rng.usize(..3)],
            false => 0,
        };
        Operator {
            rarity,
            last: 0,
            begun: Vec::new(),
            last_ones: if rarity > 0 { rng.u8(..6) } else { 0 },
            resumes: None,
            rng,
        }
    }

    /// Those who log in.
    pub(crate) fn users() -> [User; 3] {
        let auditor = User {
            write: Rights::Prefixes(vec![AUDITED.to_owned()]),
            ..User::administrator(AUDITOR)
        };
        let [guest, proxy] = ["guest", "dlx-proxy"].map(User::administrator);
        [guest, proxy, auditor]
    }

    /// It does something in this world.
    pub(crate) fn works(&self) -> bool {
        self.rarity > 0
    }

    fn acts(&mut self) -> bool {
        self.works() && self.rng.u32(..self.rarity) == 0
    }

    fn any_begun(&mut self) -> Option<(usize, u64)> {
        self.rng.choice(&self.begun).copied()
    }

    /// Out of one of these queues.
    fn wanted(&mut self, queues: &[String], plan: &Plan) -> Option<Wanted> {
        let rng = &mut self.rng;
        let queue = rng.choice(queues)?.clone();
        self.last += 1;
        let to = destination(rng, plan);
        let digit = (rng.u8(..3) == 0).then(|| rng.u8(b'1'..=b'9'));
        let most = [u64::MAX, u64::MAX, 10, 3, 1][rng.usize(..5)];
        let keeps_history = rng.u8(..4) > 0;
        let by_auditor = rng.u8(..10) == 0;
        let user = if by_auditor { AUDITOR } else { "guest" };
        let redrive = to.clone().map(|to| Redrive {
            to,
            keep_history: keeps_history,
            by: short(&format!("{BY}{}", self.last)),
            edit: None,
        });
        let order = Order {
            login: Login {
                vhost: vhost(),
                user: short(user),
                password: user.as_bytes().into(),
                seed: rng.u64(..),
            },
            queue: short(&queue),
            filter: Filter {
                body: digit.map(|digit| vec![digit]),
                ..Filter::default()
            },
            most,
            per_second: [None, None, None, 20.try_into().ok()][rng.usize(..4)],
            held: [1_000, 1_000, 5][rng.usize(..3)],
            to: redrive,
        };
        Some(Wanted {
            number: self.last,
            queue,
            to,
            keeps_history,
            digit,
            most,
            by_auditor,
            order,
        })
    }
}

/// `None`: nowhere.
fn destination(rng: &mut Rng, plan: &Plan) -> Option<Destination> {
    let any = |rng: &mut Rng, names: &[String]| short(&names[rng.usize(..names.len())]);
    let to = match rng.u8(..10) {
        0..3 => return None,
        3..6 => Destination::Source,
        6 => Destination::Queue(any(rng, &plan.sources)),
        7 => Destination::Queue(any(rng, &plan.targets)),
        8 => Destination::Queue(short("missing")),
        _ => Destination::Exchange {
            exchange: short(["dlx", "fan", "inner", "nowhere"][rng.usize(..4)]),
            routing_key: rng.bool().then(|| any(rng, &plan.targets)),
        },
    };
    Some(to)
}

// === impl Wanted ===

impl Wanted {
    /// Whether a message with this number is meant.
    pub(crate) fn takes(&self, body: &[u8]) -> bool {
        self.digit.is_none_or(|digit| body.contains(&digit))
    }

    /// Whether whoever wants it may publish there.
    pub(crate) fn may_publish(&self) -> bool {
        let audited = |exchange: &ShortStr| exchange.starts_with(AUDITED.as_bytes());
        match &self.to {
            Some(Destination::Exchange { exchange, .. }) => !self.by_auditor || audited(exchange),
            _ => !self.by_auditor,
        }
    }
}

// === impl World ===

impl World {
    /// The operator does something, or not.
    pub(super) fn operate(&mut self) -> Result<(), String> {
        if !self.operator.acts() {
            return Ok(());
        }
        let running = self.operator.any_begun();
        match (self.operator.rng.u8(..10), running) {
            (0..6, _) => return self.begin_redrive(),
            (_, None) => {}
            (deed, Some((at, number))) => {
                let Some(proxy) = &mut self.proxies[at] else {
                    return Ok(());
                };
                let told = match deed {
                    6 | 7 => proxy.pause(number, true),
                    8 => proxy.pause(number, false),
                    _ => proxy.cancel(number),
                };
                self.note(|| format!("=== operator: {deed} of {number}, told {told}"));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Two are at work in one queue.
    fn begin_redrive(&mut self) -> Result<(), String> {
        if !self.troubles.reachable(self.at) && self.operator.rng.u8(..8) > 0 {
            return Ok(());
        }
        let queues = self.worth_a_walk();
        let Some(wanted) = self.operator.wanted(&queues, &self.plan) else {
            return Ok(());
        };
        let up = (0..self.proxies.len()).filter(|at| self.proxies[*at].is_some());
        let up: Vec<usize> = up.filter(|at| !self.is_ending(*at)).collect();
        let Some(&at) = self.operator.rng.choice(&up) else {
            return Ok(());
        };
        let Some(proxy) = &mut self.proxies[at] else {
            return Ok(());
        };
        let there = proxy.walks_in(&wanted.queue);
        let begun = proxy.begin(wanted.number, &wanted.order);
        self.note(|| format!("=== operator: {begun:?} {wanted:?}"));
        match begun {
            Ok(()) if there > 0 => Err(format!("two redrives are at work in {}", wanted.queue)),
            Ok(()) => {
                self.operator.begun.push((at, wanted.number));
                let stands = self.stands_alone(&wanted.queue);
                self.accounts.begins_walk(wanted, stands, self.at);
                Ok(())
            }
            Err(NotBegun::Busy(_)) if there == 0 => {
                Err(format!("no redrive is at work in {}", wanted.queue))
            }
            Err(_) => Ok(()),
        }
    }

    /// Mostly queues in which there is something.
    fn worth_a_walk(&mut self) -> Vec<String> {
        let mut queues = self.plan.targets.clone();
        queues.push(names().parking().to_string());
        if self.operator.rng.u8(..16) > 0 {
            let ready = |queue: &String| {
                let messages = self.broker.queue(queue).unwrap_or_default();
                messages.iter().any(|message| message.holder.is_none())
            };
            queues.retain(ready);
        }
        queues
    }

    /// What is in a queue, in its order. `None`: somebody else has some of it, or may have.
    fn stands_alone(&self, queue: &str) -> Option<Vec<MessageView>> {
        let messages = self.broker.queue(queue)?;
        let held = messages.iter().any(|message| message.holder.is_some());
        let alone = !held && !self.has_other_consumers(queue, None);
        alone.then_some(messages)
    }

    /// Whether others consume that queue besides that walk.
    fn has_other_consumers(&self, queue: &str, walk: Option<u64>) -> bool {
        let consumers = self.broker.consumers();
        consumers.iter().any(|of| {
            of.queue == queue.as_bytes() && (walk.is_none() || self.accounts.walk(of.conn) != walk)
        })
    }

    /// The world comes to its end: what is held up goes on now, or after a long time.
    pub(super) fn winds_up_walks(&mut self) {
        let wait = match self.operator.rng.u8(..4) {
            0 => LONG,
            _ => 0,
        };
        self.operator.resumes = Some(self.at + wait);
    }

    /// Dead letters are sent back and removed while nothing goes wrong, too.
    pub(super) fn operate_last(&mut self) -> Result<(), String> {
        if self.operator.last_ones > 0 && self.operator.rng.u32(..LAST_RARITY) == 0 {
            self.operator.last_ones -= 1;
            self.begin_redrive()?;
        }
        if self.operator.resumes.is_some_and(|at| at <= self.at) {
            self.operator.resumes = None;
            for (at, number) in &self.operator.begun {
                if let Some(proxy) = &mut self.proxies[*at] {
                    proxy.pause(*number, false);
                }
            }
        }
        Ok(())
    }

    /// Only what is held up is left.
    pub(super) fn waits_for_walks(&self) -> bool {
        self.operator.resumes.is_some() && !self.operator.begun.is_empty()
    }

    /// Hears what became of walks, and judges those of which nothing is under way any more.
    ///
    /// # Errors
    /// What one has done and should not.
    pub(super) fn look_at_walks(&mut self) -> Result<(), String> {
        if self.operator.begun.is_empty() {
            return Ok(());
        }
        let proxies = self.proxies.iter_mut().flatten();
        for (number, shown) in proxies
            .flat_map(|proxy| proxy.take_ended())
            .collect::<Vec<_>>()
        {
            self.note(|| format!("=== redrive {number} has ended: {shown:?}"));
            self.accounts.walk_ended(number, shown)?;
        }
        for (at, number) in self.operator.begun.clone() {
            let queue = self.accounts.queue_of(number);
            if self.has_other_consumers(&queue, Some(number)) {
                self.accounts.is_disturbed(number);
            }
            let works = self.proxies[at].as_ref();
            let works = works.is_some_and(|proxy| proxy.has_walk(number));
            let is_its = |conn| self.accounts.walk(conn) == Some(number);
            let open = |peer: &&super::world::Peer| peer.is_open() && is_its(peer.conn);
            if works || self.peers.values().any(|peer| open(&peer)) {
                continue;
            }
            self.operator.begun.retain(|(_, of)| *of != number);
            let stands = self.broker.queue(&queue).unwrap_or_default();
            let stands: Vec<u64> = stands.iter().map(|message| message.copy).collect();
            self.accounts.judge_walk(number, &stands)?;
        }
        Ok(())
    }

    /// No redrive is at work, and none is left to be judged.
    pub(super) fn has_no_walks(&self) -> bool {
        self.operator.begun.is_empty() && self.operator.last_ones == 0
    }
}
