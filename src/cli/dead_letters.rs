//! `dlx-proxy dead-letters`: what may be typed, and its help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filled;
use super::moves::{self, Moving, To};
use super::proxy::{Printing, Proxy};
use super::queues::{self, Queues};
use super::redrives::Redrives;
use crate::machine::Reason;

/// Below the help of each command.
const AFTER_HELP: &str = "\
The proxy logs in to the broker as that user, who needs the right to read the queue. It takes the messages, the oldest first, and puts them back in \
their places. Where that counts as a failed delivery (quorum queues before RabbitMQ 4.3) the answer says so. Exit code 1: there is no answer, \
and why.";

/// Below the help of `export` and `import`.
const AFTER_HELP_OF_FILES: &str = "\
A line is what `show` prints as JSON, and the properties as octets. `import` makes a message of it with those properties and with the body that stands \
in the line; other changes of a line count nothing. A CC header is shown on and does not route; a user-id that is not yours is left out.

Exit codes: 0 all is done; 3 a part of it, and which is said; 65 nothing of it; 1 there is no answer, and why.";

/// What to do with the dead letters in a queue.
#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List the queues that dead letters go to, with what is known of them
    #[command(after_help = queues::AFTER_HELP)]
    Queues(Queues),
    /// Show how far redrives and purges are; pause, resume or cancel one
    #[command(subcommand)]
    Redrives(Redrives),
    /// To see them.
    #[command(flatten)]
    Look(Look),
    /// Write messages to standard output, one a line, as JSON; they stay in the queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Export {
        /// Where.
        #[command(flatten)]
        queue: Queue,
        /// Which.
        #[command(flatten)]
        filters: Box<Filters>,
        /// How many messages to export at most; the oldest go first
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Put messages that were exported into a queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Import {
        /// Where.
        #[command(flatten)]
        queue: Queue,
        /// The file [default: standard input]
        file: Option<PathBuf>,
    },
    /// Send messages back to the queues that they died in, or to another place
    #[command(after_help = moves::AFTER_HELP)]
    Redrive {
        /// Out of which queue.
        #[command(flatten)]
        queue: Queue,
        /// Where to.
        #[command(flatten)]
        to: To,
        /// Which, and how.
        #[command(flatten)]
        moving: Box<Moving>,
    },
    /// Remove messages for good
    #[command(after_help = moves::AFTER_HELP)]
    Purge {
        /// Out of which queue.
        #[command(flatten)]
        queue: Queue,
        /// Which, and how.
        #[command(flatten)]
        moving: Box<Moving>,
    },
}

/// What to see of them.
#[derive(Debug, Subcommand)]
pub enum Look {
    /// List the messages of a queue, the oldest first
    #[command(after_help = AFTER_HELP)]
    List {
        /// Where.
        #[command(flatten)]
        queue: Queue,
        /// Which.
        #[command(flatten)]
        filters: Box<Filters>,
        /// How many.
        #[command(flatten)]
        page: Page,
        /// Only these columns, in this order; the names are those of the JSON
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        columns: Vec<String>,
    },
    /// Count the messages of a queue by where they died, why, and with which error
    #[command(after_help = AFTER_HELP)]
    Groups {
        /// Where.
        #[command(flatten)]
        queue: Queue,
        /// Which.
        #[command(flatten)]
        filters: Box<Filters>,
        /// Only these columns, in this order; the names are those of the JSON
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        columns: Vec<String>,
    },
    /// Show one message: how it died, its properties, its headers and its body
    #[command(after_help = AFTER_HELP)]
    Show {
        /// The message, as `list` names it
        #[arg(value_parser = filled::text())]
        id: String,
        /// Where.
        #[command(flatten)]
        queue: Queue,
    },
}

/// Which queue, by which proxy, and as whom.
#[derive(Args, Debug)]
pub struct Queue {
    /// By which proxy.
    #[command(flatten)]
    pub proxy: Proxy,
    /// The vhost of the queue
    #[arg(long, value_name = "NAME", default_value = "/", value_parser = filled::octets())]
    pub vhost: OsString,
    /// The queue
    #[arg(long, value_name = "NAME", value_parser = filled::octets())]
    pub queue: OsString,
    /// How it is printed.
    #[command(flatten)]
    pub printing: Printing,
}

/// Which messages; those that all of these fit.
#[derive(Args, Debug)]
pub struct Filters {
    /// Only messages that died in this queue
    #[arg(long, value_name = "QUEUE", value_parser = filled::octets())]
    pub source: Option<OsString>,
    /// Only messages that died so: rejected, expired, maxlen or delivery_limit
    #[arg(long, value_name = "REASON", value_parser = Reason::ALL.map(Reason::as_str), hide_possible_values = true)]
    pub reason: Option<String>,
    /// Only messages whose error begins with this line, as `groups` shows it
    #[arg(long, value_name = "LINE", value_parser = filled::octets())]
    pub error: Option<OsString>,
    /// Only messages with this routing key
    #[arg(long, value_name = "KEY")]
    pub routing_key: Option<OsString>,
    /// Only messages with this header; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE")]
    pub headers: Vec<OsString>,
    /// Only messages with this text in their body
    #[arg(long, value_name = "TEXT", value_parser = filled::octets())]
    pub body: Option<OsString>,
    /// Only messages that died at least so long ago and were not redriven since, as in 90s, 15m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = filled::octets())]
    pub older_than: Option<OsString>,
}

/// Which part of a list.
#[derive(Args, Debug)]
pub struct Page {
    /// How many messages to list at most [default: 100]
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Behind so many others
    #[arg(long, value_name = "N")]
    pub offset: Option<u64>,
}

// === impl Look ===

impl Look {
    /// Where to look.
    pub fn queue(&self) -> &Queue {
        match self {
            Look::List { queue, .. } | Look::Groups { queue, .. } | Look::Show { queue, .. } => {
                queue
            }
        }
    }
}
