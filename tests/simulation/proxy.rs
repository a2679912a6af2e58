//! One process of the proxy: its machines and drivers, and the hub between them, as they are. Killing it forgets all of this.

mod alterations;
mod dialing;
mod managed;
mod settings;
mod walks;
mod watched;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use dlx_proxy::amqp::ids::Vhost;
use dlx_proxy::app::RECORD_TIMEOUT;
use dlx_proxy::dead_letter::{HistoryForm, RuleSettings};
use dlx_proxy::intake::{self, Intake};
use dlx_proxy::link::Login;
use dlx_proxy::machine::{Budget, Event, Leg, LiveLimits, Mono, Owner};
use dlx_proxy::net::clock::Clock as _;
use dlx_proxy::net::drive::Drive;
use dlx_proxy::net::outlet::{CAREFUL, CarefulOutlet, LinkOutlet, Observer, PublisherOutlet};
use dlx_proxy::net::question::Question;
use dlx_proxy::net::vhosts::{Hub, LinkInboxes};
use dlx_proxy::objects::Names;
use dlx_proxy::publisher::{self, Publisher};
use dlx_proxy::recorder::{self, Recorder};
use dlx_proxy::registry::delayed_exchanges::DelayedPublish;
use dlx_proxy::registry::live::LivePolicies;
use dlx_proxy::registry::policy::Policies;
use dlx_proxy::session::{self, Session};

use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::sync::CancellationToken;

use super::net::{End, Micros, Net, Stream, TcpId};
use super::rulings::Rulings;
use super::task::{Clock, Task};
use alterations::Alterations;
pub(crate) use alterations::Came;
use dialing::{Dials, connector};
pub(crate) use settings::Settings;
pub(crate) use settings::{short, vhost};
use walks::Walks;
use watched::Watched;

/// Which of a proxy's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    Publisher,
    /// The one that tries what may have closed its connection, by its number.
    Careful(u64),
    Intake,
    Recorder,
    Session(Owner),
    /// By the operator's number.
    Walk(u64),
    /// By a number of the world's.
    Alteration(u64),
}

/// A running process.
pub(crate) struct Proxy {
    settings: Settings,
    session_settings: Arc<session::Settings>,
    clock: Clock,
    hub: Hub,
    publisher: Task<Publisher, PublisherOutlet>,
    /// Those that are there, or come to their end.
    careful: BTreeMap<u64, Careful>,
    asked_careful: AskedCareful,
    last_careful: u64,
    publisher_settings: publisher::Settings,
    to_publisher: Sender<publisher::Input>,
    intake: Task<Intake, LinkOutlet>,
    recorder: Task<Recorder, LinkOutlet>,
    /// From then on clients are accepted, whether what was recorded counts or not.
    listens_at: Mono,
    sessions: BTreeMap<Owner, Task<Watched, watched::Outlet>>,
    last_session: u64,
    walks: Walks,
    alterations: Alterations,
    /// Until the world takes them.
    came: Vec<(u64, Came)>,
    dials: Dials,
    events: Events,
    /// What its sessions ask the management API.
    questions: Receiver<Question>,
    /// It is read from then on, and has not answered.
    reads_from: Option<Mono>,
    /// The policies of the broker that it told last.
    told: Option<Rulings>,
}

/// What a careful publisher is told, and when it ends.
type AskedCareful = Arc<Mutex<Vec<(Receiver<publisher::Input>, CancellationToken)>>>;

/// A careful publisher.
struct Careful {
    task: Task<Publisher, CarefulOutlet>,
    /// Until it has been told.
    ends: Option<CancellationToken>,
}

/// Facts, with the machine that said them, until the world takes them.
type Events = Arc<Mutex<Vec<(Which, Event)>>>;

struct Facts(Which, Events);

pub(crate) fn names() -> Names {
    Names::new("dlx-proxy").expect("a prefix")
}

// === impl Proxy ===

