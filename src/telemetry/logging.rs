//! Where log lines go and how they look: standard error, as text for people or one JSON object a line.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};

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

/// The level of what is logged, which can be changed.
pub struct Level(reload::Handle<Targets, Registry>);

// === impl Level ===

impl Level {
    /// Replaces the level of the log from now on.
    pub fn set(&self, level: LogLevel) {
        // It fails only if nothing logs any more.
        let _ = self.0.reload(filter(level));
    }
}

/// Begins to log, for the whole process: the one global thing, as `tracing` has it so.
///
/// # Errors
/// Something logs already.
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
            .boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter(level));
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .try_init()?;
    Ok(Level(handle))
}

/// How the fields of a line are written for people. Names and words of peers stand in them, so no control character gets through: a line
/// stays one line, and a terminal obeys nobody. (JSON escapes by itself.)
pub(super) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(field).delimited(" ")
}

fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{field}=")?;
    }
    write!(Printable(writer), "{value:?}")
}

/// Escapes control characters, and the other two that end a line.
struct Printable<'a, 'writer>(&'a mut Writer<'writer>);

// === impl Printable ===

impl Write for Printable<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| match char {
            '\u{2028}' | '\u{2029}' => write!(self.0, "{}", char.escape_unicode()),
            _ if char.is_control() => write!(self.0, "{}", char.escape_default()),
            _ => self.0.write_char(char),
        })
    }
}

/// Our own lines by setting; those of the libraries only when something is wrong there.
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
