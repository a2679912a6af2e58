//! The commands that ask the API of a running proxy: what may be typed, and its help. A flag that is none of the command's own is a parameter of
//! the API with the same name (`crate::console::dead_letters::Query`).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::proxy::{Printing, Proxy};
use crate::console::admin::wanted::{
    Adopting, Altering, Filters, Named, Pace, Part, To, Which, bytes,
};

const AFTER_HELP: &str = "\
The proxy logs in to the broker as you, browses the queue from the oldest message, and puts the messages back. You need the right to read the queue. \
On quorum queues before RabbitMQ 4.3 this counts as a failed delivery; the answer says so.";

const AFTER_HELP_OF_FILES: &str = "\
Each line of an export is what `show --output json` prints, plus the raw properties. `import` uses only these properties and the body. It also takes \
messages as the management API and rabbitmqadmin print them. A `user-id` that is not yours is left out.

Exit codes: 0 all is done; 3 only a part; 65 nothing; 1 no answer.";

pub(super) const AFTER_HELP_OF_HANDLED: &str = "\
States: `full`: the proxy handles all dead letters of the queue; `rejects-only`: the broker handles expiry and overflow; `off`: the broker handles all; \
`unknown`. The causes and the advice are below the table. `dlx-proxy dead-letters queues` lists the queues that dead letters go to. You see the \
queues that you may read.";

const AFTER_HELP_OF_ADOPTION: &str = "\
Shows its plan, and asks. Elsewhere than on a terminal it needs --approve. The proxy puts a policy of its own above each policy of yours that names the \
dead-letter exchange of these queues: the same, with an intake exchange of the proxy. It keeps that one up to date with yours. No queue is touched. \
The proxy needs a `management-url`; its user and you need the tag `policymaker`.

Exit codes: 0 done, or nothing to do; 65 with --dry-run: something is missing; 1 no answer, or you said no; 64 usage error, or --approve is missing.";

const AFTER_HELP_OF_ALTERATION: &str = "\
Shows its plan, and asks. Elsewhere than on a terminal it needs --approve. The queue is deleted and declared anew, with its bindings and its consumers, \
as soon as it is empty and nothing of it is unsettled. Meanwhile the proxy holds back what clients publish into it: less than a second. Messages that \
nobody reads are moved aside and back, if that takes no longer than --max-pause. All clients of the queue have to \
use the proxies of the vhost. Without --set and --unset it only takes over the dead letters of the queue. \
The proxy needs a `management-url`; you need the tag `policymaker`.

Exit codes: 0 done; 65 with --dry-run: something is missing; 1 no answer, the queue was not quiet, or you said no; 64 usage error, or --approve is missing.";

const AFTER_HELP_OF_QUEUES: &str = "\
The proxy lists the queues that its dead letters went to since it started, and the targets of the queues it knows. With a `management-url` it also \
shows how many messages each queue has, and how old the oldest is. You see the queues that you may read.";

const AFTER_HELP_OF_MOVES: &str = "\
On a terminal, the command first counts the messages and asks. Elsewhere it needs --approve. Then it shows the progress. Ctrl-C ends only the display \
(exit code 130): the proxy continues until `dlx-proxy dead-letters redrives cancel ID`.

Messages that arrive later are not moved. A message that cannot be moved stays in the queue.

Exit codes: 0 all messages moved; 3 some stay, or it was cancelled; 65 it failed, or nothing moved; 1 no answer, or you said no; 64 usage error, \
or --approve is missing.";

const AFTER_HELP_OF_REDRIVES: &str = "\
The proxy remembers the running redrives and purges and the last 100 that ended, until it restarts. You see those of the queues that you may read.";

/// `queues`: which, and how they are shown.
#[derive(Args, Debug)]
pub struct Handled {
    #[command(flatten)]
    which: Which,
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Place,
    #[command(subcommand)]
    pub what: Option<Adoption>,
}

