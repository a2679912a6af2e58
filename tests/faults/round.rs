//! One round: load, a fault at its moment, and the count of what is where in the end, read out at the broker itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::client::{Came, Client};
use super::flood::{Flooded, PAUSE};
use super::lab::{Fallible, Node};
use super::load::{Source, source_and_number};
use super::operator::{Moved, REDRIVEN};
use super::plan::{Fault, Plan};
use super::retries::spread;
use super::seen::Seen;
use super::stage::{INTAKE, PARKED, Stage};

/// After the fault is healed: until everything has arrived. A dead letter that an `at-least-once` queue handed to a queue which was deleted then
/// is handed over again after three minutes (`dead_letter_worker_publisher_confirm_timeout`), and so is what was on its way when the broker stopped.
const DEADLINE: Duration = Duration::from_secs(300);
/// At the end: until what had no ack is in its queue again.
const RETURNED: Duration = Duration::from_secs(60);
/// Without an arrival, and with nothing left to do for anybody: nothing more will come.
const QUIET: Duration = Duration::from_secs(2);
/// So many deliveries at most without an ack.
const SOME: u32 = 500;

/// What a round found.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Confirmed by the broker when they were published.
    pub messages: usize,
    /// Published, and never confirmed: they may be there or not.
    pub unknown: usize,
    /// Confirmed, and nowhere.
    pub lost: usize,
    /// The same, but RabbitMQ itself may lose them: by name.
    pub apart: BTreeMap<&'static str, usize>,
    /// Confirmed and nowhere, of those that never were the proxy's; and how many there were.
    pub native_lost: usize,
    pub native: usize,
    /// Still in the source or in the intake queue, where nothing should be any more.
    pub stuck: usize,
    pub parked: usize,
    /// Of these, those whose targets were there all the time.
    pub parked_without_cause: usize,
    /// More than once.
    pub duplicated: usize,
    /// Arrived behind one that was published later to the same source.
    pub inverted: usize,
    /// Declares that were refused on the way.
    pub refused: usize,
    /// Moved by an operator, if there was one.
    pub redriven: Option<Moved>,
    /// Removed by him.
    pub purged: usize,
    /// Deliveries of messages that had come back, and those of which nothing can be said.
    pub back: usize,
    pub unjudged: usize,
    /// Of these, those that were taken back from their consumer.
    pub taken_back: usize,
    /// How late each was whose publish had a delay, where nothing is held.
    pub late: Vec<Duration>,
    /// Those that came before their time, or too often.
    pub early: usize,
    pub over: usize,
    /// By clients that the fault does not concern.
    pub flooded: Option<Flooded>,
    /// All else that must not be.
    pub problems: Vec<String>,
}

/// Where numbers were found, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Found {
    arrived: BTreeMap<String, Vec<usize>>,
    parked: usize,
}

/// Carries out one.
pub(crate) async fn run(
    node: &Arc<Node>,
    (plan, sources): (Plan, Vec<Source>),
    logs: &Path,
) -> Fallible<Tally> {
    let vhost = plan.vhost();
    let tally = play(node, plan, sources, logs).await?;
    node.clear_vhost(&vhost).await?;
    Ok(tally)
}

