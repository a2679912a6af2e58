//! `dlx-proxy queues`: what may be typed, and its help.

use clap::Args;

use super::redrives::OfVhost;
use crate::registry::handling::State;

/// Below the help.
pub(super) const AFTER_HELP: &str = "\
A queue is `full`: the proxy handles all its dead letters; `rejects-only`: expiry and overflow are the broker's; `off`: all are the broker's; or \
`unknown`. Below the table stands why, and what to do. The queues that dead letters go to, with their numbers of messages, are listed by `dlx-proxy \
dead-letters queues`. A user sees the queues that the user may read, the proxy's own user sees all. Exit code 1: there is no answer, and why.";

/// Which, and how they are shown.
#[derive(Args, Debug)]
pub struct Handled {
    /// Where.
    #[command(flatten)]
    pub place: OfVhost,
    /// Only queues in these states: unknown, rejects-only, off, full
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = State::ALL.map(State::as_str), hide_possible_values = true)]
    pub state: Vec<String>,
    /// How many queues to list at most; those first that need attention [default: 300]
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Only these columns, in this order; the names are those of the JSON
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
}
