//! A crash at each step, and what the next one makes of it: the queue is there with its bindings, as it was or anew, and nothing else is left.

use super::broker::Broker;
use super::*;
use crate::machine::Machine;

const LEADER: usize = 0;
const FOLLOWER: usize = 1;
const FINISHER: usize = 2;

/// A machine, and the sessions of its proxy, who do at once what they are told.
struct Party<M: Machine> {
    rig: Rig<M>,
    connection: usize,
    tag: u64,
    holds: bool,
    ended: Option<Result<Altered, Failure>>,
}

impl<M: Machine<Input = Input, Output = Output>> Party<M> {
    fn new(machine: M, connection: usize) -> Party<M> {
        let mut rig = Rig::new(machine);
        rig.up("4.3.6");
        Party {
            rig,
            connection,
            tag: 0,
            holds: false,
            ended: None,
        }
    }

    /// Up to so many frames. False: there are more.
    fn turn(&mut self, broker: &mut Broker, budget: &mut usize) -> bool {
        for sent in self.rig.sent() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let answer = broker.answer(self.connection, &sent);
            self.rig.broker(&answer);
            self.obey();
        }
        true
    }

    fn obey(&mut self) {
        let out = std::mem::take(&mut self.rig.fx.out);
        self.ended = self.ended.take().or(out.ended);
        for told in out.swap {
            self.holds = !matches!(told, Told::Over(_));
            self.rig.input(Input::Told(BTreeSet::new()));
            if told == Told::Cancel {
                self.rig.input(Input::Paused);
            }
        }
        if !self.rig.fx.out.swap.is_empty() {
            self.obey();
        }
    }

    fn hear(&mut self, content: &Content) {
        self.tag += 1;
        self.rig.broker(&delivered(self.tag, content));
        self.obey();
    }

    fn pass(&mut self, millis: u64) {
        self.rig.pass(millis);
        self.obey();
    }
}

fn follower(order: Order) -> Party<Follower> {
    let mut settings = settings(Task::Follow, false);
    settings.order = order;
    Party::new(Follower::new(settings, false, Now::default()), FOLLOWER)
}

/// Until it has ended, or has sent so many frames. Returns whether it has ended.
fn run(
    broker: &mut Broker,
    leader: &mut Party<Alteration>,
    (other, follows): (&mut Option<Party<Follower>>, bool),
    mut budget: usize,
) -> bool {
    for _ in 0..2000 {
        let mut plenty = usize::MAX;
        if follows && other.is_none() && broker.has("dlx-proxy.altering/") {
            *other = Some(follower(leader.rig.machine.settings.order.clone()));
        }
        if !leader.turn(broker, &mut budget) {
            return false;
        }
        if let Some(other) = other {
            other.turn(broker, &mut plenty);
        }
        for (connection, content) in std::mem::take(&mut broker.mail) {
            match (connection, &mut *other) {
                (FOLLOWER, Some(other)) => other.hear(&content),
                (FOLLOWER, None) => {}
                _ => leader.hear(&content),
            }
        }
        if leader.ended.is_some() {
            return true;
        }
        leader.pass(10);
        if let Some(other) = other {
            other.pass(10);
        }
    }
    panic!("it does not end");
}

/// The broker does what of it came to it; then whoever finds the order finishes it.
fn crash_after(
    frames: usize,
    (quorum, follows, deleted_exchange): (bool, bool, bool),
    backlog: u64,
) -> bool {
    let mut broker = Broker::new(backlog);
    let others = usize::from(follows);
    let wait = Duration::from_secs(10);
    let altering = alteration(
        Task::Alter {
            wait,
            others,
            backlog: Backlog {
                most: 10,
                window: 10,
            },
        },
        quorum,
    );
    let mut leader = Party::new(altering, LEADER);
    let mut other = None;
    let ended = run(&mut broker, &mut leader, (&mut other, follows), frames);
    if let Some(ended) = &leader.ended {
        let moved = ended.as_ref().map(|altered| altered.moved);
        assert_eq!(moved, Ok(backlog));
    }
    broker.ends(LEADER);
    broker.deleted_exchange = deleted_exchange;
    if let Some(other) = &mut other {
        for _ in 0..500 {
            other.pass(10);
            other.turn(&mut broker, &mut usize::MAX.clone());
        }
        assert!(other.ended.is_some(), "silence ends it");
        let finishes = matches!(other.ended, Some(Err(Failure::Link(_))));
        assert!(!other.holds || finishes, "its shell finishes it");
    }
    if broker.has("dlx-proxy.altering/") {
        let mut queues = broker.queues.values();
        let was_bound = queues.any(|queue| queue.binds(b"dlx-proxy.delay"));
        let mut finisher = Party::new(alteration(Task::Finish, quorum), FINISHER);
        assert!(run(
            &mut broker,
            &mut finisher,
            (&mut None, false),
            usize::MAX
        ));
        match was_bound {
            true => assert!(matches!(finisher.ended, Some(Ok(_))), "after {frames}"),
            // Before anything was changed. It may be found long after.
            false => assert_eq!(finisher.ended, Some(Err(Failure::Finished))),
        }
    }
    broker.ends(FOLLOWER);
    broker.ends(FINISHER);
    let [(name, queue)] = &broker.queues.iter().collect::<Vec<_>>()[..] else {
        panic!("after {frames}: {:?}", broker.queues);
    };
    assert_eq!(name.as_slice(), b"q", "after {frames}");
    let forms = [order(false).old, order(false).new].map(|of| table(&of).expect("a table"));
    assert!(forms.contains(&queue.arguments), "after {frames}");
    let mut kept: Vec<_> = queue.messages.iter().map(|of| of.body.clone()).collect();
    if !ended {
        // What was on its way may be there twice, and behind what was not.
        kept.sort();
        kept.dedup();
    }
    let all: Vec<_> = (0..backlog).map(|of| Bytes::from(of.to_string())).collect();
    assert_eq!(kept, all, "after {frames}");
    if !deleted_exchange {
        let bindings = [(b"x".to_vec(), b"key".to_vec())].into();
        assert_eq!(queue.bindings, bindings, "after {frames}");
    }
    ended
}

#[test]
fn a_crash_at_each_step_leaves_a_whole_queue() {
    for backlog in [0, 3] {
        for kind in 0..8 {
            let kind = (kind & 1 > 0, kind & 2 > 0, kind & 4 > 0);
            let ends = |frames: &usize| crash_after(*frames, kind, backlog);
            let steps = (0..200).find(ends).expect("an end");
            assert!(steps > 15, "{steps} steps");
        }
    }
}