impl Proxy {
    pub(crate) fn start(settings: Settings, seed: u64, clock: &Clock) -> Proxy {
        let names = names();
        let rules = RuleSettings {
            continue_history: true,
            // A roll-out: of two proxies, or of one before and after a crash, each writes its form.
            history_form: match seed % 2 {
                0 => HistoryForm::Table,
                _ => HistoryForm::Compact,
            },
        };
        let login = Login {
            vhost: vhost(),
            user: short("dlx-proxy"),
            password: "dlx-proxy".into(),
            seed,
        };
        let policies = LivePolicies::new(Policies::new(settings.policies()));
        let limits = LiveLimits::new(settings.limits());
        let session_settings = session::Settings {
            user: login.user.clone(),
            mode: settings.mode,
            lenient: settings.lenient.clone(),
            names: names.clone(),
            policies: policies.clone(),
            rules,
            retained: Budget::new(settings.retained * 2),
            catalogue: Default::default(),
            channel_limits: Default::default(),
            delays: DelayedPublish::of(&settings.delays),
            limits: limits.clone(),
        };
        let opened = Arc::new(Mutex::new(None));
        let links = opened.clone();
        let open =
            move |_: &Hub, _: &Vhost, inboxes| *links.lock().expect("no panic") = Some(inboxes);
        let hub = Hub::with_publisher_inbox(settings.publisher_inbox, Box::new(open));
        hub.open(&vhost());
        let inboxes = opened.lock().expect("no panic").take();
        let inboxes: LinkInboxes = inboxes.expect("it opened them");
        let publisher = publisher::Settings {
            login: login.clone(),
            names: names.clone(),
            on_unroutable: settings.on_unroutable,
            limits: limits.clone(),
            intake: Some(inboxes.intake_owner),
            existing_delays: Default::default(),
            prefetch: settings.prefetch.into(),
            careful: false,
        };
        let now = clock.now();
        let recorder = recorder::Settings {
            login: login.clone(),
            stream: names.redeclared().clone(),
            lenient: settings.lenient.clone(),
            policies: policies.clone(),
        };
        let recorder = Recorder::new(recorder, now);
        let intake = intake::Settings {
            login,
            names,
            policies,
            catalogue: session_settings.catalogue.clone(),
            queue_type: settings.queue_type,
            prefetch: settings.prefetch,
            limits,
            rules,
            recorded: recorder.is_wanted(),
        };
        let (dials, events) = (Dials::default(), Events::default());
        let observer = |which| Box::new(Facts(which, events.clone())) as Box<dyn Observer>;
        let (to_publisher, answers) = mpsc::channel(CAREFUL);
        let asked_careful = AskedCareful::default();
        let asked = asked_careful.clone();
        let open_careful = Box::new(move |inbox, ends| {
            let mut asked = asked.lock().expect("no panic");
            asked.push((inbox, ends));
        });
        let publisher_settings = publisher.clone();
        let [for_recorder, for_intake] = [Which::Recorder, Which::Intake]
            .map(|which| LinkOutlet::new(&hub, observer(which), &inboxes));
        let publisher = Drive::link(
            Publisher::new(publisher, now),
            PublisherOutlet::new(&hub, observer(Which::Publisher), open_careful),
            inboxes.publisher,
            clock.clone(),
            connector(&dials, Which::Publisher),
        )
        .with_answers(answers);
        let recorder = Drive::link(
            recorder,
            for_recorder,
            inboxes.recorder,
            clock.clone(),
            connector(&dials, Which::Recorder),
        );
        let intake = Drive::link(
            Intake::new(intake, now),
            for_intake,
            inboxes.intake,
            clock.clone(),
            connector(&dials, Which::Intake),
        );
        let mut proxy = Proxy {
            session_settings: Arc::new(session_settings),
            clock: clock.clone(),
            hub,
            publisher: Task::spawn(publisher),
            careful: BTreeMap::new(),
            asked_careful,
            last_careful: 0,
            publisher_settings,
            to_publisher,
            intake: Task::spawn(intake),
            recorder: Task::spawn(recorder),
            listens_at: now.mono.after(RECORD_TIMEOUT),
            settings,
            sessions: BTreeMap::new(),
            last_session: 0,
            walks: Walks::default(),
            alterations: Alterations::default(),
            came: Vec::new(),
            dials,
            events,
            questions: inboxes.questions,
            reads_from: None,
            told: None,
        };
        proxy.let_it_rest();
        proxy
    }

    /// Where no declare may differ from its queue, the recorder has nothing to do: it does that at once, so that such worlds stay what they are.
    fn let_it_rest(&mut self) {
        let rests = |recorder: &Recorder| !recorder.is_wanted();
        if self.recorder.machine().is_some_and(rests) {
            self.recorder.poll();
        }
    }

