//! `dlx-proxy retries`: what may be typed, and its help.

use clap::{Args, Subcommand};

use super::{Broker, Printing};

const AFTER_LIST: &str = "\
Needs no proxy. WAITING: messages that wait. LEAVING: messages whose delay is over and that the broker has not moved to the intake queue yet \
(from the management API, up to 5 s old). OVERDUE: messages that should be back by now.";

const AFTER_RELEASE: &str = "\
Releases what waits when the command starts; later messages stay. The broker itself moves each message to the intake queue, so nothing is lost if this \
command is killed. Without a proxy, released messages wait there. Messages of other queues are put back at the end, so some may return late.";

const AFTER_PURGE: &str = "\
Deletes what waits when the command starts; later messages stay. `queue.purge` and `queue.delete` do not reach these messages, as they wait in the delay \
queues. Messages that have left a delay queue still come back.";

/// What to do with what waits for a retry.
#[derive(Debug, Subcommand)]
pub enum Retries {
    /// Show how many messages wait, for which queues, and until when
    #[command(after_help = AFTER_LIST)]
    List(List),
    /// Return waiting messages to their queues now
    #[command(after_help = AFTER_RELEASE)]
    Release(Release),
    /// Delete the messages of a queue that wait for a retry
    #[command(after_help = AFTER_PURGE)]
    Purge(Purge),
}

/// Where messages wait.
#[derive(Args, Debug)]
pub struct Waiting {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// Only the delay queue of this delay; may be repeated. Required without a management URL
    #[arg(long = "delay", value_name = "MS")]
    pub delays: Vec<u64>,
    #[command(flatten)]
    pub printing: Printing,
}

/// What to show.
#[derive(Args, Debug)]
pub struct List {
    /// Where.
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Waiting,
    /// Browse the first N messages of each delay queue, to show for which queues they wait
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000)]
    pub messages: u16,
}

/// What to let go.
#[derive(Args, Debug)]
pub struct Release {
    /// Where.
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Waiting,
    /// Only messages that come back to this queue
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
}

/// What to remove.
#[derive(Args, Debug)]
pub struct Purge {
    /// Where.
    #[command(flatten, next_help_heading = "Connection and output")]
    pub place: Waiting,
    /// The queue to which the messages would come back
    #[arg(value_name = "QUEUE")]
    pub queue: String,
}
