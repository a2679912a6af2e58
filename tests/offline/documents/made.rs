//! Tables that are made from the code. In a document they stand between `<!-- made: NAME ... -->` and `<!-- end -->`:
//!
//! - `settings`: all settings, each with a heading, from `default.toml`
//! - `metrics`: the table of `src/telemetry/metrics.rs`
//! - `fixed`: the values that nobody tunes, from `fixed.toml`
//! - `events`: that of `src/telemetry/facts.rs`
//! - `commands`: those of the command line, with their arguments
//! - `causes`: why a dead letter was not confirmed, or a request was left to the broker

use clap::{Arg, Command, CommandFactory};
use dlx_proxy::config::{DEFAULT_TOML, FIXED_TOML, RELOADED};
use dlx_proxy::console::cli::Cli;
use dlx_proxy::machine::{Cause, Fallback};
use dlx_proxy::telemetry::{Metrics, facts};
use regex::{Captures, Regex};

use super::super::{assert_made_from_code, text_of};
use super::documents;

#[test]
fn tables_are_what_the_code_says() {
    let mut tables = 0;
    for document in documents() {
        let text = text_of(&document);
        tables += text.matches("<!-- made: ").count();
        assert_made_from_code(&document, &remade(&text));
    }
    assert_eq!(tables, 6);
}

/// The document with its tables made anew.
fn remade(text: &str) -> String {
    let part = Regex::new(r"(?s)(<!-- made: ([^>]*) -->\n).*?(<!-- end -->)").expect("a pattern");
    let make = |part: &Captures<'_>| {
        let words: Vec<_> = part[2].split(' ').collect();
        let made = match words[..] {
            ["settings"] => sections(DEFAULT_TOML)
                .iter()
                .map(Section::document)
                .collect(),
            ["metrics"] => metrics(),
            ["fixed"] => fixed(),
            ["events"] => events(),
            ["causes"] => causes(),
            ["commands"] => commands(),
            _ => unreachable!("nothing makes {words:?}"),
        };
        format!("{}{made}{}", &part[1], &part[3])
    };
    part.replace_all(text, make).into_owned()
}

fn metrics() -> String {
    let metrics = Metrics::new();
    let rows = metrics.descriptions().iter();
    let rows: String = rows.map(|metric| format!("{metric}\n")).collect();
    format!("| name | type | labels | what it says |\n|---|---|---|---|\n{rows}")
}

/// What is counted under the same name is one event: the first line stands for it.
fn events() -> String {
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for fact in facts::ALL {
        let Some(event) = fact.event else { continue };
        if rows.iter().all(|(other, _)| *other != event) {
            rows.push((event, fact.words));
        }
    }
    let rows = rows
        .iter()
        .map(|(event, words)| format!("| `{event}` | {words} |\n"));
    format!(
        "| event | its line in the log |\n|---|---|\n{}",
        rows.collect::<String>()
    )
}

