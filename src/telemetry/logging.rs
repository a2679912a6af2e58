//! Where log lines go and how they look: standard error, as text for people or one JSON object a line.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogFormat, LogLevel};
use crate::letter::is_harmless;
use crate::plain;

pub struct Level(reload::Handle<Targets, Registry>);

// === impl Level ===

impl Level {
    pub fn set(&self, level: LogLevel) {
        // It fails only if nothing logs any more.
        let _ = self.0.reload(filter(level));
    }
}

/// Global, as `tracing` requires.
///
/// # Errors
/// A logger is installed already.
pub fn start(format: LogFormat, level: LogLevel) -> Result<Level, TryInitError> {
    // Colours are for eyes only, and not for those who asked for none (https://no-color.org).
    let ansi = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Text => lines.with_ansi(ansi).fmt_fields(fields()).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .with_writer(|| Json(io::stderr()))
            .boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter(level));
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()?;
    Ok(Level(handle))
}

/// Formats fields for people. Peers choose names and texts, so each value other than a plain word
/// is quoted: it cannot add fields or lines, or control a terminal.
pub(super) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(field).delimited(" ")
}

fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&plain::line(&text)),
        name if is_word(&text) || is_in_quotes(&text) => {
            write!(writer, "{name}={}", plain::line(&text))
        }
        name => write!(writer, "{name}={text:?}"),
    }
}

/// Cannot end a value, a list of fields or a span.
fn is_word(text: &str) -> bool {
    let ends = |char: char| char.is_whitespace() || !is_harmless(char) || "\"={}".contains(char);
    !text.is_empty() && !text.contains(ends)
}

/// `Debug` output of a string: only the last quote ends it.
fn is_in_quotes(text: &str) -> bool {
    let inside = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let Some(inside) = inside else { return false };
    let mut is_escaped = false;
    let ends_there = inside.chars().any(|char| {
        let is_quote = char == '"' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_quote
    });
    !ends_there && !is_escaped
}

/// Also escapes terminal controls, of which JSON itself escapes only some.
pub(super) struct Json<W>(pub(super) W);

// === impl Json ===

impl<W: Write> Write for Json<W> {
    /// `tracing` writes whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let plain = plain::json(&String::from_utf8_lossy(line));
        self.0.write_all(plain.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn filter(level: LogLevel) -> Targets {
    let ours = LevelFilter::from(level);
    Targets::new()
        .with_default(ours.min(LevelFilter::WARN))
        .with_target("dlx_proxy", ours)
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}