async fn play(node: &Arc<Node>, plan: Plan, sources: Vec<Source>, logs: &Path) -> Fallible<Tally> {
    let mut stage = Stage::open(node, plan, sources, logs).await?;
    let moment = if stage.plan.fault == Fault::ProxyTerminated {
        0
    } else {
        stage.plan.moment
    };
    stage.until_done(moment).await?;
    stage.strike().await?;
    stage.heal();

    let mut found = Found::default();
    let mut in_time = arrivals(&mut stage, &mut found).await?;
    let mut problems = Vec::new();
    let flooded = stage.end_flood().await.unwrap_or_else(|problem| {
        problems.push(format!("a flood: {problem}"));
        None
    });
    let redriven = stage.end_redrives().await.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    // What the last of them sent to a source dies there once more.
    if redriven.is_some_and(|moved| moved.to_source > 0) {
        in_time &= arrivals(&mut stage, &mut found).await?;
    }
    stage.end_load().await?;
    let seen = Seen::of(&stage).await;
    for proxy in &mut stage.proxies {
        problems.extend(proxy.stop().await.err());
    }
    let mut tally = read_out(&stage, &mut found).await?;
    tally.problems.extend(problems);
    (tally.flooded, tally.redriven) = (flooded, redriven);
    seen.waits(&stage, &mut tally);
    seen.duplicates(&stage, &found, &mut tally);
    if let Some(Flooded { gap, own, .. }) = flooded.filter(|flooded| flooded.own > PAUSE) {
        tally.problems.push(format!(
            "a flood that it does not concern stood still for {gap:?}; for {own:?} while the broker did not"
        ));
    }
    if tally.parked > 0 && stage.plan.fault.parks_nothing() {
        tally.parked_without_cause = tally.parked;
        let parked = format!("{} parked although their targets were there", tally.parked);
        tally.problems.push(parked);
    }
    if tally.messages == 0 {
        tally.problems.push("nothing was confirmed".to_owned());
    }
    if !in_time {
        tally
            .problems
            .push(format!("not all has ended after {DEADLINE:?}"));
    }
    let panics: usize = stage.proxies.iter().map(|proxy| proxy.panics()).sum();
    if panics > 0 {
        tally.problems.push(format!("{panics} panics"));
    }
    if tally.is_good() {
        for proxy in &stage.proxies {
            let _ = std::fs::remove_file(proxy.log());
        }
    }
    Ok(tally)
}

