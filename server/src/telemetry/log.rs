//! The log: lines of text or JSON on stderr, each with the id of its request.
//!
//! In: a format and a filter. Out: a global `tracing` subscriber, which also receives panics, and messages of libraries
//! that use `log`; in JSON format every line is JSON. Of clients' data only checked names and paths are logged; no
//! headers, so no credentials.

use crate::error::ConfigError;
use crate::telemetry::trace;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain lines.
    #[default]
    Text,
    /// One JSON object: `timestamp`, `level`, `target`, `message`, the event's fields, and `request_id`.
    Json,
}

/// Sends the log to stderr. Call it once, before anything is logged.
///
/// # Errors
/// Fails for an invalid filter, or if the log was already started.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ConfigError> {
    let bad =
        |e: &dyn fmt::Display| ConfigError::at("log.level", format_args!("invalid level or filter `{filter}`: {e}"));
    // A misspelt level would be a target, and silence all other lines.
    let is_level = |word: &str| word.contains(['=', '[', ']', '}']) || word.parse::<LevelFilter>().is_ok();
    if let Some(word) = filter.split(',').map(str::trim).find(|word| !is_level(word)) {
        let advice = "use error, warn, info, debug, trace or off, or TARGET=LEVEL";
        return Err(bad(&format_args!("unknown level `{word}`; {advice}")));
    }
    let filter = EnvFilter::try_new(filter).map_err(|e| bad(&e))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A log without readers does not end the process.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => log.map_event_format(|inner| WithRequestId { inner, format }).try_init(),
        LogFormat::Json => {
            let log = log
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false);
            log.map_event_format(|inner| WithRequestId { inner, format }).try_init()
        }
    };
    started.map_err(|e| ConfigError::at("log", format_args!("already started: {e}")))?;
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let location = panic.location().map(ToString::to_string);
        let thread = std::thread::current().name().map(str::to_owned);
        let trace = Backtrace::capture();
        let backtrace = (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string());
        tracing::error!(target: "panic", thread, location, backtrace, "panicked: {message}");
    }));
    if ::log::set_logger(&FromLibraries).is_ok() {
        // Both crates use the same level names.
        let level = LevelFilter::current().to_string();
        ::log::set_max_level(level.parse().unwrap_or(::log::LevelFilter::Off));
    }
    Ok(())
}

impl LogFormat {
    /// Format requested on the command line or in the environment. Read without a parser, so that errors in them use
    /// this format too.
    pub fn requested(arguments: &[String], environment: Option<&str>) -> Self {
        let pairs = arguments.windows(2).map(|pair| format!("{}={}", pair[0], pair[1]));
        let is_json = |arg: &str| arg == "--log-format=json" || arg == "--set=log.format=json";
        let json = pairs.chain(arguments.iter().cloned()).any(|arg| is_json(&arg));
        match json || environment == Some("json") {
            true => Self::Json,
            false => Self::Text,
        }
    }

    /// Prints why the process ends on stderr, even if the log was not started.
    pub fn report_exit(self, message: &str) {
        match self {
            Self::Text => eprintln!("tierlab-server: {message}"),
            Self::Json => {
                let line = tracing_subscriber::fmt()
                    .with_writer(std::io::stderr)
                    .json()
                    .flatten_event(true)
                    .finish();
                tracing::subscriber::with_default(line, || tracing::error!("{message}"));
            }
        }
    }
}

/// Messages of libraries that use the `log` crate.
struct FromLibraries;

impl ::log::Log for FromLibraries {
    fn enabled(&self, metadata: &::log::Metadata<'_>) -> bool {
        metadata.level() <= ::log::max_level()
    }

    fn log(&self, record: &::log::Record<'_>) {
        let (library, message) = (record.target(), record.args());
        match record.level() {
            ::log::Level::Error => tracing::error!(target: "library", library, "{message}"),
            ::log::Level::Warn => tracing::warn!(target: "library", library, "{message}"),
            ::log::Level::Info => tracing::info!(target: "library", library, "{message}"),
            ::log::Level::Debug => tracing::debug!(target: "library", library, "{message}"),
            ::log::Level::Trace => tracing::trace!(target: "library", library, "{message}"),
        }
    }

    fn flush(&self) {}
}

/// Format whose lines contain the current request's id.
struct WithRequestId<F> {
    inner: F,
    format: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for WithRequestId<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::with_capacity(256);
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        let line = match self.format {
            LogFormat::Text => escape_controls(line),
            LogFormat::Json => line.to_owned(),
        };
        let Some(id) = trace::with_current_id(ToString::to_string) else {
            return writeln!(writer, "{line}");
        };
        // Ids contain nothing that JSON would escape.
        match (self.format, line.strip_suffix('}')) {
            (LogFormat::Json, Some(open)) => writeln!(writer, "{open},\"request_id\":\"{id}\"}}"),
            _ => writeln!(writer, "{line} request_id={id}"),
        }
    }
}

/// Replaces characters that start a line or control a terminal, so that a value cannot forge an entry.
fn escape_controls(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_that_is_asked_for_is_known_before_anything_is_parsed() {
        let of = |line: &str, environment| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            LogFormat::requested(&arguments, environment)
        };
        for line in [
            "--log-format json",
            "--x --log-format=json",
            "--set log.format=json --log-format",
        ] {
            assert_eq!(of(line, None), LogFormat::Json, "{line}");
        }
        assert_eq!(of("--tier json", None), LogFormat::Text);
        assert_eq!(of("--tier a", Some("json")), LogFormat::Json);
    }

    #[test]
    fn values_cannot_forge_a_line_of_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(file.reopen().unwrap())
            .map_event_format(|inner| WithRequestId {
                inner,
                format: LogFormat::Text,
            })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(folder = %"a\nERROR b\u{2028}\u{9b}2J", "c\rd\te");
        });
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        assert!(text.ends_with("folder=a\\nERROR b\\u{2028}\\u{9b}2J\n"), "{text:?}");
        assert!(text.contains("c\\rd\\te"), "{text:?}");
    }
}