    /// What was recorded counts; nothing was, if nobody records.
    pub(crate) fn has_read_record(&self) -> bool {
        let (vhost, mut cx) = (vhost(), Context::from_waker(Waker::noop()));
        pin!(self.hub.recorded(&vhost)).poll(&mut cx).is_ready()
    }

    /// It listens for clients.
    pub(crate) fn listens(&self) -> bool {
        let waited = self.listens_at <= self.clock.now().mono;
        waited || self.has_read_record() && self.reads_from.is_none()
    }

    /// SIGHUP: what its policies say is another thing now.
    pub(crate) fn reload(&mut self, rulings: &Rulings) {
        self.settings.rulings.clone_from(rulings);
        let live = &self.session_settings.policies;
        self.hub.change_policies(live, self.settings.policies());
        self.let_it_rest();
    }

    /// A client has connected, and we to the broker.
    pub(crate) fn accept(&mut self, client: TcpId, broker: TcpId, net: &Net) {
        self.last_session += 1;
        let owner = Owner(self.last_session);
        let session = Session::new(self.session_settings.clone(), self.clock.now());
        let facts = Facts(Which::Session(owner), self.events.clone());
        let (outlet, inbox) = self.hub.session(session.max_tickets(), Box::new(facts));
        let drive = Drive::session(
            Watched::new(session),
            watched::Outlet(outlet),
            inbox,
            self.clock.clone(),
            Stream::new(net, client, End::Acceptor),
            Stream::new(net, broker, End::Dialer),
        );
        self.sessions.insert(owner, Task::spawn(drive));
    }

    /// Those whom somebody has woken.
    pub(crate) fn woken(&self) -> impl Iterator<Item = Which> {
        let publisher = self.publisher.is_woken().then_some(Which::Publisher);
        let intake = self.intake.is_woken().then_some(Which::Intake);
        let recorder = self.recorder.is_woken().then_some(Which::Recorder);
        let sessions = self.sessions.iter();
        let sessions = sessions.filter(|(_, task)| task.is_woken());
        let sessions = sessions.map(|(owner, _)| Which::Session(*owner));
        let walks = self.walks.all().iter();
        let walks = walks.filter(|walking| walking.task.is_woken());
        let walks = walks.map(|walking| Which::Walk(walking.number));
        let careful = self.careful.iter();
        let careful = careful.filter(|(_, careful)| careful.task.is_woken());
        let careful = careful.map(|(number, _)| Which::Careful(*number));
        publisher
            .into_iter()
            .chain(careful)
            .chain(intake)
            .chain(recorder)
            .chain(sessions)
            .chain(walks)
            .chain(self.alterations.woken())
    }

    pub(crate) fn poll(&mut self, which: Which) {
        match which {
            Which::Publisher => {
                self.publisher.poll();
                self.keep_careful();
            }
            Which::Careful(number) => {
                if let Some(careful) = self.careful.get_mut(&number) {
                    careful.task.poll();
                    if careful.task.machine().is_none() {
                        self.careful.remove(&number);
                    }
                }
            }
            Which::Intake => self.intake.poll(),
            Which::Recorder => self.recorder.poll(),
            Which::Walk(number) => self.poll_walk(number),
            Which::Alteration(number) => self.poll_alteration(number),
            Which::Session(owner) => {
                if let Some(task) = self.sessions.get_mut(&owner) {
                    task.poll();
                    if task.machine().is_none() {
                        self.sessions.remove(&owner);
                    }
                }
            }
        }
    }

    /// The publisher has asked for a careful one, or needs one no more.
    fn keep_careful(&mut self) {
        let asked = std::mem::take(&mut *self.asked_careful.lock().expect("no panic"));
        for (inbox, ends) in asked {
            self.last_careful += 1;
            let which = Which::Careful(self.last_careful);
            let settings = publisher::Settings {
                careful: true,
                ..self.publisher_settings.clone()
            };
            let facts = Box::new(Facts(which, self.events.clone()));
            let drive = Drive::link(
                Publisher::new(settings, self.clock.now()),
                CarefulOutlet::new(facts, self.to_publisher.clone()),
                inbox,
                self.clock.clone(),
                connector(&self.dials, which),
            );
            let (task, ends) = (Task::spawn(drive), Some(ends));
            self.careful
                .insert(self.last_careful, Careful { task, ends });
        }
        for careful in self.careful.values_mut() {
            if careful.ends.take_if(|ends| ends.is_cancelled()).is_some() {
                careful.task.drain();
            }
        }
    }

