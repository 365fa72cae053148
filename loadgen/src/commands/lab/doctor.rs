//! Warnings of the storage bench's `doctor` about this machine, if that program is beside this one. In: the folder of
//! the programs. Out: sentences for the report. A lab also runs without them.

use crate::children;
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Time limit of the program, which reads some files of the kernel.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum warnings.
const MAX_WARNINGS: usize = 20;

/// Part of the program's JSON.
#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    level: String,
    about: String,
    found: String,
    effect: Option<String>,
    measured: Option<String>,
    change: Option<String>,
}

/// Returns its warnings; none if the program is missing or does not answer.
pub(super) async fn warnings(folder: Option<&Path>) -> Vec<String> {
    let Ok(program) = children::program(folder, "tierlab-storage-bench") else {
        return Vec::new();
    };
    let mut command = Command::new(program);
    command.args(["doctor", "--no-measure", "--json"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    match tokio::time::timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) if output.status.success() => sentences(&output.stdout),
        _ => Vec::new(),
    }
}

fn sentences(json: &[u8]) -> Vec<String> {
    let Ok(report) = serde_json::from_slice::<Report>(json) else {
        return Vec::new();
    };
    let warnings = report.findings.into_iter().filter(|finding| finding.level == "warning");
    warnings.take(MAX_WARNINGS).map(sentence).collect()
}

fn sentence(finding: Finding) -> String {
    let size = finding.measured.as_deref().unwrap_or("not measured");
    let effect = finding.effect.map(|effect| format!("; {effect} ({size})"));
    let change = finding.change.map(|change| format!(". To change it: {change}"));
    let details = effect.unwrap_or_default() + &change.unwrap_or_default();
    format!("{}: {}{details}", finding.about, finding.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_become_sentences_and_the_rest_is_left() {
        let json = br#"{"schema": 1, "machine": {}, "findings": [
            {"level": "warning", "about": "CPU governor", "found": "powersave", "effect": "slow", "change": "cpupower"},
            {"level": "warning", "about": "CPU limit", "found": "1 of 4", "effect": "waits", "measured": "throttled in 3 of 9 periods"},
            {"level": "warning", "about": "a", "found": "b"},
            {"level": "fine", "about": "NUMA", "found": "one node"}]}"#;
        assert_eq!(
            sentences(json),
            [
                "CPU governor: powersave; slow (not measured). To change it: cpupower",
                "CPU limit: 1 of 4; waits (throttled in 3 of 9 periods)",
                "a: b"
            ]
        );
        assert!(sentences(b"error: x").is_empty() && sentences(br#"{"findings": 3}"#).is_empty());
    }

    #[tokio::test]
    async fn a_lab_goes_on_without_the_program() {
        let folder = tempfile::tempdir().unwrap();
        assert!(warnings(Some(folder.path())).await.is_empty());
        // One that ends in an error, and says something all the same.
        let program = folder.path().join("tierlab-storage-bench");
        std::fs::write(&program, "#!/bin/sh\necho '{\"findings\": [{\"level\": \"warning\", \"about\": \"a\", \"found\": \"b\"}]}'\nexit $1\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        assert!(warnings(Some(folder.path())).await.is_empty());
        let script = "#!/bin/sh\n[ \"$*\" = 'doctor --no-measure --json' ] || exit 1\n\
                      echo '{\"findings\": [{\"level\": \"warning\", \"about\": \"a\", \"found\": \"b\"}]}'\n";
        std::fs::write(&program, script).unwrap();
        assert_eq!(warnings(Some(folder.path())).await, ["a: b"]);
    }
}
