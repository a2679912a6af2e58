//! What the commands say: as tables or as JSON. Apart because it needs no broker.

use serde::Serialize;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::columns::aligned;
use crate::plain;

mod sources;

pub(super) use sources::Sources;

/// What waits for a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Listing {
    pub vhosts: Vec<OfVhost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OfVhost {
    vhost: String,
    pub(super) delay_queues: Vec<DelayQueue>,
    /// For which queues, as far as it was looked at.
    pub(super) queues: Vec<Source>,
    /// Where what is over waits for a proxy, if there ever was one.
    pub(super) intake: Option<Intake>,
    /// Delay queues that are not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct DelayQueue {
    pub(super) queue: String,
    pub(super) delay_ms: u64,
    /// Messages whose time is not over.
    pub(super) waiting: u64,
    /// Messages that the broker has not got rid of yet, if that is known.
    pub(super) leaving: Option<u64>,
    /// Messages that the other table counts.
    pub(super) looked_at: u64,
    /// Then none is looked at.
    pub(super) has_delivery_limit: bool,
}

/// What waits for a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Source {
    /// `None`: no proxy has sent it there.
    queue: Option<String>,
    messages: u64,
    /// When the first one comes back, and the last one, in RFC 3339.
    earliest: Option<String>,
    latest: Option<String>,
    /// How often they have come back then: the least, and the most.
    attempts: Option<[u64; 2]>,
    /// Those that should be back by now.
    overdue: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Intake {
    pub(super) queue: String,
    /// Of all kinds: dead letters too.
    pub(super) messages: u64,
    pub(super) proxies: u64,
}

/// What was let go, or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Releases {
    #[serde(skip)]
    removes: bool,
    pub(super) delay_queues: Vec<Released>,
    notes: Vec<String>,
}

/// What was let go of a delay queue, or removed from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Released {
    pub(super) vhost: String,
    pub(super) queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) released: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<u64>,
    pub(super) put_back: u64,
    /// There were more than can be put aside at once.
    pub(super) cut_short: bool,
}

// === impl Listing ===

impl Listing {
    /// One object.
    pub fn json(&self) -> String {
        json(self)
    }

    /// For people: where messages wait, for which queues, and what is odd about it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut delays = vec![headings([
            "VHOST",
            "DELAY QUEUE",
            "WAITING",
            "LEAVING",
            "LOOKED AT",
        ])];
        let mut queues = vec![headings([
            "VHOST", "QUEUE", "MESSAGES", "EARLIEST", "LATEST", "ATTEMPTS", "OVERDUE",
        ])];
        for of in &self.vhosts {
            delays.extend(of.delay_queues.iter().map(|queue| queue.row(&of.vhost)));
            queues.extend(of.queues.iter().map(|queue| queue.row(&of.vhost)));
        }
        let notes: Vec<_> = self.vhosts.iter().flat_map(OfVhost::notes).collect();
        text += &match delays.len() {
            1 => "no delay queue is there\n".to_owned(),
            _ => aligned(&delays),
        };
        if queues.len() > 1 {
            text += "\n";
            text += &aligned(&queues);
        }
        text + &paragraph(&notes)
    }
}

// === impl OfVhost ===

impl OfVhost {
    pub(super) fn new(vhost: &Vhost) -> OfVhost {
        OfVhost {
            vhost: vhost.to_string(),
            delay_queues: Vec::new(),
            queues: Vec::new(),
            intake: None,
            missing: Vec::new(),
        }
    }

    fn notes(&self) -> Vec<String> {
        let vhost = &self.vhost;
        let mut notes: Vec<_> = self
            .missing
            .iter()
            .map(|queue| not_there(vhost, queue))
            .collect();
        for DelayQueue { queue, .. } in self.delay_queues.iter().filter(|it| it.has_delivery_limit)
        {
            notes.push(format!(
                "{queue} in vhost {vhost} has a delivery limit: its messages were not looked at"
            ));
        }
        if let Some(Intake {
            queue,
            messages,
            proxies: 0,
        }) = &self.intake
        {
            notes.push(format!(
                "no proxy takes messages from {queue} in vhost {vhost}, where {messages} wait; what comes back waits there"
            ));
        }
        notes
    }
}

// === impl DelayQueue ===

impl DelayQueue {
    fn row(&self, vhost: &str) -> [String; 5] {
        [
            vhost.to_owned(),
            self.queue.clone(),
            self.waiting.to_string(),
            or_dash(self.leaving),
            self.looked_at.to_string(),
        ]
    }
}

// === impl Source ===

impl Source {
    fn row(&self, vhost: &str) -> [String; 7] {
        [
            vhost.to_owned(),
            self.queue.clone().unwrap_or("(of no proxy)".to_owned()),
            self.messages.to_string(),
            or_dash(self.earliest.as_ref()),
            or_dash(self.latest.as_ref()),
            match self.attempts {
                None => "-".to_owned(),
                Some([least, most]) if least == most => least.to_string(),
                Some([least, most]) => format!("{least} to {most}"),
            },
            self.overdue.to_string(),
        ]
    }
}

// === impl Releases ===

impl Releases {
    pub(super) fn new(removes: bool) -> Releases {
        Releases {
            removes,
            ..Releases::default()
        }
    }

    pub(super) fn missing(&mut self, vhost: &Vhost, queue: &ShortStr) {
        self.notes.push(not_there(vhost, queue));
    }

    pub(super) fn without_proxy(&mut self, vhost: &Vhost, intake: &ShortStr) {
        self.notes.push(format!(
            "no proxy takes messages from {intake} in vhost {vhost}: what was released waits there until one does"
        ));
    }

    /// One object.
    pub fn json(&self) -> String {
        json(self)
    }

    pub fn text(&self) -> String {
        let done = if self.removes { "removed" } else { "released" };
        let count = |of: &Released| of.released.or(of.removed).unwrap_or(0);
        let heading = done.to_uppercase();
        let mut rows = vec![headings(["VHOST", "DELAY QUEUE", &heading, "PUT BACK"])];
        rows.extend(self.delay_queues.iter().map(|released| {
            [
                released.vhost.clone(),
                released.queue.clone(),
                count(released).to_string(),
                released.put_back.to_string(),
            ]
        }));
        let cut_short = self.delay_queues.iter().filter(|it| it.cut_short);
        let cut_short = cut_short.map(|Released { vhost, queue, .. }| {
            format!("{queue} in vhost {vhost} was not looked through to its end: too many messages of other queues are in front")
        });
        let notes: Vec<_> = self.notes.iter().cloned().chain(cut_short).collect();
        let total: u64 = self.delay_queues.iter().map(count).sum();
        let mut text = match rows.len() {
            1 => String::new(),
            _ => aligned(&rows) + "\n",
        };
        text += &format!("{total} {done}\n");
        text + &paragraph(&notes)
    }
}

fn headings<const N: usize>(names: [&str; N]) -> [String; N] {
    names.map(str::to_owned)
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn not_there(vhost: impl std::fmt::Display, queue: impl std::fmt::Display) -> String {
    format!("there is no queue {queue} in vhost {vhost}")
}

fn paragraph(notes: &[String]) -> String {
    let mut text = String::new();
    for note in notes {
        text += &format!("\n{}", plain::line(note));
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    text
}

/// It has neither maps with odd keys nor numbers that JSON does not know.
fn json(of: &impl Serialize) -> String {
    plain::json(&serde_json::to_string(of).unwrap_or_default()) + "\n"
}

#[cfg(test)]
mod tests;