/// What to do with queues whose dead-letter exchange comes from a policy.
#[derive(Debug, Subcommand)]
pub enum Adoption {
    /// Hand all dead letters of queues to the proxy at once, if a policy names their dead-letter exchange
    #[command(after_help = AFTER_HELP_OF_ADOPTION)]
    Adopt(Adopted),
    /// Give adopted queues back to the broker
    #[command(after_help = AFTER_HELP_OF_ADOPTION)]
    Release(Adopted),
    /// Make a queue anew with other arguments, while its clients stay connected
    #[command(after_help = AFTER_HELP_OF_ALTERATION)]
    Alter(Altered),
}

/// Which queue, and what changes.
#[derive(Args, Debug)]
pub struct Altered {
    #[command(flatten)]
    pub which: Altering,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub approve: bool,
}

/// Which queues, and whether to ask.
#[derive(Args, Debug)]
pub struct Adopted {
    #[command(flatten)]
    pub which: Adopting,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub approve: bool,
}

/// `dead-letters`: where, and what to do there.
#[derive(Args, Debug)]
pub struct DeadLetters {
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Place,
    #[command(subcommand)]
    pub what: What,
}

/// What to do with the dead letters in a queue.
#[derive(Debug, Subcommand)]
pub enum What {
    /// List the queues that dead letters go to
    #[command(after_help = AFTER_HELP_OF_QUEUES)]
    Queues(Named),
    /// Count the messages of a queue by source, reason and error
    #[command(after_help = AFTER_HELP)]
    Groups {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        filters: Box<Filters>,
    },
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
    /// Show one message: its deaths, properties, headers and body
    #[command(after_help = AFTER_HELP)]
    Show {
        #[command(flatten)]
        queue: Queue,
        /// The id of the message, from `list`
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Send messages back to the queues where they died, or to another place
    #[command(after_help = AFTER_HELP_OF_MOVES)]
    Redrive {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        to: To,
        #[command(flatten)]
        moving: Box<Moving>,
    },
    /// Show, pause, resume or cancel redrives and purges
    #[command(subcommand)]
    Redrives(Redrives),
    /// Delete messages
    #[command(after_help = AFTER_HELP_OF_MOVES)]
    Purge {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        moving: Box<Moving>,
    },
    /// Write messages to standard output, one JSON object a line; they stay in the queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Export {
        #[command(flatten)]
        queue: Queue,
        #[command(flatten)]
        filters: Box<Filters>,
        /// Export at most N messages, the oldest first
        #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Publish exported messages to a queue
    #[command(after_help = AFTER_HELP_OF_FILES)]
    Import {
        #[command(flatten)]
        queue: Queue,
        /// The file [default: standard input]
        file: Option<PathBuf>,
    },
}

/// What to do with redrives and purges.
#[derive(Debug, Subcommand)]
pub enum Redrives {
    /// List redrives and purges, the newest first
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    List,
    /// Show the progress of one, and which messages stay and why
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Show(OneRedrive),
    /// Pause one; messages it holds stay hidden from consumers
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Pause(OneRedrive),
    /// Resume one
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Resume(OneRedrive),
    /// Cancel one; messages not moved yet stay in the queue
    #[command(after_help = AFTER_HELP_OF_REDRIVES)]
    Cancel(OneRedrive),
}

/// Which redrive.
#[derive(Args, Debug)]
pub struct OneRedrive {
    /// Its number, from `list`
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
}

/// Which proxy, as whom, and how to print.
#[derive(Args, Debug)]
pub struct Place {
    #[command(flatten)]
    pub proxy: Proxy,
    #[command(flatten)]
    pub printing: Printing,
}

/// `watch`: of which queue.
#[derive(Args, Debug)]
pub struct Watch {
    /// Only messages that die in this queue
    #[arg(value_name = "QUEUE", value_parser = bytes())]
    pub queue: Option<OsString>,
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Place,
}

/// Which queue.
#[derive(Args, Debug)]
pub struct Queue {
    /// The queue
    #[arg(value_name = "QUEUE", value_parser = bytes())]
    pub queue: OsString,
}

/// Which messages move, how fast, and whether to ask.
#[derive(Args, Debug)]
pub struct Moving {
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub pace: Pace,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub approve: bool,
    /// Return at once; `dlx-proxy dead-letters redrives list` shows the progress
    #[arg(long)]
    pub no_wait: bool,
}
