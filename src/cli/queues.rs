//! `dlx-proxy dead-letters queues`: what may be typed, and its help.

use clap::Args;

use super::redrives::OfVhost;

/// Below the help.
pub(super) const AFTER_HELP: &str = "\
The proxy knows the queues that its dead letters went to since it was started, and the targets of the queues that it knows; with a `management-url` \
also those behind named exchanges, how many messages each has, and, where it can be known, how long the oldest has been there. How the queues are \
handled in which messages die, `dlx-proxy queues` lists. A user sees the queues that the user may read. Exit code 1: \
there is no answer, and why.";

/// Which, and how they are shown.
#[derive(Args, Debug)]
pub struct Queues {
    /// Where.
    #[command(flatten)]
    pub place: OfVhost,
    /// Only these columns, in this order; the names are those of the JSON
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
}
