//! One publisher, one intake and one recorder per vhost, shared by its sessions: who sends what to whom.
//!
//! ```text
//!   sessions ── dead letters ──▶ publisher ◀── dead letters ── intake ◀── "this exchange must exist" ── sessions
//!      ▲                          │      │                       ▲ │                                      ▲
//!      └─────── outcomes ─────────┘      └────── outcomes ───────┘ └────────── it does, or not ───────────┘
//!
//!   sessions ── "this queue is declared otherwise now" ──▶ recorder ── "all counts that was recorded" ──▶ intake
//!      ▲                                                      │
//!      └──────────────── it is recorded, or not ──────────────┘
//!
//!   sessions ── "nobody knows this queue" ──▶ who reads the management API ──▶ the catalogue
//! ```
//! Every inbox is bounded. A publisher whose inbox is full slows its sessions (their dead letters wait with them, bounded by their tickets);
//! answers always fit, because each answers a ticket or a request that its receiver has open.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::{Ensure, Outcome, Owner, Ticket};
use crate::registry::live::LivePolicies;
use crate::registry::policy::{Policies, Policy};
use crate::{intake, publisher, recorder, session, walk};

use super::alterations::Swapping;
use super::outlet::{Observer, SessionOutlet};
use super::question::Question;

const PUBLISHER_INBOX: usize = 1024;
/// Per intake: outcomes up to its prefetch (65,535), and requests of sessions.
const INTAKE_INBOX: usize = 80_000;
const RECORDER_INBOX: usize = 1024;
const QUESTIONS: usize = 1024;
const SESSION_SPARE: usize = 16;
/// For an intake exchange: intake itself answers within 4 s while its link is away.
const ENSURED: Duration = Duration::from_secs(10);

pub type OpenLinks = Box<dyn Fn(&Hub, &Vhost, LinkInboxes) + Send + Sync>;

#[derive(Debug)]
pub struct LinkInboxes {
    pub publisher: mpsc::Receiver<publisher::Input>,
    pub intake: mpsc::Receiver<intake::Input>,
    /// Cancelled when all recorded entries count.
    pub recorded: CancellationToken,
    pub recorder: mpsc::Receiver<recorder::Input>,
    pub questions: mpsc::Receiver<Question>,
    pub intake_owner: Owner,
    pub to_publisher: mpsc::Sender<publisher::Input>,
}

#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    open: OpenLinks,
    publisher_inbox: usize,
    links: Mutex<BTreeMap<Vhost, Arc<Links>>>,
    owners: Mutex<HashMap<Owner, Inbox>>,
    last_owner: AtomicU64,
    /// A queue that is being made anew.
    swapping: Mutex<Option<Swapping>>,
    /// Of each walk: its queue.
    walked: Mutex<Vec<(Vhost, ShortStr)>>,
}

#[derive(Clone)]
enum Inbox {
    Session(mpsc::Sender<Box<session::Input>>),
    Intake(mpsc::Sender<intake::Input>),
    Walk(mpsc::Sender<walk::Input>),
}

pub(super) struct Links {
    pub(super) publisher: mpsc::Sender<publisher::Input>,
    pub(super) intake: mpsc::Sender<intake::Input>,
    pub(super) recorder: mpsc::Sender<recorder::Input>,
    /// Closed without a management API.
    pub(super) questions: mpsc::Sender<Question>,
    recorded: CancellationToken,
}

// === impl Hub ===

impl Hub {
    pub fn new(open: OpenLinks) -> Hub {
        Hub::with_publisher_inbox(PUBLISHER_INBOX, open)
    }

    pub fn with_publisher_inbox(publisher_inbox: usize, open: OpenLinks) -> Hub {
        Hub(Arc::new(Inner {
            open,
            publisher_inbox,
            links: Mutex::default(),
            owners: Mutex::default(),
            last_owner: AtomicU64::new(0),
            swapping: Mutex::default(),
            walked: Mutex::default(),
        }))
    }

    pub fn open(&self, vhost: &Vhost) {
        self.links(vhost);
    }

    pub fn session(
        &self,
        max_tickets: usize,
        observer: Box<dyn Observer>,
    ) -> (SessionOutlet, mpsc::Receiver<Box<session::Input>>) {
        let (sender, inbox) = mpsc::channel(max_tickets + SESSION_SPARE);
        let owner = self.register(Inbox::Session(sender.clone()));
        // Registered before it is asked: so it misses nothing, and may hear of it twice.
        for swap in self.swap_for_new() {
            put(&sender, Box::new(session::Input::Swap(swap)));
        }
        (SessionOutlet::new(self.clone(), owner, observer), inbox)
    }

    pub(super) fn walk(
        &self,
    ) -> (
        Owner,
        mpsc::Sender<walk::Input>,
        mpsc::Receiver<walk::Input>,
    ) {
        let (sender, inbox) = mpsc::channel(walk::MOST_AWAY + SESSION_SPARE);
        let owner = self.register(Inbox::Walk(sender.clone()));
        (owner, sender, inbox)
    }

    /// Done when all recorded entries of a vhost count, or nothing is recorded there.
    pub async fn recorded(&self, vhost: &Vhost) {
        self.links(vhost).recorded.cancelled().await;
    }

