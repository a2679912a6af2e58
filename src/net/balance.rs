//! How sessions are spread over threads: one thread has them all until it is busy, then the next one takes some.
//!
//! A producer's and a consumer's session on two threads wake each other's processors; on one thread a wake-up serves both, which costs up to 40 %
//! less. So threads are filled one after the other, and emptied again when less is to do.
//!
//! A thread does not give its processor away (`sched_yield`) before it sleeps, so that more comes together. On Linux 6.18 that saved some 8 % of the
//! processor where nobody waits, about what rounds differ by, and nothing where it was guarded. Unguarded, clients wait behind busy neighbours.

/// Share of a processor, in thousandths, from which a thread is busy.
pub const BUSY: u32 = 600;
/// Together two threads do less than this: one of them is enough.
const ENOUGH: u32 = 350;
/// A thread with this much less to do takes sessions of a busy one.
const LESS: u32 = 300;

/// What a thread has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// In thousandths of a processor.
    pub busy: u32,
    pub sessions: usize,
}

/// That many sessions leave one thread for another. Threads have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: usize,
    pub to: usize,
    pub sessions: usize,
}

/// Decides what moves next. As long as it goes on in one direction, twice as many move each time.
#[derive(Debug, Default)]
pub struct Balance {
    last: Option<Move>,
}

// === impl Balance ===

impl Balance {
    pub fn next(&mut self, loads: &[Load]) -> Option<Move> {
        let way = spread(loads).or_else(|| gather(loads));
        self.last = way.map(|(from, to)| {
            let again = self.last.filter(|last| (last.from, last.to) == (from, to));
            let sessions = again.map_or(1, |last| last.sessions.saturating_mul(2));
            Move { from, to, sessions }
        });
        self.last
    }
}

/// The thread of a new session.
pub fn place(loads: impl Iterator<Item = Load>) -> usize {
    let mut idlest = (0, u32::MAX);
    for (number, load) in loads.enumerate() {
        if load.busy < BUSY {
            return number;
        }
        if load.busy < idlest.1 {
            idlest = (number, load.busy);
        }
    }
    idlest.0
}

/// From the busiest thread that can do without a session to the idlest one.
fn spread(loads: &[Load]) -> Option<(usize, usize)> {
    let numbered = || loads.iter().enumerate();
    let several = numbered().filter(|(_, load)| load.busy >= BUSY && load.sessions > 1);
    let (from, busiest) = several.max_by_key(|(_, load)| load.busy)?;
    let (to, idlest) = numbered().min_by_key(|(_, load)| load.busy)?;
    (idlest.busy + LESS <= busiest.busy).then_some((from, to))
}

/// From the last thread in use to the one before it.
fn gather(loads: &[Load]) -> Option<(usize, usize)> {
    let from = loads.iter().rposition(|load| load.sessions > 0)?;
    let to = from.checked_sub(1)?;
    let busy = |number: usize| loads.get(number).map_or(0, |load| load.busy);
    // Sessions at rest stay where they are: they do not even notice.
    let moves = busy(from) > 0 && busy(from) + busy(to) < ENOUGH;
    moves.then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::{Balance, Load, Move, place};

    fn loads<const N: usize>(all: [(u32, usize); N]) -> [Load; N] {
        all.map(|(busy, sessions)| Load { busy, sessions })
    }

    #[test]
    fn the_next_thread_is_used_when_those_before_it_are_busy() {
        let placed = |all: &[(u32, usize)]| {
            place(all.iter().map(|(busy, sessions)| Load {
                busy: *busy,
                sessions: *sessions,
            }))
        };
        assert_eq!(placed(&[(599, 9_000), (0, 0)]), 0);
        assert_eq!(placed(&[(600, 2), (0, 0)]), 1);
        assert_eq!(placed(&[(900, 1), (700, 8), (800, 1)]), 1);
    }

    #[test]
    fn what_goes_from_one_to_another_in_one_go() {
        let moved = |all: [Load; 2]| Balance::default().next(&all).map(|of| (of.from, of.to));
        for (all, expected) in [
            (loads([(590, 10), (0, 0)]), None),
            (loads([(600, 10), (0, 0)]), Some((0, 1))),
            // Nobody would be better off.
            (loads([(990, 1), (0, 0)]), None),
            (loads([(800, 10), (510, 3)]), None),
            // Only one with several can give some away.
            (loads([(990, 1), (700, 2)]), None),
            (loads([(100, 10), (240, 3)]), Some((1, 0))),
            (loads([(100, 10), (250, 3)]), None),
            (loads([(100, 10), (0, 3)]), None),
        ] {
            assert_eq!(moved(all), expected, "{all:?}");
        }
    }

    #[test]
    fn it_goes_faster_as_long_as_it_is_needed() {
        let mut balance = Balance::default();
        let mut sessions = |all: [Load; 2]| balance.next(&all).map(|of: Move| of.sessions);
        let busy = loads([(900, 500), (0, 0)]);
        assert_eq!(sessions(busy), Some(1));
        assert_eq!(sessions(busy), Some(2));
        assert_eq!(sessions(busy), Some(4));
        assert_eq!(sessions(loads([(500, 400), (500, 100)])), None);
        assert_eq!(sessions(busy), Some(1));
    }
}