fn fixed() -> String {
    let sections = sections(FIXED_TOML);
    let values = sections.iter().flat_map(|part| &part.settings);
    let rows = values.map(|value| {
        let Setting {
            name,
            default,
            words,
        } = value;
        format!(
            "| `{name}` | `{default}` | {} |\n",
            words.replace('\n', " ")
        )
    });
    format!(
        "| name | value | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// Each command that does something, in the order of its help.
fn commands() -> String {
    let mut program = <Cli as CommandFactory>::command();
    program.build();
    leaves(&program).into_iter().map(command).collect()
}

fn leaves(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands();
    let below: Vec<_> = below.filter(|it| it.get_name() != "help").collect();
    // Some do something by themselves, too.
    let alone = (!command.is_subcommand_required_set()).then_some(command);
    alone
        .into_iter()
        .chain(below.into_iter().flat_map(leaves))
        .collect()
}

fn command(command: &Command) -> String {
    let name = command.get_bin_name().expect("it is built");
    let about = command.get_about().expect("each has one");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let arguments = command.get_arguments();
    // Those of the connection and the output are the same everywhere: they stand above.
    let own = arguments.filter(|it| !it.is_global_set() && it.get_id() != "help");
    let rows: String = own.map(row).collect();
    let table = match rows.is_empty() {
        true => String::new(),
        false => format!("| argument | meaning |\n|---|---|\n{rows}\n"),
    };
    let after = command.get_after_help().map(|after| format!("{after}\n\n"));
    format!(
        "## {name}\n\n{about}.\n\n```text\n{usage}\n```\n\n{table}{}",
        after.unwrap_or_default()
    )
}

fn row(argument: &Arg) -> String {
    let value = argument.get_value_names().unwrap_or_default().join(" ");
    let long = argument.get_long().map(|long| format!("--{long}"));
    let takes = argument.get_action().takes_values() && long.is_some();
    let named = match (argument.get_short(), &long) {
        (Some(short), Some(long)) => format!("-{short}, {long}"),
        (_, Some(long)) => long.clone(),
        _ => value.clone(),
    };
    let value = if takes {
        format!(" {value}")
    } else {
        String::new()
    };
    let words = argument.get_help().map(ToString::to_string);
    let words = words
        .unwrap_or_default()
        .replace('|', "\\|")
        .replace('<', "&lt;");
    format!("| `{named}{value}` | {words} |\n")
}

fn causes() -> String {
    let dead_letters = Cause::ALL.map(|cause| (cause.as_str(), "dead letter", cause.words()));
    let requests = Fallback::ALL.map(|cause| (cause.as_str(), "request", cause.words()));
    let rows = dead_letters.iter().chain(&requests);
    let rows = rows.map(|(cause, of, words)| format!("| `{cause}` | {of} | {words} |\n"));
    format!(
        "| cause | of a | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// What stands in `default.toml` below one `# --- title ---`. Its comments are Markdown.
#[derive(Default)]
struct Section {
    title: String,
    settings: Vec<Setting>,
    /// Behind its last setting: words, then an example.
    words: String,
    example: String,
}

struct Setting {
    name: String,
    default: String,
    words: String,
}

impl Section {
    fn document(&self) -> String {
        let Section { title, words, .. } = self;
        let settings: String = self.settings.iter().map(Setting::document).collect();
        let words = match words.is_empty() {
            true => String::new(),
            false => format!("{words}\n\n```toml\n{}```\n\n", self.example),
        };
        format!("## {title}\n\n{settings}{words}")
    }
}

impl Setting {
    fn document(&self) -> String {
        let Setting {
            name,
            default,
            words,
        } = self;
        let variable = name.to_uppercase().replace('-', "_");
        let change = match RELOADED.contains(name) {
            true => "a reload changes it",
            false => "needs a restart",
        };
        format!("### {name}\n\n`{default}` · `DLX_PROXY_{variable}` · {change}\n\n{words}\n\n")
    }
}

fn sections(toml: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for line in toml.lines() {
        if let Some(title) = line.strip_prefix("# --- ") {
            sections.push(Section {
                title: title.trim_end_matches([' ', '-']).to_owned(),
                ..Section::default()
            });
            continue;
        }
        // What stands above the first section is about the file.
        let Some(section) = sections.last_mut() else {
            continue;
        };
        if line == "# [[policy]]" || !section.example.is_empty() {
            let code = line.trim_start_matches('#');
            let code = code.strip_prefix(' ').unwrap_or(code);
            section.example += &format!("{code}\n");
        } else if let Some(comment) = line.strip_prefix('#') {
            words.push(comment.trim());
            section.words = words.join("\n").trim().to_owned();
        } else if let Some((name, default)) = line.split_once(" = ") {
            assert!(!words.is_empty(), "{name} says nothing");
            section.settings.push(Setting {
                name: name.to_owned(),
                default: default.to_owned(),
                words: words.join("\n"),
            });
            words.clear();
            section.words.clear();
        }
    }
    sections
}
