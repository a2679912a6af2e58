//! Settings as people typed them: reads the file, the environment and the flags, gives each value its place (`dlx-proxy.toml:12`), and layers
//! them with the crate `config`. That crate stops at the first wrong type and knows no lines, so typing is left to `check`.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use ::config::{ConfigError, Map, Source, Value, ValueKind};
use regex::Regex;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::{DEFAULT_TOML, FIXED_TOML, gone};
use crate::url::hidden;

const FIXED: &str = "the fixed values";
pub(super) const DEFAULTS: &str = "the defaults";
const ENVIRONMENT_PREFIX: &str = "DLX_PROXY_";
const ENVIRONMENT_FILE: &str = "DLX_PROXY_CONFIG";
/// Not settings, but read by the commands that ask a proxy.
const OF_COMMANDS: [&str; 4] = [URL, USERNAME, PASSWORD, ADMIN_CA_FILE];
pub const URL: &str = "DLX_PROXY_URL";
pub const USERNAME: &str = "DLX_PROXY_USERNAME";
pub const PASSWORD: &str = "DLX_PROXY_PASSWORD";
pub const ADMIN_CA_FILE: &str = "DLX_PROXY_ADMIN_CA_FILE";
pub(super) const POLICY: &str = "policy";
pub(super) const WRITE_POLICY: &str = "write [[policy]], as there may be several";

/// Kubernetes sets such variables in each container for each Service of the namespace. If one is
/// named `dlx-proxy` (or `dlx-proxy-admin`) they begin with our prefix, and without this exception
/// no Pod could start beside it. No setting ends like that.
static OF_KUBERNETES: LazyLock<Regex> = LazyLock::new(|| {
    let ends = r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)";
    Regex::new(&format!("^{ENVIRONMENT_PREFIX}([A-Z0-9_]+_)?{ends}$")).expect("a constant")
});

/// Sources of settings, weakest first. The defaults are below all of them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    /// All variables of the process; other programs' are ignored.
    pub environment: Vec<(OsString, OsString)>,
    /// From `--name TEXT`.
    pub flags: Vec<(&'static str, String)>,
    /// Allows values of `fixed.toml`, for tests that need low limits.
    pub may_fix: bool,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}", lines(.0))]
pub struct Mistakes(pub Vec<Mistake>);

/// Displayed as `place: setting = value: problem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `FILE:LINE`, `environment variable NAME` or `flag --NAME`.
    pub place: String,
    pub subject: Option<String>,
    pub problem: String,
}

pub(super) struct Raw {
    pub(super) values: Map<String, Value>,
    /// `default.toml` without `policy`, and `fixed.toml`.
    pub(super) defaults: Map<String, Value>,
    pub(super) mistakes: Vec<Mistake>,
}

/// A source, for the crate `config`, which merges such maps by name.
#[derive(Clone, Debug)]
struct Layer(Map<String, Value>);

pub(super) fn read(sources: &Sources) -> Raw {
    let mut mistakes = Vec::new();
    let Layer(mut defaults) = toml_layer(DEFAULTS, DEFAULT_TOML, &mut mistakes);
    let Layer(fixed) = toml_layer(FIXED, FIXED_TOML, &mut mistakes);
    let settings = defaults.clone();
    defaults.extend(fixed);
    let known = if sources.may_fix {
        &defaults
    } else {
        &settings
    };
    let file = file_layer(sources, &mut mistakes).only(known, &mut mistakes);
    let environment = environment_layer(sources, known, &mut mistakes);
    let flags = Layer(
        sources
            .flags
            .iter()
            .map(|(name, text)| (name.to_string(), value(&format!("flag --{name}"), text)))
            .collect(),
    );
    let values = ::config::Config::builder()
        .add_source(Layer(defaults.clone()))
        .add_source(file)
        .add_source(environment)
        .add_source(flags)
        .build()
        .and_then(|layered| layered.cache.into_table()); // deserializing would lose the places
    Raw {
        values: values.expect("the layers are maps in memory"),
        defaults,
        mistakes,
    }
}

fn file_layer(sources: &Sources, mistakes: &mut Vec<Mistake>) -> Layer {
    let Some(path) = sources.path() else {
        return Layer(Map::new());
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => toml_layer(&path.display().to_string(), &text, mistakes),
        Err(error) => {
            mistakes.push(Mistake::new(
                hidden(&path.display().to_string()),
                None,
                format!("cannot be read: {error}"),
            ));
            Layer(Map::new())
        }
    }
}

fn environment_layer(
    sources: &Sources,
    known: &Map<String, Value>,
    mistakes: &mut Vec<Mistake>,
) -> Layer {
    let mut layer = Map::new();
    let mut variables: Vec<_> = sources.environment.iter().collect();
    variables.sort(); // for the order of the mistakes: the environment has none that a reader would know
    for (name, text) in variables {
        let Some(name) = name
            .to_str()
            .filter(|name| name.starts_with(ENVIRONMENT_PREFIX))
        else {
            continue;
        };
        if name == ENVIRONMENT_FILE || OF_COMMANDS.contains(&name) || OF_KUBERNETES.is_match(name) {
            continue;
        }
        let place = format!("environment variable {name}");
        let setting = setting_of(name);
        match text.to_str() {
            _ if setting == POLICY => mistakes.push(Mistake::new(
                place,
                None,
                "policies are taken from the file only",
            )),
            _ if name != variable_of(&setting) || !known.contains_key(&setting) => {
                let others = OF_COMMANDS.iter().chain([&ENVIRONMENT_FILE]);
                let others: Vec<_> = others.map(|name| setting_of(name)).collect();
                let known = known.keys().chain(&others).map(String::as_str);
                let meant = nearest(&setting, known).map(variable_of);
                mistakes.push(unknown(&place, &setting, None, meant));
            }
            None => mistakes.push(Mistake::new(place, None, "its value is not UTF-8")),
            Some(text) => drop(layer.insert(setting, value(&place, text))),
        }
    }
    Layer(layer)
}

