//! One process of the proxy: its machines, and what `net/vhosts.rs` carries between them. Killing it forgets all of this.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dlx_proxy::amqp::ids::{ShortStr, Vhost};
use dlx_proxy::dead_letter::{Dialect, Rules};
use dlx_proxy::intake::{self, Intake};
use dlx_proxy::link::Login;
use dlx_proxy::machine::{
    Budget, Cause, Ensured, Event, Input, Limits, LiveLimits, Outcome, Owner, Publication, Ticket,
};
use dlx_proxy::publisher::{self, OnUnroutable, Publisher};
use dlx_proxy::registry::intake_name::Names;
use dlx_proxy::registry::live::LivePolicies;
use dlx_proxy::registry::policy::Mode;
use dlx_proxy::registry::shared::{Shared, Who};
use dlx_proxy::session::{self, Session};
use fastrand::Rng;

use super::net::{Micros, Net, TcpId};
use super::pump::{Move, Pump, now};

/// Under which the publisher knows the intake.
const INTAKE: Owner = Owner(0);

/// Which of a proxy's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    Publisher,
    Intake,
    Session(Owner),
}

/// What an operator has set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub mode: Mode,
    pub on_unroutable: OnUnroutable,
    pub queue_type: intake::QueueType,
    pub prefetch: u16,
    pub max_tickets: usize,
    pub retained: usize,
    pub max_queues: usize,
    pub max_replies: usize,
    pub close_wait: Duration,
    pub retry_for: Duration,
    pub nack_retries: u32,
    /// Batches that wait for the publisher.
    pub publisher_inbox: usize,
}

/// A running process.
pub(crate) struct Proxy {
    settings: Settings,
    session_settings: Arc<session::Settings>,
    pub publisher: Pump<Publisher>,
    pub intake: Pump<Intake>,
    pub sessions: BTreeMap<Owner, Running>,
    shared: Shared,
    last_owner: u64,
    /// What the intake hands to the publisher and does not fit yet.
    intake_dead: Vec<(Ticket, Publication)>,
    /// Facts, with the machine that said them, until the world takes them.
    pub events: Vec<(Which, Event)>,
}

/// A session and what its outlet knows.
pub(crate) struct Running {
    pub pump: Pump<Session>,
    who: Option<Who>,
    /// Dead letters that it handed over and that have no outcome.
    unsettled: BTreeSet<Ticket>,
}

pub(crate) fn names() -> Names {
    Names::new("dlx-proxy").expect("a prefix")
}

// === impl Settings ===

impl Settings {
    /// Small bounds, so that they are met.
    pub(crate) fn draw(rng: &mut Rng) -> Settings {
        Settings {
            mode: if rng.u8(..5) == 0 {
                Mode::Keep
            } else {
                Mode::Takeover
            },
            on_unroutable: if rng.u8(..5) == 0 {
                OnUnroutable::Drop
            } else {
                OnUnroutable::Park
            },
            queue_type: if rng.bool() {
                intake::QueueType::Quorum
            } else {
                intake::QueueType::Classic
            },
            prefetch: [1, 2, 5, 20, 1000][rng.usize(..5)],
            max_tickets: [1, 2, 4, 16, 4096][rng.usize(..5)],
            retained: [2_000, 20_000, 1 << 20][rng.usize(..3)],
            max_queues: [1, 2, 65_536, 65_536][rng.usize(..4)],
            max_replies: [1, 8_192][rng.usize(..2)],
            close_wait: Duration::from_secs(5),
            retry_for: Duration::from_secs(60),
            nack_retries: rng.u32(..4),
            publisher_inbox: [1, 2, 1024][rng.usize(..3)],
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            max_history: 256,
            nack_retries: self.nack_retries,
            confirm_timeout: Duration::from_secs(10),
            retry_for: self.retry_for,
            publisher_bytes: 128 << 20,
            intake_bytes: 64 << 20,
            max_intake_exchanges: 1000,
            retained_per_connection: self.retained,
            max_tickets: self.max_tickets,
            max_queues: self.max_queues,
            max_replies: self.max_replies,
            close_wait: self.close_wait,
            probe_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            admin_timeout: Duration::from_secs(10),
        }
    }
}

// === impl Proxy ===

