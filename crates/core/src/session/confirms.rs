//! The confirms of a client's channel whose delayed publishes do not reach the broker: both count publishes, but not the same ones.
//!
//! ```text
//!   client   1 2 3 4 5 6 7        the proxy takes 3 and 6
//!   broker   1 2 . 3 4 . 5        the broker's ack of 3 is the client's 4
//! ```
//! Until the first publish is taken only numbers are counted, and all confirms pass as they are. From then on each confirm of the broker gets the
//! client's number. A `multiple` must not cover a publish that is still open with the proxy: it is told up to there, and one by one behind it.

use std::collections::{BTreeSet, VecDeque};

use super::unacked::bits::{self, Bits};

/// Runs of the broker's numbers. At the bound the client is not read until confirms come.
const MOST_RUNS: usize = 10_000;

/// `basic.ack` or `basic.nack` for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirm {
    pub(super) number: u64,
    pub(super) multiple: bool,
    pub(super) acked: bool,
}

/// Of a channel in confirm mode.
#[derive(Debug, Default)]
pub(super) struct Confirms {
    /// By the client, since `confirm.select`.
    published: u64,
    taken: Option<Box<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Publishes before the first one that was taken: both have the same numbers of them.
    before: u64,
    /// The client's numbers after `before` that are not confirmed.
    open: Bits,
    /// Those of them that the proxy delays.
    ours: BTreeSet<u64>,
    /// From which number of the broker on the client's is larger, and by how much.
    runs: VecDeque<(u64, u64)>,
    /// The client was told of all up to this number.
    told: u64,
}

// === impl Confirms ===

impl Confirms {
    /// The broker gets the client's next publish.
    pub(super) fn passes(&mut self) {
        self.published += 1;
        if let Some(taken) = &mut self.taken {
            bits::set(&mut taken.open, self.published);
        }
    }

    /// The proxy takes the client's next publish. Returns its number.
    pub(super) fn take(&mut self) -> u64 {
        let before = self.published;
        self.published += 1;
        let number = self.published;
        let taken = self.taken.get_or_insert_with(|| {
            Box::new(Taken {
                before,
                ..Taken::default()
            })
        });
        let shift = taken.runs.back().map_or(0, |(_, shift)| *shift);
        let from = number - shift;
        if taken.runs.back().is_some_and(|(last, _)| *last == from) {
            taken.runs.pop_back();
        }
        taken.runs.push_back((from, shift + 1));
        bits::set(&mut taken.open, number);
        taken.ours.insert(number);
        number
    }

    pub(super) fn is_full(&self) -> bool {
        let runs = self.taken.as_ref().map_or(0, |taken| taken.runs.len());
        runs >= MOST_RUNS
    }

    /// A confirm of the broker, as the client's. False: as it is.
    pub(super) fn translate(&mut self, of: Confirm, mut tell: impl FnMut(Confirm)) -> bool {
        let Some(taken) = &mut self.taken else {
            return false;
        };
        let number = taken.number(of.number);
        match of.multiple {
            true => taken.up_to(number, of.acked, &mut tell),
            false => {
                bits::clear(&mut taken.open, number);
                tell(Confirm { number, ..of });
            }
        }
        taken.forget_runs();
        true
    }

    /// The outcome of a publish that the proxy took.
    pub(super) fn settle(&mut self, number: u64, acked: bool) -> Confirm {
        if let Some(taken) = &mut self.taken {
            taken.ours.remove(&number);
            bits::clear(&mut taken.open, number);
            taken.forget_runs();
        }
        Confirm {
            number,
            multiple: false,
            acked,
        }
    }
}

// === impl Taken ===

impl Taken {
    fn number(&self, of_broker: u64) -> u64 {
        let behind = self.runs.partition_point(|(from, _)| *from <= of_broker);
        let run = behind.checked_sub(1).and_then(|at| self.runs.get(at));
        match run.filter(|_| of_broker > self.before) {
            Some((_, shift)) => of_broker + shift,
            None => of_broker,
        }
    }

