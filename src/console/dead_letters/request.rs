//! Paths and queries. Names need not be UTF-8, so that all of them are escaped octet by octet.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::console::cli::{Cli, Place};
use crate::http::escaped;

/// Flags of the commands themselves. All others, except those of [`Place`], are parameters of the
/// API.
const OWN: [&str; 3] = ["queue", "approve", "no-wait"];

#[derive(Clone, Debug, Default)]
pub struct Query(Vec<String>);

pub(super) fn path<const N: usize>(place: &Place, names: [&dyn AsRef<OsStr>; N]) -> String {
    let octets = |name: &OsStr| escaped(name.as_encoded_bytes());
    let names = names.map(|name| format!("/{}", octets(name.as_ref())));
    format!("/api/v1/vhosts/{}{}", octets(&place.vhost), names.concat())
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
            let (id, name) = (flag.get_id().as_str(), flag.get_long());
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
    use crate::console::cli::{Command, What};

    /// `None`: not a command line.
    fn asked(words: &[&str]) -> Option<String> {
        let words = [&["dlx-proxy", "dead-letters"], words].concat();
        let typed = Cli::command().try_get_matches_from(words).ok()?;
        let Command::DeadLetters(asked) = Cli::from_arg_matches(&typed).ok()?.command else {
            panic!("{typed:?}");
        };
        let queue = match asked.what {
            What::List { queue, .. }
            | What::Groups { queue, .. }
            | What::Redrive { queue, .. }
            | What::Purge { queue, .. } => queue.queue,
            other => panic!("{other:?}"),
        };
        Some(path(&asked.place, [&"queues", &queue]) + &Query::of(&typed).text())
    }

    #[test]
    fn what_is_typed_is_asked_for() {
        for (words, expected) in [
            (
                "list --queue a/b?c --vhost ü --source x&y --header k=v --header l=+ --limit 5 --columns id,size",
                "%C3%BC/queues/a%2Fb%3Fc?source=x%26y&header=k%3Dv&header=l%3D%2B&limit=5",
            ),
            ("groups --queue q --output json", "%2F/queues/q"),
            ("redrive --queue q --approve --no-wait", "%2F/queues/q"),
            (
                "redrive --queue q --to-exchange x&y --to-routing-key= --history new --source s --id 1 --id 2 --limit 3 --rate 4",
                "%2F/queues/q?to-exchange=x%26y&to-routing-key=&history=new&source=s&id=1&id=2&limit=3&rate=4",
            ),
            (
                "purge --queue q --reason expired --dry-run",
                "%2F/queues/q?reason=expired&dry-run=true",
            ),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(asked(&words), Some(format!("/api/v1/vhosts/{expected}")));
        }
    }

    #[test]
    fn what_makes_no_sense_cannot_be_typed() {
        for words in [
            "redrive --to-queue a --to-exchange b",
            "redrive --to-queue a --to-routing-key b",
            "redrive --to-routing-key b",
            "redrive --history old",
            "purge --limit 0",
            "purge --rate 1000001",
            "purge --to-queue a",
            "purge --id ",
            "purge --id=",
            "purge --source ",
            "purge --reason ",
            "purge --body ",
            "purge --older-than ",
            "purge --limit ",
            "redrive --rate ",
            "redrive --to-queue ",
            "redrive --vhost ",
        ] {
            let words: Vec<&str> = words.split(' ').chain(["--queue", "q"]).collect();
            assert_eq!(asked(&words), None, "{words:?}");
        }
    }
}