impl Proxy {
    pub(crate) fn start(settings: Settings, seed: u64, at: Micros) -> Proxy {
        let names = names();
        let rules = Rules {
            dialect: Dialect::V4,
            max_history: 256,
            continue_history: true,
            carry_bcc: true,
        };
        let login = Login {
            vhost: vhost(),
            user: short("dlx-proxy"),
            password: "dlx-proxy".into(),
            seed,
        };
        let policies = LivePolicies::default();
        let limits = LiveLimits::new(settings.limits());
        let session_settings = session::Settings {
            mode: settings.mode,
            names: names.clone(),
            policies: policies.clone(),
            rules,
            retained: Budget::new(settings.retained * 2),
            ended: Default::default(),
            limits: limits.clone(),
        };
        let publisher = publisher::Settings {
            login: login.clone(),
            parking: names.parking().clone(),
            bridges: names.bridges().clone(),
            on_unroutable: settings.on_unroutable,
            limits: limits.clone(),
            intake: Some(INTAKE),
            prefetch: settings.prefetch.into(),
        };
        let intake = intake::Settings {
            login,
            names,
            policies,
            queue_type: settings.queue_type,
            prefetch: settings.prefetch,
            limits,
            rules,
            surveyed: false,
        };
        Proxy {
            session_settings: Arc::new(session_settings),
            publisher: Pump::link(Publisher::new(publisher, now(at))),
            intake: Pump::link(Intake::new(intake, now(at))),
            settings,
            sessions: BTreeMap::new(),
            shared: Shared::default(),
            last_owner: 0,
            intake_dead: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A client has connected, and we to the broker.
    pub(crate) fn accept(&mut self, client: TcpId, broker: TcpId, at: Micros) -> Owner {
        self.last_owner += 1;
        let owner = Owner(self.last_owner);
        let session = Session::new(self.session_settings.clone(), now(at));
        let pump = Pump::session(session, client, broker);
        self.sessions.insert(
            owner,
            Running {
                pump,
                who: None,
                unsettled: BTreeSet::new(),
            },
        );
        owner
    }

    /// The process is gone: the system closes its sockets.
    pub(crate) fn kill(mut self, net: &mut Net) {
        self.publisher.kill(net);
        self.intake.kill(net);
        for running in self.sessions.values_mut() {
            running.pump.kill(net);
        }
    }

    pub(crate) fn moves(&self, at: Micros, net: &Net, out: &mut Vec<(Which, Move)>) {
        let mut of = Vec::new();
        self.publisher.moves(at, net, &mut of);
        out.extend(of.drain(..).map(|what| (Which::Publisher, what)));
        self.intake.moves(at, net, &mut of);
        out.extend(of.drain(..).map(|what| (Which::Intake, what)));
        for (owner, running) in &self.sessions {
            running.pump.moves(at, net, &mut of);
            out.extend(of.drain(..).map(|what| (Which::Session(*owner), what)));
        }
    }

    pub(crate) fn due(&self) -> Option<Micros> {
        let sessions = self.sessions.values().map(|running| running.pump.due());
        let links = [self.publisher.due(), self.intake.due()];
        sessions.chain(links).flatten().min()
    }

    pub(crate) fn do_move(
        &mut self,
        (which, what): (Which, Move),
        most: usize,
        at: Micros,
        net: &mut Net,
    ) {
        match which {
            Which::Publisher => self.publisher.do_move(what, most, at, net),
            Which::Intake => self.intake.do_move(what, most, at, net),
            Which::Session(owner) => {
                if let Some(running) = self.sessions.get_mut(&owner) {
                    running.do_move(what, most, at, net);
                }
            }
        }
        self.dispatch(which, at);
    }

    /// The connection of a link has come, or could not be had.
    pub(crate) fn connected(
        &mut self,
        which: Which,
        tcp: Option<TcpId>,
        at: Micros,
        net: &mut Net,
    ) {
        match which {
            Which::Publisher => self.publisher.connected(tcp, at, net),
            Which::Intake | Which::Session(_) => self.intake.connected(tcp, at, net),
        }
        self.dispatch(which, at);
    }

    /// SIGTERM: each machine is told when its phase comes; here all that are left of the phase.
    pub(crate) fn drain(&mut self, which: Which) {
        match which {
            Which::Publisher => self.publisher.inbox.push_back(Input::Drain),
            Which::Intake => self.intake.inbox.push_back(Input::Drain),
            Which::Session(owner) => {
                if let Some(running) = self.sessions.get_mut(&owner) {
                    running.pump.inbox.push_back(Input::Drain);
                }
            }
        }
    }

    fn dispatch(&mut self, which: Which, at: Micros) {
        match which {
            Which::Publisher => self.dispatch_publisher(),
            Which::Intake => self.dispatch_intake(),
            Which::Session(owner) => self.dispatch_session(owner, at),
        }
        self.hand_over();
    }

    fn dispatch_publisher(&mut self) {
        let fx = &mut self.publisher.fx;
        self.events
            .extend(fx.events.drain(..).map(|event| (Which::Publisher, event)));
        let mut batches: BTreeMap<Owner, Vec<(Ticket, Outcome)>> = BTreeMap::new();
        for (owner, ticket, outcome) in fx.settled.drain(..) {
            batches.entry(owner).or_default().push((ticket, outcome));
        }
        for (owner, batch) in batches {
            self.answer(owner, Input::Settled(batch));
        }
    }

    fn dispatch_intake(&mut self) {
        let fx = &mut self.intake.fx;
        self.events
            .extend(fx.events.drain(..).map(|event| (Which::Intake, event)));
        assert!(!std::mem::take(&mut fx.survey), "nobody surveys here");
        self.intake_dead.append(&mut fx.dead);
        for (owner, ensured) in std::mem::take(&mut fx.ensured) {
            self.answer(owner, Input::Ensured(ensured));
        }
    }

    fn dispatch_session(&mut self, owner: Owner, at: Micros) {
        let Some(running) = self.sessions.get_mut(&owner) else {
            return;
        };
        let fx = &mut running.pump.fx;
        for event in fx.events.drain(..) {
            if let Event::SessionOpened { vhost, user, .. } = &event {
                running.who = Some(Who {
                    vhost: vhost.clone(),
                    user: user.clone(),
                });
            }
            self.events.push((Which::Session(owner), event));
        }
        let mut answers = Vec::new();
        if let Some(who) = &running.who {
            for learned in fx.learned.drain(..) {
                self.shared.learn(who, learned, now(at).mono);
            }
            for about in fx.recall.drain(..) {
                answers.push(Input::Recalled(self.shared.recall(
                    who,
                    about,
                    now(at).mono,
                )));
            }
        }
        for ensure in fx.ensure.drain(..) {
            match self.intake.done {
                false => self.intake.inbox.push_back(Input::Ensure(owner, ensure)),
                true => answers.push(Input::Ensured(Ensured {
                    exchange: ensure.exchange,
                    ready: false,
                })),
            }
        }
        if !fx.changes.is_empty() {
            let changes = std::mem::take(&mut fx.changes);
            self.intake.inbox.push_back(Input::Changed(changes));
        }
        if running.who.is_none() && !fx.dead.is_empty() {
            let refused = fx.dead.drain(..);
            let refused =
                refused.map(|(ticket, _)| (ticket, Outcome::Refused(Cause::PublisherAway)));
            answers.push(Input::Settled(refused.collect()));
        }
        running.pump.inbox.extend(answers);
        if running.pump.done {
            self.sessions.remove(&owner);
        }
    }

    /// Dead letters go to the publisher as far as its inbox has room; the rest waits where it is.
    fn hand_over(&mut self) {
        let inbox = &mut self.publisher.inbox;
        let mut give = |owner: Owner, dead: &mut Vec<(Ticket, Publication)>| {
            if !dead.is_empty() && inbox.len() < self.settings.publisher_inbox {
                inbox.push_back(Input::Publish(owner, std::mem::take(dead)));
            }
        };
        give(INTAKE, &mut self.intake_dead);
        for (owner, running) in &mut self.sessions {
            give(*owner, &mut running.pump.fx.dead);
        }
    }

    fn answer(&mut self, owner: Owner, input: Input) {
        if owner == INTAKE {
            self.intake.inbox.push_back(input);
        } else if let Some(running) = self.sessions.get_mut(&owner) {
            running.pump.inbox.push_back(input);
        }
    }

    /// Whether each machine is within its bounds; what is not.
    pub(crate) fn over_a_bound(&self) -> Option<String> {
        let settings = &self.settings;
        let inbox = self.publisher.inbox.len();
        if inbox > settings.publisher_inbox + 1 {
            return Some(format!("the publisher's inbox has {inbox} batches"));
        }
        let held = self.intake.machine.held();
        // A careful consumer holds one more while its successor begins.
        if held > usize::from(settings.prefetch) + 1 {
            return Some(format!("intake holds {held}"));
        }
        for (owner, running) in &self.sessions {
            let session = &running.pump.machine;
            let (withheld, retained) = (session.withheld(), session.retained());
            if withheld > settings.max_tickets {
                return Some(format!("{owner:?} withholds {withheld}"));
            }
            if retained > settings.retained {
                return Some(format!("{owner:?} retains {retained}"));
            }
            if running.pump.inbox.len() > settings.max_tickets + 16 {
                return Some(format!("{owner:?} is owed more than its inbox holds"));
            }
        }
        None
    }

    /// Nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.publisher.machine.held() == 0
            && self.intake.machine.held() == 0
            && self.publisher.inbox.is_empty()
            && self.intake.inbox.is_empty()
            && self.sessions.values().all(|running| {
                running.pump.machine.withheld() == 0 && running.pump.inbox.is_empty()
            })
    }
}

// === impl Running ===

impl Running {
    fn do_move(&mut self, what: Move, most: usize, at: Micros, net: &mut Net) {
        if let (Some(Input::Settled(outcomes)), Move::Inbox) = (self.pump.inbox.front(), what) {
            for (ticket, _) in outcomes {
                self.unsettled.remove(ticket);
            }
        }
        self.pump.do_move(what, most, at, net);
        let new = self.pump.fx.dead.iter().map(|(ticket, _)| *ticket);
        self.unsettled.extend(new);
        // Whatever the legs do: an outcome settles, and nothing needs to be read for it.
        let (withheld, unsettled) = (self.pump.machine.withheld(), self.unsettled.len());
        assert!(
            withheld <= unsettled,
            "{withheld} rejects are withheld, outcomes are due for {unsettled}"
        );
    }
}

fn short(text: &str) -> ShortStr {
    ShortStr::copy(text.as_bytes()).expect("short")
}

fn vhost() -> Vhost {
    short("/")
}
