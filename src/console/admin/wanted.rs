//! Parameters of the API, as OpenAPI describes them and as the command line takes them: each is a flag of the commands that ask for it. They are
//! read from a request where they mean something: `listing::filter`, `api::redrives`, `api::handled`.

use std::ffi::OsString;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use utoipa::IntoParams;

use crate::machine::Reason;
use crate::registry::handling::State;

/// Which messages: those that match all of these.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
pub struct Filters {
    /// Only messages that died in this queue
    #[arg(long, value_name = "QUEUE", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    source: Option<OsString>,
    /// Only messages that died for this reason: rejected, expired, maxlen or delivery_limit
    #[arg(long, value_name = "REASON", value_parser = Reason::ALL.map(Reason::as_str), hide_possible_values = true)]
    reason: Option<String>,
    /// Only messages whose error begins with this text, as `groups` shows it
    #[arg(long, value_name = "TEXT", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    error: Option<OsString>,
    /// Only one group: exactly this source, reason and error; messages with one that is not given do not match
    #[arg(long)]
    #[param(value_type = Option<bool>)]
    exact: bool,
    /// Only messages that died since: 90s, 15m, 2h or 7d ago, or a UTC time like 2026-11-28T02:00Z
    #[arg(long, value_name = "TIME", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    since: Option<OsString>,
    /// Only messages that died before: 90s, 15m, 2h or 7d ago, or a UTC time; and were not redriven after that
    #[arg(long, value_name = "TIME", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    older_than: Option<OsString>,
    /// Only messages with this text in their body
    #[arg(long, value_name = "TEXT", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    body: Option<OsString>,
    /// Only messages with this header; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    #[param(value_type = Option<Vec<String>>)]
    header: Vec<OsString>,
    /// Only messages with this routing key
    #[arg(long, value_name = "KEY")]
    #[param(value_type = Option<String>)]
    routing_key: Option<OsString>,
    /// Only the message with this id, from `list`; may be repeated
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    #[param(value_type = Option<Vec<String>>)]
    id: Vec<String>,
}

/// Which part of a list.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// List at most N messages [default: 100]
    #[arg(short = 'n', long, value_name = "N")]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// Skip N messages
    #[arg(long, value_name = "N")]
    offset: Option<u64>,
}

/// Where messages go; by default each to the queue where it died.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
pub struct To {
    /// Send them to this queue [default: each to the queue where it died]
    #[arg(long, value_name = "NAME", conflicts_with = "to_exchange", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    pub to_queue: Option<OsString>,
    /// Send them to this exchange; an empty name is the default exchange
    #[arg(long, value_name = "NAME")]
    #[param(value_type = Option<String>)]
    pub to_exchange: Option<OsString>,
    /// ... with this routing key [default: each with its own]
    #[arg(
        long,
        value_name = "KEY",
        requires = "to_exchange",
        conflicts_with = "to_queue"
    )]
    #[param(value_type = Option<String>)]
    pub to_routing_key: Option<OsString>,
    /// Keep their history of deaths, or start a new one: keep or new [default: keep]
    #[arg(long, value_name = "HOW", value_parser = ["keep", "new"], hide_possible_values = true)]
    pub history: Option<String>,
}

/// How many messages move, and how fast.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
pub struct Pace {
    /// Move at most N messages, the oldest first
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Move at most N messages a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Only count the messages
    #[arg(long)]
    #[param(value_type = Option<bool>)]
    pub dry_run: bool,
}

/// Which queues by name.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Named {
    /// Only queues whose names match: `*` is any text, `?` one character
    #[arg(value_name = "PATTERN", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    name: Option<OsString>,
}

/// Which queues of those that are handled.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// Only queues whose names match: `*` is any text, `?` one character
    #[arg(value_name = "PATTERN", value_parser = bytes())]
    #[param(value_type = Option<String>)]
    name: Option<OsString>,
    /// Only queues in these states: unknown, rejects-only, off, full
    #[arg(short, long, value_name = "STATES", value_delimiter = ',', value_parser = State::ALL.map(State::as_str), hide_possible_values = true)]
    #[param(value_type = Option<Vec<String>>)]
    state: Vec<String>,
    /// List at most N queues, those first that need attention [default: 300]
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<u64>,
}

/// Which queues are adopted or released.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
pub struct Adopting {
    /// The queue. All others that have the same policy go with it
    #[arg(value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new(), required_unless_present = "all")]
    #[param(value_type = Option<String>)]
    pub queue: Option<String>,
    /// All queues whose names match this regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "queue", value_parser = NonEmptyStringValueParser::new())]
    #[param(value_type = Option<String>)]
    pub all: Option<String>,
    /// Only show the plan
    #[arg(long)]
    #[param(value_type = Option<bool>)]
    pub dry_run: bool,
}

/// Which queue is made anew, and how.
#[derive(Args, Debug, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "kebab-case")]
pub struct Altering {
    /// The queue
    #[arg(value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new())]
    pub queue: String,
    /// Set this argument; may be repeated
    #[arg(long, value_name = "ARGUMENT=VALUE")]
    #[param(value_type = Option<Vec<String>>)]
    set: Vec<String>,
    /// Remove this argument; may be repeated
    #[arg(long, value_name = "ARGUMENT")]
    #[param(value_type = Option<Vec<String>>)]
    unset: Vec<String>,
    /// The type of the queue: classic or quorum
    #[arg(long, value_name = "TYPE")]
    #[param(value_type = Option<String>)]
    r#type: Option<String>,
    /// Put up with consumers, publishers and protocols that go past the proxies: messages may be lost
    #[arg(long)]
    #[param(value_type = Option<bool>)]
    allow_direct: bool,
    /// Try for so long [default: 10s]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<String>)]
    wait: Option<String>,
    /// Let clients wait for so long while messages that nobody reads are moved aside and back [default: 5s]
    #[arg(long, value_name = "TIME")]
    #[param(value_type = Option<String>)]
    max_pause: Option<String>,
    /// Only show the plan
    #[arg(long)]
    #[param(value_type = Option<bool>)]
    pub dry_run: bool,
}

/// Refuses an empty value: an unset shell variable would be a filter that matches everything.
pub(crate) fn bytes() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|bytes| match bytes.is_empty() {
        true => Err("it is empty"),
        false => Ok(bytes),
    })
}
