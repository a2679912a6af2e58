//! When has all come that a step brings? Directly: when nothing happens any more. Through the proxy: when it stands as it did directly.

use std::time::{Duration, Instant};

use super::client::Client;
use super::run::{Record, Run};
use super::script::{Action, Counts, Step};
use super::value::Bytes;

/// For so long nothing happens any more. A queue takes back what was unacked some time after the close is confirmed.
pub(crate) const QUIET: Duration = Duration::from_millis(60);

/// Before something is made to which a dead letter may lead. The one that is still between two queues, which no count shows, would find it, and did
/// not in the direct run.
const BETWEEN_QUEUES: Duration = Duration::from_millis(200);

/// The rest of a patient run: a difference that goes away with it is one of time.
const PATIENT: Duration = Duration::from_millis(500);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// For so long a run through the proxy may stand still somewhere else than the direct one stood.
const SETTLING: Duration = Duration::from_secs(5);

/// What does not come to rest at all is left after this.
const RESTLESS: Duration = Duration::from_secs(30);

/// What tells whether something has happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Standing {
    /// Frames that came, by connection.
    frames: Vec<(String, usize)>,
    queues: Vec<Option<Counts>>,
}

impl Run<'_> {
    /// Until it stands as it did in the other run, or, if there is none, until nothing happens any more.
    pub(crate) fn rest(&mut self) {
        // Once it has gone another way there is nothing to wait for.
        let begun = |other: &&Record| other.rests.starts_with(&self.record.rests);
        let other = self.other.filter(begun);
        let wanted = other.and_then(|other| other.rests.get(self.record.rests.len()));
        let quiet = match wanted {
            _ if self.way.patient => PATIENT,
            None => QUIET,
            Some(_) if self.makes_a_way() => BETWEEN_QUEUES,
            Some(_) => QUIET / 4,
        };
        self.clients.iter().for_each(|(_, client)| client.rest());
        let standing = settled(|| self.standing(), wanted, quiet);
        self.record.rests.push(standing);
    }

    /// Whether the next step declares or binds.
    fn makes_a_way(&self) -> bool {
        let next = self.script.steps.get(self.step);
        let Some(Step::Client(_, Action::Method(call))) = next else {
            return false;
        };
        let name = &call.method.name;
        name.ends_with(".declare") || name.ends_with(".bind")
    }

    fn standing(&self) -> Standing {
        let frames = |(name, client): &(String, Client)| (name.clone(), client.received().len());
        // Of others nobody has said a word yet. To ask for them would cost the broker a channel each time, and a line in its log.
        let mut queues = self.script.declared_by(self.step, "queue");
        queues.extend(self.names.generated_queues());
        Standing {
            frames: self.clients.iter().map(frames).collect(),
            queues: queues.iter().map(|queue| self.counts(queue)).collect(),
        }
    }

    /// All that the script declares, and those that the server named.
    pub(crate) fn queues(&self) -> Vec<Bytes> {
        let mut queues = self.script.declared("queue");
        queues.extend(self.names.generated_queues());
        queues
    }
}

/// What is seen when it has been the same for so long, and is what is wanted; or when that takes too long. A broker that gets no processor stands
/// still, too, and is no quieter for that: it is asked so often that it has had its turns.
pub(crate) fn settled<T: PartialEq>(see: impl Fn() -> T, wanted: Option<&T>, quiet: Duration) -> T {
    let end = Instant::now() + RESTLESS;
    let (mut seen, mut since, mut looks) = (see(), Instant::now(), 0);
    loop {
        let right = wanted.is_none_or(|wanted| *wanted == seen);
        let enough = if right { quiet } else { SETTLING };
        let often = looks >= quiet.as_millis() / (2 * PAUSE.as_millis());
        if often && since.elapsed() > enough || Instant::now() > end {
            return seen;
        }
        std::thread::sleep(PAUSE);
        let now = see();
        looks += 1;
        if now != seen {
            (seen, since, looks) = (now, Instant::now(), 0);
        }
    }
}
