//! Targets that refused a parked message, or did not answer: for each, only one message is tried again, after 1, 2, 4 and then every 8 laps.
//! One that is not begun, as it would be in vain, counts too.
//!
//! An exchange may lead to several queues. If one of them is full, the broker refuses the publish, and the others have their copies all the same. So
//! messages that are tried in each lap would fill the others.

use std::collections::BTreeMap;

use crate::amqp::ids::ShortStr;

/// Remembered targets. Others are tried in each pass.
const MOST: usize = 1_000;
/// Maximum passes between two attempts.
const LONGEST: u64 = 8;

pub(super) type Target = (ShortStr, ShortStr);

#[derive(Debug, Default)]
pub(super) struct Resting {
    lap: u64,
    targets: BTreeMap<Target, Rest>,
}

#[derive(Debug)]
struct Rest {
    /// The pass of the next attempt.
    next: u64,
    /// Passes between the last attempt and that one.
    laps: u64,
    /// An attempt was made in this pass.
    tried: bool,
}

// === impl Resting ===

impl Resting {
    /// A pass is over or was skipped: its attempts have an outcome, or never will.
    pub(super) fn lap(&mut self) {
        self.lap += 1;
        for rest in self.targets.values_mut() {
            rest.tried = false;
        }
    }

    /// Whether a message may be published to the target in this pass.
    pub(super) fn may_try(&mut self, target: &Target) -> bool {
        let lap = self.lap;
        self.targets.get_mut(target).is_none_or(|rest| {
            let is_due = lap >= rest.next && !rest.tried;
            rest.tried |= is_due;
            is_due
        })
    }

    pub(super) fn refused(&mut self, target: Target) {
        let is_full = self.targets.len() >= MOST;
        match self.targets.get_mut(&target) {
            // Another one that was on its way when the first was refused.
            Some(rest) if rest.next > self.lap => {}
            Some(rest) => {
                rest.laps = (rest.laps * 2).min(LONGEST);
                rest.next = self.lap + rest.laps;
            }
            None if !is_full => {
                let rest = Rest {
                    next: self.lap + 1,
                    laps: 1,
                    tried: true,
                };
                self.targets.insert(target, rest);
            }
            None => {}
        }
    }

    pub(super) fn taken(&mut self, target: &Target) {
        self.targets.remove(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(key: &str) -> Target {
        let short = |text: &str| ShortStr::copy(text.as_bytes()).unwrap_or_default();
        (short("fan"), short(key))
    }

    /// Passes with attempts, and their number; all are refused.
    fn tried(resting: &mut Resting, laps: u64) -> Vec<(u64, usize)> {
        let mut tried = Vec::new();
        for lap in 0..laps {
            let times = (0..3).filter(|_| resting.may_try(&target("a"))).count();
            for _ in 0..times {
                resting.refused(target("a"));
            }
            tried.extend((times > 0).then_some((lap, times)));
            resting.lap();
        }
        tried
    }

    #[test]
    fn what_is_refused_is_tried_by_one_message_and_more_and_more_seldom() {
        let tried = tried(&mut Resting::default(), 25);
        assert_eq!(tried, [(0, 3), (1, 1), (3, 1), (7, 1), (15, 1), (23, 1)]);
    }

    #[test]
    fn what_took_one_takes_all() {
        let mut resting = Resting::default();
        resting.refused(target("a"));
        resting.refused(target("b"));
        resting.lap();
        assert!(resting.may_try(&target("a")) && resting.may_try(&target("b")));
        resting.taken(&target("a"));
        assert!(resting.may_try(&target("a")) && !resting.may_try(&target("b")));
    }

    #[test]
    fn one_whose_outcome_never_came_is_followed_by_another_in_the_next_lap() {
        let mut resting = Resting::default();
        resting.refused(target("a"));
        resting.lap();
        assert!(resting.may_try(&target("a")) && !resting.may_try(&target("a")));
        resting.lap();
        assert!(resting.may_try(&target("a")));
    }

    #[test]
    fn no_more_targets_are_remembered_than_may_be() {
        let mut resting = Resting::default();
        for n in 0..=MOST {
            resting.refused(target(&n.to_string()));
        }
        assert_eq!(resting.targets.len(), MOST);
        let last = target(&MOST.to_string());
        assert!(resting.may_try(&last) && resting.may_try(&last));
    }
}
