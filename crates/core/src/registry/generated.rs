//! Names that the broker makes for a `queue.declare` without one: how they begin, and whether a pattern needs more than that (S13.4).
//!
//! ```text
//! amq.gen-ik-CzswCUiRtfNMWDAS6rQ        the beginning, a hyphen, 22 random characters (`rabbit_guid`)
//! orders-ik-CzswCUiRtfNMWDAS6rQ         from 4.4 on, with x-name-prefix = "orders"
//! ```

use std::collections::BTreeMap;

use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use crate::amqp::table::{Table, Value};
use crate::amqp::version::Version;

const NAME_PREFIX: &[u8] = b"x-name-prefix";
/// Which brokers look at it. Those before ignore it (asked: 3.10.8, 4.3.6).
const SINCE: Version = Version(4, 4, 0);
/// A longer one is refused.
const LONGEST: usize = 64;
/// What names begin with that no declare said anything of.
pub(super) const ORDINARY: &[u8] = b"amq.gen-";
/// How many characters follow ...
const RANDOM: usize = 22;
const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// In fewer of all names a pattern is found by accident: a word that the random characters spell.
const SELDOM: f64 = 0.001;
/// A pattern that can be in more states at once is too hard to decide.
const MOST_STATES: usize = 64;

/// Whether the broker makes the name of a queue that is declared with this one: it removes line breaks (`strip_cr_lf`).
pub fn is_made(name: &[u8]) -> bool {
    name.iter().all(|octet| b"\r\n".contains(octet))
}

/// What a declare wants a generated name to begin with, if its broker listens to that.
pub fn prefix(arguments: &[u8], version: Option<Version>) -> Option<&[u8]> {
    let said = Table(arguments).get(NAME_PREFIX).ok().flatten();
    let said = said.and_then(Value::as_longstr)?;
    let counts = version >= Some(SINCE) && (1..=LONGEST).contains(&said.len());
    counts.then_some(said)
}

/// What a name begins with that is generated for a declare with these arguments.
pub fn start(arguments: &[u8], version: Option<Version>) -> Vec<u8> {
    let Some(said) = prefix(arguments, version) else {
        return ORDINARY.to_vec();
    };
    let mut start = said.to_vec();
    start.retain(|octet| !b"\r\n".contains(octet));
    start.push(b'-');
    start
}

/// A name that begins like that, in the place of all of them.
pub fn sample(start: &[u8]) -> Vec<u8> {
    [start, &ALPHABET[..RANDOM]].concat()
}

/// Whether the pattern is found in all names that begin like that, or in none but by accident. `None`: in some, or that is too hard to tell.
pub(super) fn decided(pattern: &str, start: &[u8]) -> Option<bool> {
    // As `registry::policy` reads patterns. The cache must not be emptied, as the states would get other numbers.
    let dfa = DFA::builder()
        .configure(DFA::config().minimum_cache_clear_count(Some(0)))
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .thompson(thompson::Config::new().utf8(false))
        .build(pattern)
        .ok()?;
    let mut cache = dfa.create_cache();
    let begins = dfa.start_state_forward(&mut cache, &Input::new(b"")).ok()?;
    // How many of all names have led there: the parts of 1.
    let mut parts = BTreeMap::from([(begins, 1.0)]);
    let (mut found, mut missed) = (0.0, 0.0);
    let fixed = start.iter().map(std::slice::from_ref);
    for octets in fixed.chain(std::iter::repeat_n(ALPHABET, RANDOM)) {
        let mut reached = BTreeMap::new();
        for (state, part) in parts {
            let part = part / octets.len() as f64;
            for octet in octets {
                let state = dfa.next_state(&mut cache, state, *octet).ok()?;
                if state.is_match() {
                    found += part;
                } else if state.is_dead() {
                    missed += part;
                } else {
                    *reached.entry(state).or_insert(0.0) += part;
                }
            }
        }
        if reached.len() > MOST_STATES {
            return None;
        }
        parts = reached;
    }
    for (state, part) in parts {
        match dfa.next_eoi_state(&mut cache, state).ok()?.is_match() {
            true => found += part,
            false => missed += part,
        }
    }
    match (found, missed) {
        (_, 0.0) => Some(true),
        (..SELDOM, _) => Some(false),
        _ => None,
    }
}