    /// SIGTERM: each machine is told when its phase comes; here all that are left of the phase.
    pub(crate) fn drain(&mut self, phase: u8) {
        self.drain_walks(phase);
        match phase {
            0 => self.sessions.values_mut().for_each(Task::drain),
            1 => self.intake.drain(),
            _ => {
                self.publisher.drain();
                self.recorder.drain();
                self.let_it_rest();
            }
        }
    }

    /// The connection of a link.
    pub(crate) fn tcp_of(&self, which: Which) -> Option<TcpId> {
        match which {
            Which::Publisher => self.publisher.tcp(Leg::Broker),
            Which::Recorder => self.recorder.tcp(Leg::Broker),
            _ => None,
        }
    }

    /// Where dead letters go of queues that were declared otherwise than they are.
    pub(crate) fn redeclared(&self) -> Vec<String> {
        let redeclared = self.session_settings.policies.redeclared();
        redeclared
            .iter()
            .map(|entry| format!("{entry:?}"))
            .collect()
    }

    pub(crate) fn take_events(&mut self) -> Vec<(Which, Event)> {
        std::mem::take(&mut *self.events.lock().expect("no panic"))
    }

    /// Who could go on and sleeps, as nobody has woken it.
    pub(crate) fn sleeps_through(&self, now: Micros) -> Option<String> {
        let sessions = self.sessions.iter().map(|(owner, task)| {
            let which = Which::Session(*owner);
            (which, task.sleeps_through(now))
        });
        let links = [
            (Which::Publisher, self.publisher.sleeps_through(now)),
            (Which::Intake, self.intake.sleeps_through(now)),
            (Which::Recorder, self.recorder.sleeps_through(now)),
        ];
        let careful = self.careful.iter().map(|(number, careful)| {
            let which = Which::Careful(*number);
            (which, careful.task.sleeps_through(now))
        });
        let walks = self.walks.all().iter().map(|walking| {
            let which = Which::Walk(walking.number);
            (which, walking.task.sleeps_through(now))
        });
        let mut all = sessions.chain(links).chain(careful).chain(walks);
        all.find_map(|(which, what)| Some(format!("{which:?} sleeps, but {}", what?)))
    }

    /// Publications without an outcome; signals; rejects of each session.
    pub(crate) fn held(&self) -> (usize, usize, Vec<usize>) {
        let publisher = self.publisher.machine().map_or(0, Publisher::held);
        let intake = self.intake.machine().map_or(0, Intake::held);
        let sessions = self.sessions.values().filter_map(Task::machine);
        let withheld = sessions.map(|watched| watched.session.withheld());
        (publisher, intake, withheld.collect())
    }

    /// Whether each machine is within its bounds; what is not.
    pub(crate) fn over_a_bound(&self) -> Option<String> {
        let settings = &self.settings;
        let held = self.intake.machine().map_or(0, Intake::held);
        // A consumer that takes one message at a time holds one more while its successor begins, and there are those of a lap round the parking queue.
        if held > usize::from(settings.prefetch) + 1 + 64 {
            return Some(format!("intake holds {held}"));
        }
        for (owner, task) in &self.sessions {
            let Some(Watched { session, .. }) = task.machine() else {
                continue;
            };
            let (in_flight, retained) = (session.in_flight(), session.retained());
            // A publish has its place before its body has come.
            let arriving = usize::from(!settings.delays.is_empty());
            if in_flight > settings.max_tickets + arriving {
                return Some(format!("{owner:?} has {in_flight} in flight"));
            }
            if retained > settings.retained {
                return Some(format!("{owner:?} retains {retained}"));
            }
        }
        None
    }

    /// Nothing is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        let (publisher, intake, withheld) = self.held();
        publisher + intake + withheld.into_iter().sum::<usize>() == 0
            && self.publisher.has_heard_all()
            && self.intake.has_heard_all()
            && self.recorder.has_heard_all()
            && self.sessions.values().all(Task::has_heard_all)
    }
}

// === impl Facts ===

impl Observer for Facts {
    fn event(&mut self, event: &Event) {
        let mut events = self.1.lock().expect("no panic");
        events.push((self.0, event.clone()));
    }
}