fn toml_layer(name: &str, text: &str, mistakes: &mut Vec<Mistake>) -> Layer {
    let place =
        |span: Range<usize>| format!("{name}:{}", 1 + text[..span.start].matches('\n').count());
    let (table, mut errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Layer(from_table(table.get_ref(), &place));
    }
    errors.sort_by_key(|error| error.span().map(|span| span.start));
    for error in errors {
        // Not its Display: that quotes the line, and the line may hold a password.
        let problem = format!("not TOML: {}", error.message());
        mistakes.push(Mistake::new(
            error.span().map_or(name.to_owned(), &place),
            None,
            problem,
        ));
    }
    Layer(Map::new()) // half a value would be a mistake of its own
}

fn from_table(table: &DeTable<'_>, place: &dyn Fn(Range<usize>) -> String) -> Map<String, Value> {
    // The key's line, not the value's: a value may begin lines later, an array of tables has none of its own.
    table
        .iter()
        .map(|(key, value)| {
            (
                key.get_ref().to_string(),
                from_toml(value.get_ref(), place(key.span()), place),
            )
        })
        .collect()
}

fn from_toml(value: &DeValue<'_>, at: String, place: &dyn Fn(Range<usize>) -> String) -> Value {
    let kind = match value {
        DeValue::String(text) => ValueKind::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(
                |_| ValueKind::String(number.to_string()), // too long for any setting: each says so in its own words
                ValueKind::I64,
            ),
        DeValue::Float(number) => ValueKind::String(number.to_string()),
        DeValue::Boolean(yes) => ValueKind::Boolean(*yes),
        DeValue::Datetime(time) => ValueKind::String(time.to_string()),
        DeValue::Array(items) => ValueKind::Array(
            items
                .iter()
                .map(|item| from_toml(item.get_ref(), place(item.span()), place))
                .collect(),
        ),
        DeValue::Table(table) => ValueKind::Table(from_table(table, place)),
    };
    Value::new(Some(&at), kind)
}

fn value(place: &str, text: &str) -> Value {
    Value::new(Some(&place.to_owned()), text)
}

fn setting_of(variable: &str) -> String {
    variable[ENVIRONMENT_PREFIX.len()..]
        .to_ascii_lowercase()
        .replace('_', "-")
}

fn variable_of(setting: &str) -> String {
    format!(
        "{ENVIRONMENT_PREFIX}{}",
        setting.to_ascii_uppercase().replace('-', "_")
    )
}

/// The known name with the smallest edit distance, if two thirds of it match.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let most = (name.chars().count() / 3).max(1);
    let known = known.map(|known| (strsim::osa_distance(&name, known), known));
    let (edits, known) = known.min()?;
    (edits <= most).then_some(known)
}

/// An unknown name; `meant` is a suggestion. Hides the value, which may be a password.
fn unknown(place: &str, name: &str, subject: Option<String>, meant: Option<String>) -> Mistake {
    let remedy = match (gone::instead(name, None), meant) {
        (Some(words), _) => words.to_owned(),
        (None, Some(meant)) => format!("did you mean {meant}?"),
        (None, None) => "`dlx-proxy config default` prints all there are".to_owned(),
    };
    Mistake::new(
        place,
        subject,
        format!("there is no such setting; {remedy}"),
    )
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes
        .iter()
        .map(Mistake::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

// === impl Sources ===

impl Sources {
    pub fn path(&self) -> Option<PathBuf> {
        let mut variables = self.environment.iter();
        let named = variables.find(|(name, _)| name == ENVIRONMENT_FILE);
        let file = self.file.clone();
        file.or_else(|| named.map(|(_, path)| PathBuf::from(path)))
    }
}

// === impl Mistake ===

impl Mistake {
    pub(super) fn new(
        place: impl fmt::Display,
        subject: Option<String>,
        problem: impl Into<String>,
    ) -> Self {
        Self {
            place: place.to_string(),
            subject,
            problem: problem.into(),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(subject) => write!(f, "{}: {subject}: {}", self.place, self.problem),
            None => write!(f, "{}: {}", self.place, self.problem),
        }
    }
}

// === impl Layer ===

impl Layer {
    /// Keeps known settings; others become mistakes. Must precede the merge: `config` parses dots
    /// and brackets in names as paths, and splits tables.
    fn only(self, known: &Map<String, Value>, mistakes: &mut Vec<Mistake>) -> Self {
        let mut ours = Map::new();
        let first = mistakes.len();
        for (name, value) in self.0 {
            let place = value.origin().unwrap_or_default();
            if name != POLICY && !known.contains_key(&name) {
                let known = known.keys().map(String::as_str).chain([POLICY]);
                let meant = nearest(&name, known).map(|meant| format!("`{meant}`"));
                mistakes.push(unknown(place, &name, Some(hidden(&name)), meant));
            } else if matches!(value.kind, ValueKind::Table(_)) {
                let problem = if name == POLICY {
                    WRITE_POLICY
                } else {
                    "write one value, not a table"
                };
                mistakes.push(Mistake::new(place, Some(name), problem));
            } else {
                ours.insert(name, value);
            }
        }
        mistakes[first..].sort_by(|a, b| a.subject.cmp(&b.subject)); // a map has no order
        Self(ours)
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}
