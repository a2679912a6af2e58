//! Metrics with labels, and a bounded set of names for them: a name from a client must never become a series of its own without a bound.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::family::Family;

use crate::amqp::ids::{ShortStr, Vhost};

/// Further queues share [`OTHER`].
pub(super) const MAX_QUEUES: usize = 200;
const MAX_VHOSTS: usize = 200;
const OTHER: &str = "_other";

#[derive(Clone, Debug)]
pub enum Label {
    Word(&'static str),
    Name(Arc<str>),
}

#[derive(Clone, Debug)]
pub struct Series<M, const N: usize> {
    labels: [&'static str; N],
    family: Family<[(&'static str, Label); N], M>,
}

/// Vhosts and queues seen so far; the first ones get names.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    vhosts: HashMap<Vhost, (Label, HashMap<ShortStr, Label>)>,
    queues: usize,
}

/// A copy: a slice of a read buffer must not live as long as the process.
fn own(name: &ShortStr) -> ShortStr {
    ShortStr::copy(name.as_bytes()).unwrap_or_default()
}

// === impl Label ===

impl Label {
    fn as_str(&self) -> &str {
        match self {
            Label::Word(word) => word,
            Label::Name(name) => name,
        }
    }
}

impl From<&'static str> for Label {
    fn from(word: &'static str) -> Label {
        Label::Word(word)
    }
}

impl From<String> for Label {
    fn from(name: String) -> Label {
        Label::Name(name.into())
    }
}

impl From<&ShortStr> for Label {
    fn from(name: &ShortStr) -> Label {
        name.to_string().into()
    }
}

impl PartialEq for Label {
    fn eq(&self, other: &Label) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Label {}

impl Hash for Label {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), fmt::Error> {
        EncodeLabelValue::encode(&self.as_str(), encoder)
    }
}

// === impl Series ===

impl<M: Clone + Default, const N: usize> Series<M, N> {
    pub(super) fn new(labels: [&'static str; N]) -> Self {
        Series {
            labels,
            family: Family::default(),
        }
    }

    pub(super) fn family(&self) -> Family<[(&'static str, Label); N], M> {
        self.family.clone()
    }

    pub fn with(&self, values: [Label; N]) -> M {
        self.family.get_or_create_owned(&self.key(values))
    }

    pub fn get(&self, values: [Label; N]) -> Option<M> {
        self.family
            .get(&self.key(values))
            .map(|metric| metric.clone())
    }

    pub fn remove(&self, values: [Label; N]) {
        self.family.remove(&self.key(values));
    }

    fn key(&self, values: [Label; N]) -> [(&'static str, Label); N] {
        let mut labels = self.labels.iter();
        values.map(|value| (*labels.next().unwrap_or(&""), value))
    }
}

// === impl Names ===

impl Names {
    pub(super) fn vhost(&self, vhost: &Vhost) -> Label {
        self.both(vhost, None).0
    }

    pub(super) fn queue(&self, vhost: &Vhost, queue: &ShortStr) -> (Label, Label) {
        self.both(vhost, Some(queue))
    }

    /// Two look-ups and no allocation for known names: called for every dead letter.
    fn both(&self, vhost: &Vhost, queue: Option<&ShortStr>) -> (Label, Label) {
        let other = || Label::Word(OTHER);
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { vhosts, queues } = &mut *seen;
        if !vhosts.contains_key(vhost) {
            if vhosts.len() >= MAX_VHOSTS {
                return (other(), other());
            }
            vhosts.insert(own(vhost), (Label::from(vhost), HashMap::new()));
        }
        let (vhost, named) = &mut vhosts.get_mut(vhost).expect("inserted above");
        let Some(queue) = queue else {
            return (vhost.clone(), other());
        };
        if let Some(name) = named.get(queue) {
            return (vhost.clone(), name.clone());
        }
        if *queues >= MAX_QUEUES {
            return (vhost.clone(), other());
        }
        *queues += 1;
        let name = Label::from(queue);
        named.insert(own(queue), name.clone());
        (vhost.clone(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;

    #[test]
    fn queues_beyond_the_bound_share_one_name() {
        let names = Names::default();
        let label = |vhost, queue: &str| {
            let (_, label) = names.queue(&name(vhost), &name(queue));
            label.as_str().to_owned()
        };
        for number in 0..MAX_QUEUES {
            let queue = format!("q{number}");
            assert_eq!(label("/", &queue), queue);
        }
        assert_eq!(label("/", "one-more"), OTHER);
        assert_eq!(label("another-vhost", "q0"), OTHER);
        assert_eq!(label("/", "q0"), "q0", "a name that was given stays");
    }
}
