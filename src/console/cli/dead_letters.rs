//! The commands that ask the API of a running proxy: what may be typed, and its help. A flag that is none of the command's own is a parameter of
//! the API with the same name (`crate::console::dead_letters::Query`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::proxy::{Printing, Proxy};
use crate::console::admin::wanted::{Filters, Pace, Part, To, Which, bytes};

const AFTER_HELP: &str = "\
The proxy logs in to the broker as that user, who needs the right to read the queue. It takes the messages, the oldest first, and puts them back in \
their places. Where that counts as a failed delivery (quorum queues before RabbitMQ 4.3) the answer says so. Exit code 1: there is no answer, \
and why.";

const AFTER_HELP_OF_FILES: &str = "\
A line is what `show` prints as JSON, and the properties as bytes. `import` makes a message of it with those properties and with the body that stands \
in the line; other changes of a line count nothing. A CC header is shown on and does not route; a user-id that is not yours is left out.

Exit codes: 0 all is done; 3 a part of it, and which is said; 65 nothing of it; 1 there is no answer, and why.";

pub(super) const AFTER_HELP_OF_HANDLED: &str = "\
A queue is `full`: the proxy handles all its dead letters; `rejects-only`: expiry and overflow are the broker's; `off`: all are the broker's; or \
`unknown`. Below the table stands why, and what to do. The queues that dead letters go to, with their numbers of messages, are listed by `dlx-proxy \
dead-letters queues`. A user sees the queues that the user may read, the proxy's own user sees all. Exit code 1: there is no answer, and why.";

const AFTER_HELP_OF_QUEUES: &str = "\
The proxy knows the queues that its dead letters went to since it was started, and the targets of the queues that it knows; with a `management-url` \
also those behind named exchanges, how many messages each has, and, where it can be known, how long the oldest has been there. How the queues are \
handled in which messages die, `dlx-proxy queues` lists. A user sees the queues that the user may read. Exit code 1: \
there is no answer, and why.";

const AFTER_HELP_OF_MOVES: &str = "\
On a terminal the command looks first, says how many messages are meant, and asks. Elsewhere, and with --non-interactive, it wants --approve. \
Then it shows how far the proxy is. Ctrl-C ends only that (exit code 130): the proxy goes on, until `dlx-proxy dead-letters redrives cancel`.

Messages that come after the beginning are not meant. One that cannot go stays where it is.

Exit codes: 0 all that were meant have gone; 3 some stay, or it was cancelled; 65 it failed, or none of those that were meant has gone; 1 there is no \
answer, and why, or nobody said yes; 64 something has to be typed otherwise, or --approve is missing.";

const AFTER_HELP_OF_REDRIVES: &str = "\
The proxy knows those that are at work and the last 100 that have ended, until it ends itself. A user sees those of the queues that the user may \
read. Exit code 1: there is no answer, and why.";

/// `queues`: which, and how they are shown.
#[derive(Args, Debug)]
pub struct Handled {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    which: Which,
}

/// `dead-letters`: where, and what to do there.
#[derive(Args, Debug)]
pub struct DeadLetters {
    #[command(flatten, next_help_heading = "Options of each of these commands")]
    pub place: Place,
    #[command(subcommand)]
    pub what: What,
}

/// What to do with the dead letters in a queue.
#[derive(Debug, Subcommand)]
pub enum What {
    /// List the queues that dead letters go to, with what is known of them
    #[command(after_help = AFTER_HELP_OF_QUEUES)]
    Queues,
    /// Show how far redrives and purges are; pause, resume or cancel one
    #[command(subcommand)]
    Redrives(Redrives),
    /// List the messages of a queue, the oldest first
    #[command(after_help = AFTER_HELP)]
    List {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        filters: Box<Filters>,
        #[command(flatten)]
        part: Part,
    },
    /// Count the messages of a queue by where they died, why, and with which error
    #[command(after_help = AFTER_HELP)]
    Groups {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        filters: Box<Filters>,
    },
    /// Show one message: how it died, its properties, its headers and its body
    #[command(after_help = AFTER_HELP)]
    Show {
        /// The message, as `list` names it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        queue: Queue,
    },
    /// Write messages to standard output, one a line, as JSON; they stay in the queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Export {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        filters: Box<Filters>,
        /// How many messages to export at most; the oldest go first
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Put messages that were exported into a queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Import {
        #[command(flatten)]
        queue: Queue,
        /// The file [default: standard input]
        file: Option<PathBuf>,
    },
    /// Send messages back to the queues that they died in, or to another place
    #[command(after_help = AFTER_HELP_OF_MOVES)]
    Redrive {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        to: To,
        #[command(flatten)]
        moving: Box<Moving>,
    },
    /// Remove messages for good
    #[command(after_help = AFTER_HELP_OF_MOVES)]
    Purge {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        moving: Box<Moving>,
    },
}

/// What to do with redrives and purges.
#[derive(Debug, Subcommand)]
pub enum Redrives {
    /// List them, the newest first
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    List,
    /// Show one: what it does, how far it is, what stays and why
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Show(OneRedrive),
    /// Hold one up; what it has looked at and not moved, others do not see meanwhile
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Pause(OneRedrive),
    /// Let one go on that was paused
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Resume(OneRedrive),
    /// End one; what has gone has gone, the rest stays where it is
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Cancel(OneRedrive),
}

/// Which redrive.
#[derive(Args, Debug)]
pub struct OneRedrive {
    /// Its number, as `list` names it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
}

/// Which vhost, by which proxy, and as whom.
#[derive(Args, Debug)]
pub struct Place {
    #[command(flatten)]
    pub proxy: Proxy,
    /// The vhost
    #[arg(long, value_name = "NAME", default_value = "/", global = true, value_parser = bytes())]
    pub vhost: OsString,
    #[command(flatten)]
    pub printing: Printing,
}

/// Which queue there.
#[derive(Args, Debug)]
pub struct Queue {
    /// The queue
    #[arg(long, value_name = "NAME", value_parser = bytes())]
    pub queue: OsString,
}

/// Which messages go, how fast, and what is said about it.
#[derive(Args, Debug)]
pub struct Moving {
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub pace: Pace,
    /// Do not ask
    #[arg(long)]
    pub approve: bool,
    /// Only begin: `dlx-proxy dead-letters redrives` tells the rest
    #[arg(long)]
    pub no_wait: bool,
}
