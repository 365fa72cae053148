//! Resumption of a stopped run. In: its folder, and the current plan and environment. Out: the run with its finished
//! steps, or the reason for which it cannot be resumed. Changes that would affect a figure are refused; changes that
//! may only explain one are recorded in the result.

use super::time::rfc3339;
use super::{folder, journal};
use crate::error::RunError;
use crate::plan::{Plan, redacted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tierlab_analysis::record::{CarriedCertificate, Environment, Run};

/// Unfinished run.
#[derive(Debug)]
pub struct StoppedRun {
    /// Folder of the run.
    pub folder: PathBuf,
    /// Content of its `run.json`, histograms of the noise floor included.
    pub run: Run,
}

impl StoppedRun {
    /// Reads the folder and compares it with the plan.
    ///
    /// # Errors
    /// No run in the folder, a finished one, or one of another plan.
    pub fn open(folder: &Path, plan: &Plan) -> Result<Self, RunError> {
        let run = folder::load(folder).map_err(|error| RunError::Usage(error.to_string()))?;
        if !run.interrupted {
            let problem = "this run is finished: `report` writes its files again; remove --resume to measure again";
            return Err(RunError::about(folder, problem));
        }
        if !journal::exists(folder) {
            let problem = "the journal of its steps is missing; measure again without --resume";
            return Err(RunError::about(folder, problem));
        }
        if let Some(difference) = first_difference(&redacted(&run.plan_toml), &redacted(&plan.text)) {
            let file = plan.file.display();
            let why = format!("{file} is not the plan of this run: {difference}; give that plan, or remove --resume");
            return Err(RunError::about(folder, why));
        }
        Ok(Self {
            folder: folder.to_owned(),
            run,
        })
    }

    /// Checks the hashes of the current files.
    ///
    /// # Errors
    /// A file that affects the measurement has changed.
    pub fn check_files(&self, new: &BTreeMap<String, String>) -> Result<(), RunError> {
        let Some(file) = changed_file(&self.run.config_sha256, new) else {
            return Ok(());
        };
        let problem = format!("{file} has changed since the start of this run; restore it, or remove --resume");
        Err(RunError::about(&self.folder, problem))
    }

    /// Returns the run to resume: its beginning, without the points, which its journal holds.
    ///
    /// # Errors
    /// Another file that affects the measurement has changed.
    pub fn resume(self, new: &Run) -> Result<Run, RunError> {
        self.check_files(&new.config_sha256)?;
        let mut run = self.run;
        let at = rfc3339(SystemTime::now());
        let key = |carried: &CarriedCertificate| (carried.certificate.clone(), carried.doubts.clone());
        let latest = run.certificates.last().map(key);
        let added = new.certificates.iter().filter(|other| latest != Some(key(other)));
        run.certificates.extend(added.map(|certificate| CarriedCertificate {
            part: Some(format!("resumed at {at}")),
            ..certificate.clone()
        }));
        run.resumed.push(tierlab_analysis::record::Resumption {
            at,
            finished_steps: run.points.iter().map(|point| point.repeats.len()).sum(),
            differences: differences(&run.environment, &new.environment),
        });
        run.points.clear();
        Ok(run)
    }
}

/// Describes the first line in which two texts differ; `None` if they are equal.
fn first_difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (mut old, mut new) = (old.lines(), new.lines());
    for number in 1.. {
        let line = |line: Option<&str>| line.map_or_else(|| "nothing".to_owned(), |line| format!("`{line}`"));
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => return Some(format!("line {number} was {} and is {}", line(a), line(b))),
        }
    }
    Some("its line endings changed".into())
}

/// Returns a current file with new content. Paths do not count: the command may have been run from elsewhere.
fn changed_file<'a>(old: &BTreeMap<String, String>, new: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let hashes: BTreeSet<&String> = old.values().collect();
    let changed = new.iter().find(|(_, hash)| !hashes.contains(hash));
    changed.map(|(file, _)| file.as_str())
}

/// Differences between two environments, in words. Ports of origins change from run to run and are left out.
fn differences(old: &Environment, new: &Environment) -> Vec<String> {
    type Fact = fn(&Environment) -> String;
    let facts: [(&str, Fact); 8] = [
        ("CPU", |of| of.cpu.clone()),
        ("cores", |of| of.cores.to_string()),
        ("kernel", |of| of.kernel.clone()),
        ("file systems", |of| {
            Vec::from_iter(of.filesystems.values().cloned()).join(", ")
        }),
        ("GPUs", |of| of.gpus.join(", ")),
        ("ONNX Runtime", |of| of.onnxruntime.clone()),
        ("commit", |of| of.git_commit.clone()),
        ("version", |of| of.version.clone()),
    ];
    let mut facts = Vec::from(facts.map(|(property, of)| (property.to_owned(), of(old), of(new))));
    let origins: BTreeSet<&String> = old.origins.keys().chain(new.origins.keys()).collect();
    for tier in origins {
        let of = |environment: &Environment| without_ports(environment.origins.get(tier).map_or("", String::as_str));
        facts.push((format!("tier {tier}"), of(old), of(new)));
    }
    let changed = facts.into_iter().filter(|(_, old, new)| old != new);
    let lines = changed.map(|(property, old, new)| format!("{property} was `{old}` and is `{new}`"));
    lines.collect()
}

fn without_ports(text: &str) -> String {
    let mut pieces = text.split(':');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push(':');
        out += piece.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_changed_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let named = first_difference("a\nrepeats = 3\n", "a\nrepeats = 5\n").unwrap();
        assert_eq!(named, "line 2 was `repeats = 3` and is `repeats = 5`");
        assert_eq!(
            first_difference("a\n", "a\nb\n").unwrap(),
            "line 2 was nothing and is `b`"
        );
        assert!(first_difference("a\n", "a").is_some());
    }

    #[test]
    fn files_are_known_by_content() {
        let files = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|&(path, hash)| (path.to_owned(), hash.to_owned()));
            owned.collect::<BTreeMap<_, _>>()
        };
        let then = files(&[("plan.toml", "1"), ("server.toml", "2")]);
        assert_eq!(
            changed_file(&then, &files(&[("../plan.toml", "1"), ("../server.toml", "2")])),
            None
        );
        assert_eq!(
            changed_file(&then, &files(&[("plan.toml", "1"), ("server.toml", "3")])),
            Some("server.toml")
        );
    }

    #[test]
    fn surroundings_are_compared_without_ports() {
        let mut then = Environment {
            kernel: "6.1".into(),
            ..Environment::default()
        };
        then.origins
            .insert("s3".into(), "embedded; http://127.0.0.1:4100/b".into());
        let mut now = then.clone();
        now.origins
            .insert("s3".into(), "embedded; http://127.0.0.1:4200/b".into());
        assert_eq!(differences(&then, &now), Vec::<String>::new());
        now.kernel = "6.2".into();
        now.origins.insert("s3".into(), "real; https://s3.example:443/b".into());
        let found = differences(&then, &now);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "kernel was `6.1` and is `6.2`");
    }
}
