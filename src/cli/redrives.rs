//! `dlx-proxy dead-letters redrives`: what may be typed, and its help.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::filled;
use super::proxy::{Printing, Proxy};

/// Below the help of each command.
const AFTER_HELP: &str = "\
The proxy knows those that are at work and the last 100 that have ended, until it ends itself. A user sees those of the queues that the user may \
read. Exit code 1: there is no answer, and why.";

/// What to do with redrives and purges.
#[derive(Debug, Subcommand)]
pub enum Redrives {
    /// List them, the newest first
    #[command(after_help = AFTER_HELP)]
    List {
        /// Where.
        #[command(flatten)]
        place: OfVhost,
        /// Only these columns, in this order; the names are those of the JSON
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        columns: Vec<String>,
    },
    /// Show one: what it does, how far it is, what stays and why
    #[command(after_help = AFTER_HELP)]
    Show {
        /// Its number, as `list` names it
        #[arg(value_parser = filled::text())]
        id: String,
        /// Where.
        #[command(flatten)]
        place: OfVhost,
    },
    /// Hold one up; what it has looked at and not moved, others do not see meanwhile
    #[command(after_help = AFTER_HELP)]
    Pause {
        /// Its number, as `list` names it
        #[arg(value_parser = filled::text())]
        id: String,
        /// Where.
        #[command(flatten)]
        place: OfVhost,
    },
    /// Let one go on that was paused
    #[command(after_help = AFTER_HELP)]
    Resume {
        /// Its number, as `list` names it
        #[arg(value_parser = filled::text())]
        id: String,
        /// Where.
        #[command(flatten)]
        place: OfVhost,
    },
    /// End one; what has gone has gone, the rest stays where it is
    #[command(after_help = AFTER_HELP)]
    Cancel {
        /// Its number, as `list` names it
        #[arg(value_parser = filled::text())]
        id: String,
        /// Where.
        #[command(flatten)]
        place: OfVhost,
    },
}

/// Which vhost, by which proxy, and as whom.
#[derive(Args, Debug)]
pub struct OfVhost {
    /// By which proxy.
    #[command(flatten)]
    pub proxy: Proxy,
    /// The vhost of their queues
    #[arg(long, value_name = "NAME", default_value = "/", value_parser = filled::octets())]
    pub vhost: OsString,
    /// How it is printed.
    #[command(flatten)]
    pub printing: Printing,
}

// === impl Redrives ===

impl Redrives {
    /// Where to look.
    pub fn place(&self) -> &OfVhost {
        match self {
            Redrives::List { place, .. }
            | Redrives::Show { place, .. }
            | Redrives::Pause { place, .. }
            | Redrives::Resume { place, .. }
            | Redrives::Cancel { place, .. } => place,
        }
    }
}
