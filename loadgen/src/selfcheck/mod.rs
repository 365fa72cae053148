//! Self-check of the instrument: [`checks`](mod@checks) with known answers on a [`null_endpoint`], a child process,
//! with their [`certificate`] for later runs, and the checks before a run ([`mod@prove`]).

pub mod certificate;
pub mod checks;
pub mod null_endpoint;
pub mod prove;

use crate::error::RunError;
use certificate::CertificateStore;
use std::path::Path;
use tierlab_load::interrupt::Interrupt;

/// Runs every check, prints them as a table, and stores their certificate.
///
/// # Errors
/// A check failed, or the null endpoint could not be driven.
pub async fn run(json: Option<&Path>, certificates: &CertificateStore, interrupt: &Interrupt) -> Result<u8, RunError> {
    let file = certificates.file()?;
    eprintln!("self-check: about {} s", checks::SECONDS);
    let checks = Box::pin(checks::checks(interrupt)).await?;
    println!("{}", checks::table(&checks));
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&checks).unwrap_or_default();
        std::fs::write(file, text + "\n").map_err(RunError::io(file))?;
    }
    // Stored even with failed lines: later runs must not rest on an older certificate that was better.
    certificates.store(&certificate::new_certificate(checks.clone())?)?;
    eprintln!("certificate: {}", file.display());
    let failed = checks.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        return Err(RunError::Failed(format!(
            "{failed} of {} checks failed: figures measured on this machine now cannot be trusted",
            checks.len()
        )));
    }
    Ok(0)
}