    fn up_to(&mut self, number: u64, acked: bool, tell: &mut impl FnMut(Confirm)) {
        let first = self.ours.first().copied().filter(|ours| *ours < number);
        let end = first.map_or(number, |ours| ours - 1);
        if end > self.told {
            self.told = end;
            bits::clear_up_to(&mut self.open, end, |_, _| {});
            tell(Confirm {
                number: end,
                multiple: true,
                acked,
            });
        }
        let mut open = Vec::new();
        let words = self.open.range(..=number >> 6);
        open.extend(words.flat_map(|(word, set)| bits::bits(*word, *set)));
        open.retain(|of| *of <= number && !self.ours.contains(of));
        for number in open {
            bits::clear(&mut self.open, number);
            tell(Confirm {
                number,
                multiple: false,
                acked,
            });
        }
    }

    /// Runs that no open publish needs. The last one stays: later publishes need it.
    fn forget_runs(&mut self) {
        let first = bits::first(&self.open).map_or(u64::MAX, |first| first.0);
        while let Some((from, shift)) = self.runs.get(1)
            && from + shift <= first
        {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What happens on a channel: a publish that passes or is taken; a confirm of the n-th open one, of the broker's or ours.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Passes,
        Taken,
        Broker {
            nth: usize,
            multiple: bool,
            acked: bool,
        },
        Ours {
            nth: usize,
            acked: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Passes),
            2 => Just(Step::Taken),
            3 => (0..40usize, any::<bool>(), any::<bool>())
                .prop_map(|(nth, multiple, acked)| Step::Broker { nth, multiple, acked }),
            2 => (0..40usize, any::<bool>()).prop_map(|(nth, acked)| Step::Ours { nth, acked }),
        ];
        prop::collection::vec(step, 0..200)
    }

    /// A client: what it has published and nobody has confirmed, and what it was told.
    #[derive(Default)]
    struct Client {
        open: BTreeSet<u64>,
        told: BTreeMap<u64, bool>,
    }

    impl Client {
        fn hears(&mut self, confirm: Confirm) {
            let first = if confirm.multiple { 0 } else { confirm.number };
            let meant: Vec<u64> = self.open.range(first..=confirm.number).copied().collect();
            assert!(!meant.is_empty() || confirm.multiple, "{confirm:?} twice");
            for number in meant {
                self.open.remove(&number);
                self.told.insert(number, confirm.acked);
            }
        }
    }

    proptest! {
        #[test]
        fn a_client_hears_of_each_publish_once_and_of_the_right_one(steps in steps()) {
            let (mut confirms, mut client) = (Confirms::default(), Client::default());
            // The broker's and our open publishes, with the client's number; and what is true of each.
            let (mut broker, mut ours) = (BTreeMap::new(), Vec::new());
            let (mut published, mut at_broker) = (0, 0);
            let mut truth = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Passes => {
                        confirms.passes();
                        (published, at_broker) = (published + 1, at_broker + 1);
                        client.open.insert(published);
                        broker.insert(at_broker, published);
                    }
                    Step::Taken => {
                        published += 1;
                        prop_assert_eq!(confirms.take(), published);
                        client.open.insert(published);
                        ours.push(published);
                    }
                    Step::Broker { nth, multiple, acked } => {
                        let Some(number) = broker.keys().nth(nth).copied() else { continue };
                        let first = if multiple { 0 } else { number };
                        let meant: Vec<u64> = broker.range(first..=number).map(|(of, _)| *of).collect();
                        for of in meant {
                            truth.insert(broker.remove(&of).unwrap(), acked);
                        }
                        let of = Confirm { number, multiple, acked };
                        if !confirms.translate(of, |confirm| client.hears(confirm)) {
                            client.hears(of);
                        }
                    }
                    Step::Ours { nth, acked } => {
                        if nth >= ours.len() { continue }
                        let number = ours.remove(nth);
                        truth.insert(number, acked);
                        client.hears(confirms.settle(number, acked));
                    }
                }
                prop_assert_eq!(&client.told, &truth);
            }
            // What is open keeps the runs behind it.
            if client.open.is_empty() && let Some(taken) = &confirms.taken {
                prop_assert!(taken.runs.len() <= 1);
            }
        }
    }

    #[test]
    fn before_the_first_one_is_taken_confirms_pass_as_they_are() {
        let mut confirms = Confirms::default();
        confirms.passes();
        let of = Confirm {
            number: 1,
            multiple: true,
            acked: true,
        };
        assert!(!confirms.translate(of, |_| unreachable!()));
    }
}
