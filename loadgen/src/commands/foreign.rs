//! Existing server of any make. In: a `[target]`. Out: the measured target, with as much as the server reports of
//! itself.

use crate::error::RunError;
use crate::plan::{Plan, TargetPlan};
use crate::runner::target::Target;
use crate::server::control::{Control, ControlError};
use crate::server::scrape::Scrape;

/// Server that answered.
#[derive(Debug)]
pub struct Found {
    /// Target to measure; the caller sets its tier and its cache.
    pub target: Target,
    /// Source of its metrics; empty if none are read.
    pub scrape: Scrape,
    /// Bytes of the table that its model joins; 0 without one, or if the server does not report it.
    pub table_bytes: u64,
    /// Properties that the server does not report, in words.
    pub notes: Vec<String>,
}

/// Asks a server for its model.
///
/// # Errors
/// No address, no server, no such model, or files of the target that cannot be read.
pub async fn open(plan: &Plan, server: &TargetPlan) -> Result<Found, RunError> {
    let Some(spec) = server.spec() else {
        return Err(RunError::Usage(format!(
            "{}: where is the server? Give --url http://HOST:PORT, or `[target] url = ...` in the plan",
            plan.file.display()
        )));
    };
    // Wrong arguments have another exit code than a server that does not answer.
    let usage = |error: ControlError| RunError::Usage(error.to_string());
    Control::of(&spec).map_err(usage)?;
    let (control, notes) = Control::open(&spec, server.metrics.as_deref(), &plan.model).await?;
    let scrape = control.scrape().await?;
    let (target, table_bytes) = Target::ask(plan, &spec, control).await?;
    Ok(Found {
        target,
        scrape,
        table_bytes,
        notes,
    })
}

/// Prints on stderr the properties that a server does not report.
pub fn say(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}
