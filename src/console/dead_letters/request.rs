//! Paths and queries. Names need not be UTF-8, so that all of them are escaped byte by byte.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::console::admin::client::Client;
use crate::console::cli::Cli;
use crate::http::escaped;

/// Arguments of the commands themselves. All others, except those of `Place`, are parameters of the
/// API.
const OWN: [&str; 2] = ["approve", "no-wait"];
/// The positional argument that is a parameter of the API.
const PATTERN: &str = "name";

#[derive(Clone, Debug, Default)]
pub struct Query(Vec<String>);

pub(super) fn path<const N: usize>(client: &Client, names: [&dyn AsRef<OsStr>; N]) -> String {
    let names = names.map(|name| format!("/{}", escaped(name.as_ref().as_encoded_bytes())));
    format!(
        "/api/v1/vhosts/{}{}",
        escaped(&client.vhost),
        names.concat()
    )
}

// === impl Query ===

impl Query {
    /// All flags given to the innermost command.
    pub fn of(mut typed: &ArgMatches) -> Query {
        let mut command = <Cli as CommandFactory>::command();
        while let Some((name, below)) = typed.subcommand() {
            let found = command.find_subcommand(name).cloned();
            (command, typed) = (found.unwrap_or_default(), below);
        }
        let mut query = Query::default();
        for flag in command.get_arguments() {
            let id = flag.get_id().as_str();
            let name = flag.get_long().or(Some(id).filter(|id| *id == PATTERN));
            let was_typed = |_: &&str| typed.value_source(id) == Some(ValueSource::CommandLine);
            let is_own = |name: &&str| OWN.contains(name) || flag.is_global_set();
            if let Some(name) = name.filter(|name| !is_own(name)).filter(was_typed) {
                let values = typed.get_raw(id).into_iter().flatten();
                values.for_each(|value| query.add(name, value));
            }
        }
        query
    }

    pub(super) fn add(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let value = escaped(value.as_ref().as_encoded_bytes());
        self.0.push(format!("{name}={value}"));
    }

    pub(super) fn text(&self) -> String {
        match self.0.is_empty() {
            true => String::new(),
            false => format!("?{}", self.0.join("&")),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::console::cli::{Command, DeadLetters, What};
    use crate::tests::lines_hold;

    /// `None`: not a command line.
    pub(in crate::console::dead_letters) fn typed(line: &str) -> Option<(DeadLetters, Query)> {
        let words = ["dlx-proxy", "dead-letters"]
            .into_iter()
            .chain(line.split(' '));
        let typed = Cli::command().try_get_matches_from(words).ok()?;
        match Cli::from_arg_matches(&typed).ok()?.command {
            Command::DeadLetters(asked) => Some((asked, Query::of(&typed))),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_typed_is_asked_for() {
        lines_hold("console/dead_letters/testdata/typed.txt", async |line| {
            let Some((asked, query)) = typed(line) else {
                return "it cannot be typed".to_owned();
            };
            let queue = match asked.what {
                What::Queues(_) => "*".into(),
                What::List { queue, .. }
                | What::Groups { queue, .. }
                | What::Redrive { queue, .. }
                | What::Purge { queue, .. } => queue.queue,
                other => panic!("{other:?}"),
            };
            let client = asked.place.proxy.client().expect("settings");
            path(&client, [&"queues", &queue]) + &query.text()
        })
        .await;
    }
}
