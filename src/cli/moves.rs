//! `dlx-proxy dead-letters redrive` and `purge`: what may be typed, and its help.

use std::ffi::OsString;

use clap::Args;

use super::{Filters, Queue, filled};

/// Below the help of both.
pub(super) const AFTER_HELP: &str = "\
On a terminal the command looks first, says how many messages are meant, and asks. Elsewhere, and with --non-interactive, it wants --approve. \
Then it shows how far the proxy is. Ctrl-C ends only that (exit code 130): the proxy goes on, until `dlx-proxy dead-letters redrives cancel`.

Messages that come after the beginning are not meant. One that cannot go stays where it is.

Exit codes: 0 all that were meant have gone; 3 some stay, or it was cancelled; 65 it failed, or none of those that were meant has gone; 1 there is no \
answer, and why, or nobody said yes; 64 something has to be typed otherwise, or --approve is missing.";

/// Where messages go.
#[derive(Args, Debug)]
pub struct To {
    /// Send them to this queue [default: each to the queue that it died in]
    #[arg(long, value_name = "NAME", conflicts_with = "to_exchange", value_parser = filled::octets())]
    pub to_queue: Option<OsString>,
    /// Send them to this exchange; an empty name is the default exchange
    #[arg(long, value_name = "NAME")]
    pub to_exchange: Option<OsString>,
    /// ... with this routing key [default: each with its own]
    #[arg(
        long,
        value_name = "KEY",
        requires = "to_exchange",
        conflicts_with = "to_queue"
    )]
    pub to_routing_key: Option<OsString>,
    /// What they say of their deaths: keep it, or begin anew [default: keep]
    #[arg(long, value_name = "HOW", value_parser = ["keep", "new"], hide_possible_values = true)]
    pub history: Option<String>,
}

/// Which messages go, how fast, and what is said about it.
#[derive(Args, Debug)]
pub struct Moving {
    /// Which.
    #[command(flatten)]
    pub filters: Filters,
    /// Only this message, as `list` names it; may be repeated
    #[arg(long = "id", value_name = "ID", value_parser = filled::text())]
    pub ids: Vec<String>,
    /// How many messages to move at most; the oldest go first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// How many messages to move in a second at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub rate: Option<u64>,
    /// Only say how many messages are meant
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub approve: bool,
    /// Only begin: `dlx-proxy dead-letters redrives` tells the rest
    #[arg(long)]
    pub no_wait: bool,
}

/// What is to be moved, of both commands.
#[derive(Debug)]
pub struct Move {
    /// Out of which queue.
    pub queue: Queue,
    /// Where to; `None`: nowhere, they are removed.
    pub to: Option<To>,
    /// Which, and how.
    pub moving: Box<Moving>,
}
