//! A server that somebody runs already, of whatever make. In: a `[target]`. Out: what is measured of it, from its own words as far as it
//! says any.

use crate::error::RunError;
use crate::plan::{Plan, TargetPlan};
use crate::runner::target::{Content, Target};
use crate::server::control::{Control, ControlError};
use crate::server::scrape::Scrape;
use std::collections::BTreeMap;

/// A server that answered.
#[derive(Debug)]
pub struct Found {
    /// What is measured; its tier and its cache are the caller's to say.
    pub target: Target,
    /// What its metrics say; nothing where none are read.
    pub scrape: Scrape,
    /// Bytes of the table that its model joins; 0 where it joins none, or does not say.
    pub table_bytes: u64,
    /// What it does not say, in words.
    pub notes: Vec<String>,
}

/// Asks a server for its model.
///
/// # Errors
/// No address, no server, no such model, or what cannot be read of what the target names.
pub async fn open(plan: &Plan, server: &TargetPlan) -> Result<Found, RunError> {
    let Some(spec) = server.spec() else {
        return Err(RunError::Usage(format!(
            "{}: where is the server? Give --url http://HOST:PORT, or `[target] url = ...` in the plan",
            plan.file.display()
        )));
    };
    // What is wrong with what was given is told from a server that does not answer.
    let usage = |error: ControlError| RunError::Usage(error.to_string());
    Control::of(&spec).map_err(usage)?;
    let (control, notes) = Control::open(&spec, server.metrics.as_deref(), &plan.model).await?;
    let scrape = control.scrape().await?;
    if let (Some(spec), Some(custom)) = (&spec.custom, control.custom()) {
        let content = Content::custom(plan, spec, custom);
        return Ok(Found {
            target: Target::of(control, content, BTreeMap::new()),
            scrape,
            table_bytes: 0,
            notes,
        });
    }
    let model = control.model(&plan.model).await?;
    let joined = model.joined.as_ref();
    let table_bytes = joined.map_or(0, |joined| joined.rows * u64::from(joined.row_bytes));
    let content = Content::of(plan, &model)?;
    let outputs = BTreeMap::from([(plan.model.clone(), model.outputs)]);
    Ok(Found {
        target: Target::of(control, content, outputs),
        scrape,
        table_bytes,
        notes,
    })
}

/// Says on stderr what a server does not tell.
pub fn say(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}
