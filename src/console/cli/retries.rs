//! `dlx-proxy retries`: what may be typed, and its help.

use clap::{Args, Subcommand};

use super::{Broker, Printing};

const AFTER_LIST: &str = "\
No proxy has to run. WAITING are messages that wait, LEAVING those whose time is over and that the broker has not moved into the intake queue yet \
(the management API knows them, up to 5 s late). OVERDUE are messages that wait though they should be back by now.

To look at a message is to get it and to put it back, in its place. It counts as delivered, which means nothing in a delay queue.";

const AFTER_RELEASE: &str = "\
What is there when the command begins is released; what comes meanwhile stays. The broker itself moves each message into the intake queue, and \
nothing is lost if this command is killed. If no proxy runs, what was released waits there. The messages of other queues are put back \
in their places at the end, so that some may come back late by the time that the command takes.";

const AFTER_PURGE: &str = "\
What is there when the command begins is removed; what comes meanwhile stays. `queue.purge` and `queue.delete` do not reach these messages: they wait \
in the delay queues, and would come back. What has left a delay queue already comes back all the same.";

/// What to do with what waits for a retry.
#[derive(Debug, Subcommand)]
pub enum Retries {
    /// Show how many messages wait, in which delay queues, for which queues, and until when
    #[command(after_help = AFTER_LIST)]
    List(List),
    /// Let messages go now that wait for a retry: they come back to their queues as soon as a proxy is there
    #[command(after_help = AFTER_RELEASE)]
    Release(Release),
    /// Remove the messages of a queue that wait for a retry: they do not come back
    #[command(after_help = AFTER_PURGE)]
    Purge(Purge),
}

/// Where messages wait.
#[derive(Args, Debug)]
pub struct Waiting {
    /// The broker.
    #[command(flatten)]
    pub broker: Broker,
    /// Only the delay queue of so many milliseconds; may be repeated. Without a management URL it is needed
    #[arg(long = "delay", value_name = "MS")]
    pub delays: Vec<u64>,
    #[command(flatten)]
    pub printing: Printing,
}

/// What to show.
#[derive(Args, Debug)]
pub struct List {
    /// Where.
    #[command(flatten)]
    pub place: Waiting,
    /// Look at the first N messages of each delay queue, to say for which queues they wait; 0: at none
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub messages: u16,
}

/// What to let go.
#[derive(Args, Debug)]
pub struct Release {
    /// Where.
    #[command(flatten)]
    pub place: Waiting,
    /// Only messages that come back to this queue
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
}

/// What to remove.
#[derive(Args, Debug)]
pub struct Purge {
    /// Where.
    #[command(flatten)]
    pub place: Waiting,
    /// The queue to which the messages would come back
    #[arg(long, value_name = "NAME")]
    pub queue: String,
}