    /// Replaces the proxy's policies in the shared cells, and notifies machines that must act at
    /// once.
    pub fn change_policies(&self, live: &LivePolicies, ours: Vec<Policy>) {
        live.set_ours(Policies::new(ours));
        for links in lock(&self.0.links).values() {
            // One whose inbox is full has work, so it is awake.
            let _ = links.recorder.try_send(recorder::Input::PoliciesChanged);
        }
    }

    /// Whether the links of the vhost were opened.
    pub fn is_open(&self, vhost: &Vhost) -> bool {
        lock(&self.0.links).contains_key(vhost)
    }

    /// Declares and binds an intake exchange, as a session asks for it. False: it cannot be had.
    pub async fn ensure(&self, vhost: &Vhost, exchange: ShortStr) -> bool {
        let (sender, mut inbox) = mpsc::channel(SESSION_SPARE);
        let owner = self.register(Inbox::Session(sender));
        let user = None;
        let ensure = intake::Input::Ensure(owner, Ensure { exchange, user });
        let intake = self.links(vhost).intake.clone();
        let answer = async {
            intake.send(ensure).await.ok()?;
            loop {
                if let session::Input::Ensured(ensured) = *inbox.recv().await? {
                    return Some(ensured.ready);
                }
            }
        };
        let ready = timeout(ENSURED, answer).await;
        self.forget(owner);
        matches!(ready, Ok(Some(true)))
    }

    /// Call when the session has ended.
    pub(super) fn forget(&self, owner: Owner) {
        lock(&self.0.owners).remove(&owner);
        self.left_swap(owner);
    }

    pub(super) fn sessions(&self) -> Vec<(Owner, mpsc::Sender<Box<session::Input>>)> {
        let owners = lock(&self.0.owners);
        let sessions = owners.iter().filter_map(|(owner, inbox)| match inbox {
            Inbox::Session(inbox) => Some((*owner, inbox.clone())),
            Inbox::Intake(_) | Inbox::Walk(_) => None,
        });
        sessions.collect()
    }

    pub(super) fn walked(&self) -> MutexGuard<'_, Vec<(Vhost, ShortStr)>> {
        lock(&self.0.walked)
    }

    pub(super) fn swapping(&self) -> MutexGuard<'_, Option<Swapping>> {
        lock(&self.0.swapping)
    }

    fn register(&self, inbox: Inbox) -> Owner {
        let owner = Owner(self.0.last_owner.fetch_add(1, Ordering::Relaxed));
        lock(&self.0.owners).insert(owner, inbox);
        owner
    }

    pub(super) fn links(&self, vhost: &Vhost) -> Arc<Links> {
        let mut all = lock(&self.0.links);
        if let Some(links) = all.get(vhost) {
            return links.clone();
        }
        let (publisher, publisher_inbox) = mpsc::channel(self.0.publisher_inbox);
        let (intake, intake_inbox) = mpsc::channel(INTAKE_INBOX);
        let (recorder, recorder_inbox) = mpsc::channel(RECORDER_INBOX);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let recorded = CancellationToken::new();
        let intake_owner = self.register(Inbox::Intake(intake.clone()));
        let links = Arc::new(Links {
            publisher: publisher.clone(),
            intake,
            recorder,
            questions,
            recorded: recorded.clone(),
        });
        all.insert(vhost.clone(), links.clone());
        drop(all);
        let inboxes = LinkInboxes {
            publisher: publisher_inbox,
            intake: intake_inbox,
            recorder: recorder_inbox,
            questions: asked,
            recorded,
            intake_owner,
            to_publisher: publisher,
        };
        (self.0.open)(self, vhost, inboxes);
        links
    }

    pub(super) fn settled(&self, owner: Owner, outcomes: Vec<(Ticket, Outcome)>) {
        match self.inbox(owner) {
            Some(Inbox::Session(inbox)) => {
                put(&inbox, Box::new(session::Input::Settled(outcomes)));
            }
            Some(Inbox::Intake(inbox)) => put(&inbox, intake::Input::Settled(outcomes)),
            Some(Inbox::Walk(inbox)) => put(&inbox, walk::Input::Settled(outcomes)),
            None => {}
        }
    }

    pub(super) fn to_session(&self, owner: Owner, input: session::Input) {
        if let Some(Inbox::Session(inbox)) = self.inbox(owner) {
            put(&inbox, Box::new(input));
        }
    }

    pub(super) fn to_intake(&self, owner: Owner, input: intake::Input) {
        if let Some(Inbox::Intake(inbox)) = self.inbox(owner) {
            put(&inbox, input);
        }
    }

    /// `None`: the session has ended, and needs no answer.
    fn inbox(&self, owner: Owner) -> Option<Inbox> {
        lock(&self.0.owners).get(&owner).cloned()
    }
}

/// Always fits: each answer belongs to an open request of its receiver.
pub(super) fn put<I>(inbox: &mpsc::Sender<I>, input: I) {
    if let Err(TrySendError::Full(_)) = inbox.try_send(input) {
        error!("an inbox is smaller than what its machine is owed");
        debug_assert!(false, "an inbox is smaller than what its machine is owed");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
