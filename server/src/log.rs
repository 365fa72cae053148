//! The log: lines of text or JSON on stderr, each with the id of the request that it is about.
//!
//! In: a format and a filter. Out: a global `tracing` subscriber. Nothing that a client sent is logged but names that
//! were checked and paths; no header, so no credentials.

use crate::config::ConfigError;
use crate::trace;
use serde::Deserialize;
use std::fmt;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// What a line of the log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object: `timestamp`, `level`, `target`, `message`, the event's fields, and `request_id`.
    Json,
}

/// Sends the log to stderr. Called once, before anything is logged.
///
/// # Errors
/// A filter that is none, or a log that was started already.
pub fn start(format: LogFormat, filter: &str) -> Result<(), ConfigError> {
    let bad =
        |e: &dyn fmt::Display| ConfigError::at("log.level", format_args!("`{filter}` is no level or filter: {e}"));
    let filter = EnvFilter::try_new(filter).map_err(|e| bad(&e))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
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
    started.map_err(|e| ConfigError::at("log", format_args!("it was started already: {e}")))
}

/// A format whose lines carry the current request's id.
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
        let Some(id) = trace::with_current_id(ToString::to_string) else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::with_capacity(256);
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        // Ids hold nothing that JSON would escape.
        match (self.format, line.strip_suffix('}')) {
            (LogFormat::Json, Some(open)) => writeln!(writer, "{open},\"request_id\":\"{id}\"}}"),
            _ => writeln!(writer, "{line} request_id={id}"),
        }
    }
}