/// Reads targets and parking until all that was confirmed has come, or nothing can come any more. Returns whether either was so in time.
async fn arrivals(stage: &mut Stage, found: &mut Found) -> Fallible<bool> {
    let end = Instant::now() + DEADLINE;
    let mut last = Instant::now();
    let (mut client, mut in_time) = (None, false);
    while Instant::now() < end {
        let reader = match &mut client {
            Some(client) => client,
            // Parking may not be there again.
            None => match reader(stage).await {
                Ok(opened) => {
                    last = Instant::now();
                    client.insert(opened)
                }
                Err(_) => {
                    stage.rest(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        match tokio::time::timeout(Duration::from_millis(50), reader.coming()).await {
            Ok(Ok(Came::Delivery {
                queue, tag, body, ..
            })) => {
                found.note(&queue, &body)?;
                reader.ack_all(tag).await?;
                last = Instant::now();
                continue;
            }
            Ok(came) => return Err(format!("while reading: {came:?}")),
            Err(_) => (),
        }
        if !stage.is_published() {
            continue;
        }
        if found.has_all(stage) || last.elapsed() > QUIET && is_idle(stage).await? {
            in_time = true;
            break;
        }
    }
    if let Some(client) = client {
        client.close().await;
    }
    Ok(in_time)
}

async fn reader(stage: &Stage) -> Fallible<Client> {
    let mut client = stage.direct().await?;
    for source in &stage.sources {
        client.ready(&source.target).await?;
    }
    for queue in [PARKED, REDRIVEN] {
        client.ready(queue).await?;
    }
    for source in &stage.sources {
        // What an operator sends on comes from there. One redrive after another would empty a full target too slowly.
        let comes_by_itself = !stage.plan.redrives || stage.plan.fault == Fault::TargetFull;
        if comes_by_itself || source.is_native {
            client.consume(&source.target, false).await?;
        }
    }
    for queue in [PARKED, REDRIVEN] {
        client.consume(queue, false).await?;
    }
    Ok(client)
}

/// Nothing is in work anywhere. Asked twice: a message that is returned goes round, and may be a step ahead of the one who asks.
async fn is_idle(stage: &Stage) -> Fallible<bool> {
    Ok(seems_idle(stage).await? && seems_idle(stage).await?)
}

async fn seems_idle(stage: &Stage) -> Fallible<bool> {
    // A queue that is being recovered has no number to tell.
    let elsewhere = [stage.away().await, stage.in_queue(INTAKE).await];
    if stage.withheld().await > 0 || elsewhere != [Ok(0), Ok(0)] {
        return Ok(false);
    }
    let mut direct = stage.direct().await?;
    for source in &stage.sources {
        let left = match source.kind {
            "quorum" => stage.in_queue(&source.name).await.unwrap_or(usize::MAX),
            _ => direct.ready(&source.name).await? as usize,
        };
        if left > source.keeps() || source.ledger.held.load(Relaxed) > 0 {
            return Ok(false);
        }
    }
    direct.close().await;
    Ok(true)
}

/// Empties all queues, and counts: what arrived late counts as found.
async fn read_out(stage: &Stage, found: &mut Found) -> Fallible<Tally> {
    // In sources and intake.
    let mut left = Found::default();
    let begun = Instant::now();
    loop {
        for source in &stage.sources {
            empty(stage, &source.target, found).await?;
            empty(stage, &source.name, &mut left).await?;
        }
        for queue in [PARKED, REDRIVEN] {
            empty(stage, queue, found).await?;
        }
        empty(stage, INTAKE, &mut left).await?;
        let tally = count(stage, found, &left);
        // What had no ack returns to its queue a moment after its consumer has ended. What may be lost is not waited for so long.
        let patience = if tally.lost > 0 {
            RETURNED
        } else if tally.native_lost > 0 || !tally.apart.is_empty() {
            QUIET
        } else {
            return Ok(tally);
        };
        if begun.elapsed() > patience {
            return Ok(tally);
        }
        stage.rest(Duration::from_millis(100)).await;
    }
}

/// Reads what a queue has now. By a consumer: a queue with a single active one takes no `basic.get`. With acks: to a consumer without them the queue hands
/// what comes back to it meanwhile, too, and when that closes, the broker throws away what its channel has not sent yet. With some acks in between:
/// a quorum queue hands out 2,000 messages without one.
async fn empty(stage: &Stage, queue: &str, found: &mut Found) -> Fallible<()> {
    let mut direct = stage.direct().await?;
    let ready = direct.ready(queue).await?;
    if ready > 0 {
        direct.consume(queue, false).await?;
    }
    for read in 1..=ready {
        match direct.next().await? {
            Came::Delivery { tag, body, .. } => {
                found.note(queue, &body)?;
                if read == ready || read % SOME == 0 {
                    direct.ack_all(tag).await?;
                }
            }
            other => return Err(format!("while reading {queue}: {other:?}")),
        }
    }
    direct.close().await;
    Ok(())
}

fn count(stage: &Stage, found: &Found, left: &Found) -> Tally {
    let mut tally = Tally {
        parked: found.parked,
        ..Tally::default()
    };
    for source in &stage.sources {
        let confirmed: Vec<usize> = source.ledger.confirmed().clone();
        let (seen, kept) = (found.seen(source), left.seen(source));
        let is_nowhere = |number: &&usize| !seen.contains(number) && !kept.contains(number);
        let missing: Vec<usize> = confirmed.iter().filter(is_nowhere).copied().collect();
        if source.is_native {
            tally.native += confirmed.len();
            tally.native_lost += missing.len();
            continue;
        }
        let mut lost = Vec::new();
        let mut purged = 0;
        let class = stage.plan.fault.may_lose(source);
        for number in missing {
            match class {
                _ if source.ledger.purged().may_have(number) => purged += 1,
                Some(class) if source.ledger.is_before(number) => {
                    *tally.apart.entry(class).or_default() += 1
                }
                _ => lost.push(number),
            }
        }
        if class.is_none() && !source.ledger.purged().explains(purged) {
            tally.problems.push(format!(
                "{source}: {purged} of those that may be purged are gone: {:?}",
                source.ledger.purged()
            ));
        }
        tally.purged += purged;
        if !lost.is_empty() {
            tally.lost += lost.len();
            let known = lost
                .iter()
                .filter(|number| source.ledger.deliveries().has(**number))
                .count();
            tally.problems.push(format!(
                "{source} {} {}: {known} of those lost were rejected: {lost:?}",
                source.exchange, source.target_kind
            ));
        }
        tally.messages += confirmed.len();
        tally.unknown += source.number - confirmed.len();
        let waiting = confirmed
            .iter()
            .filter(|number| kept.contains(number) && !seen.contains(number))
            .count();
        if waiting > source.keeps() {
            tally.stuck += waiting - source.keeps();
            tally.problems.push(format!("{source}: {waiting} stuck"));
        }
        let arrived = found.of(source);
        tally.duplicated += arrived.len() - seen.len() + seen.intersection(&kept).count();
        tally.inverted += inversions(arrived);
        tally.refused += source.ledger.refused.load(Relaxed);
    }
    tally
}

/// How many came behind one with a higher number, each counted where it came first.
fn inversions(arrived: &[usize]) -> usize {
    let (mut seen, mut highest, mut inverted) = (BTreeSet::new(), 0, 0);
    for number in arrived {
        if seen.insert(number) {
            inverted += usize::from(*number < highest);
            highest = highest.max(*number);
        }
    }
    inverted
}

// === impl Found ===

impl Found {
    fn note(&mut self, queue: &str, body: &[u8]) -> Fallible<()> {
        let Some((source, number)) = source_and_number(body) else {
            return Err(format!("in {queue}: {}", body.escape_ascii()));
        };
        self.arrived
            .entry(source.to_owned())
            .or_default()
            .push(number);
        self.parked += usize::from(queue == PARKED);
        Ok(())
    }

    pub(crate) fn of(&self, source: &Source) -> &[usize] {
        self.arrived.get(&source.name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn seen(&self, source: &Source) -> BTreeSet<usize> {
        self.of(source).iter().copied().collect()
    }

    /// All that was confirmed, but what may stay where it is.
    fn has_all(&self, stage: &Stage) -> bool {
        stage.sources.iter().all(|source| {
            let seen = self.seen(source);
            let confirmed = source.ledger.confirmed();
            let missing = confirmed
                .iter()
                .filter(|number| {
                    !seen.contains(number) && !source.ledger.purged().may_have(**number)
                })
                .count();
            missing <= source.keeps()
        })
    }
}

// === impl Tally ===

impl Tally {
    pub(crate) fn is_good(&self) -> bool {
        self.lost == 0 && self.stuck == 0 && self.problems.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            messages,
            unknown,
            lost,
            duplicated,
            inverted,
            parked,
            stuck,
            refused,
            ..
        } = self;
        write!(
            f,
            "messages={messages} unknown={unknown} lost={lost} stuck={stuck}"
        )?;
        write!(
            f,
            " duplicated={duplicated} inverted={inverted} parked={parked} refused={refused}"
        )?;
        for (class, number) in &self.apart {
            write!(f, " apart({class})={number}")?;
        }
        if let Some(redriven) = self.redriven {
            write!(f, " {redriven}")?;
        }
        if self.back > 0 {
            let Tally {
                back,
                unjudged,
                taken_back,
                early,
                over,
                ..
            } = self;
            write!(
                f,
                " back={back} unjudged={unjudged} taken_back={taken_back} early={early} over={over}"
            )?;
        }
        if !self.late.is_empty() {
            let (delayed, late) = (self.late.len(), spread(self.late.clone()));
            write!(f, " delayed={delayed} late={late}")?;
        }
        if let Some(flooded) = self.flooded {
            write!(f, " {flooded}")?;
        }
        if self.native > 0 {
            write!(f, " native_lost={}/{}", self.native_lost, self.native)?;
        }
        Ok(())
    }
}
