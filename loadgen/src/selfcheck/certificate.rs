//! Certificate of the self-check, stored on a machine for later runs.
//!
//! In: finished checks, this machine, this program. Out: a file, and its validity for a current run. Must not know how
//! the checks are made, nor how a certificate is shown.

use crate::environment;
use crate::error::RunError;
use crate::store::files::write_atomically;
use crate::store::folder::sha256_of;
use crate::store::time::{parse_rfc3339, rfc3339};
use anyhow::anyhow;
use clap::Args;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::{CarriedCertificate, Certificate, Check, Machine, Program, VALID_DAYS};
use tierlab_instrument::host::Host;

/// Path below the user's state folder.
const FILE: &str = "tierlab/certificate.json";

/// Returns the user's state folder (XDG Base Directory Specification: relative values are ignored). `variable` reads
/// the environment.
pub(crate) fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))
}

/// Store of this machine's certificate.
#[derive(Debug, Clone, Args)]
pub struct CertificateStore {
    /// File of the self-check's certificate [default: tierlab/certificate.json in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "certificate", value_name = "FILE", env = "TIERLAB_CERTIFICATE")]
    file: Option<PathBuf>,
}

impl CertificateStore {
    /// Returns the chosen file, or else the one in the user's state folder.
    ///
    /// # Errors
    /// No file was chosen, and the user has no state folder.
    pub fn file(&self) -> Result<PathBuf, RunError> {
        self.file_by(|name| std::env::var_os(name))
    }

    fn file_by(&self, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, RunError> {
        let default = || Some(state_folder(variable)?.join(FILE));
        let problem = "no folder for certificates: neither XDG_STATE_HOME nor HOME is set; pass --certificate FILE";
        let file = self.file.clone().or_else(default);
        file.ok_or_else(|| RunError::Usage(problem.into()))
    }

    /// Replaces the certificate: a reader sees the old one or the new one.
    ///
    /// # Errors
    /// No file for it, or one that cannot be written.
    pub fn store(&self, certificate: &Certificate) -> Result<(), RunError> {
        let file = self.file()?;
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(RunError::io(folder))?;
        }
        let mut text = serde_json::to_vec_pretty(certificate)
            .map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        text.push(b'\n');
        Ok(write_atomically(&file, &text)?)
    }

    /// Returns the stored certificate, compared with this machine, this program and the time.
    pub fn assess(&self) -> CarriedCertificate {
        match self.read() {
            Ok(certificate) => judge_now(certificate),
            Err(doubt) => CarriedCertificate {
                doubts: vec![doubt.to_string()],
                ..CarriedCertificate::default()
            },
        }
    }

    fn read(&self) -> anyhow::Result<Certificate> {
        let file = self.file()?;
        let text = fs::read(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("{} does not exist", file.display()),
            _ => anyhow!("{}: {error}", file.display()),
        })?;
        serde_json::from_slice(&text).map_err(|error| anyhow!("{} is not a certificate: {error}", file.display()))
    }
}

/// Creates the certificate of checks just finished by this program on this machine.
///
/// # Errors
/// This program's own file cannot be read.
pub fn new_certificate(checks: Vec<Check>) -> Result<Certificate, RunError> {
    Ok(Certificate {
        made_at: rfc3339(SystemTime::now()),
        program: this_program()?,
        machine: this_machine(),
        checks,
    })
}

/// Judges the validity of a certificate for a run that starts now.
pub fn judge_now(certificate: Certificate) -> CarriedCertificate {
    match this_program() {
        Ok(program) => judge(certificate, &this_machine(), &program, SystemTime::now()),
        Err(error) => CarriedCertificate {
            certificate: Some(certificate),
            doubts: vec![format!("this build is unknown: {error}")],
            ..CarriedCertificate::default()
        },
    }
}

fn judge(certificate: Certificate, machine: &Machine, program: &Program, now: SystemTime) -> CarriedCertificate {
    let mut doubts = Vec::new();
    let changes = differences(&certificate.machine, machine);
    if !changes.is_empty() {
        doubts.push(format!("made on another machine ({})", changes.join(", ")));
    }
    let issuer = &certificate.program;
    let [issuer_version, version] = [&issuer.version, &program.version];
    if issuer_version != version {
        doubts.push(format!("made by version {issuer_version}, this is {version}"));
    } else if issuer.sha256 != program.sha256 {
        doubts.push(format!(
            "made by another build of version {version} (of {} in commit {}; this one is of {} in commit {})",
            issuer.written_at, issuer.git_commit, program.written_at, program.git_commit
        ));
    }
    let age = parse_rfc3339(&certificate.made_at).and_then(|made_at| now.duration_since(made_at).ok());
    match age {
        None => doubts.push("its date is in the future or cannot be read".into()),
        Some(age) if age > Duration::from_secs(VALID_DAYS * 86_400) => {
            doubts.push(format!("older than {VALID_DAYS} days"));
        }
        Some(_) => {}
    }
    let failed = certificate.checks.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        doubts.push(format!("{failed} of its {} checks failed", certificate.checks.len()));
    }
    if certificate.checks.is_empty() {
        doubts.push("it has no checks".into());
    }
    CarriedCertificate {
        part: None,
        certificate: Some(certificate),
        age_s: age.map(|age| age.as_secs()),
        doubts,
    }
}

/// Differences between two machines, in words.
fn differences(recorded: &Machine, current: &Machine) -> Vec<String> {
    let cores = [recorded, current].map(|machine| machine.cores.to_string());
    let mut found: Vec<String> = [
        ("CPU", &recorded.cpu, &current.cpu),
        ("cores", &cores[0], &cores[1]),
        ("kernel", &recorded.kernel, &current.kernel),
        ("clock source", &recorded.clock_source, &current.clock_source),
    ]
    .into_iter()
    .filter(|(_, recorded, current)| recorded != current)
    .map(|(property, recorded, current)| format!("{property} was {recorded} and is {current}"))
    .collect();
    if found.is_empty() && recorded.id != current.id {
        found.push("of the same kind".into());
    }
    found
}

fn this_machine() -> Machine {
    let text = |file: &str| fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    let unknown = || "unknown".to_owned();
    let Host { cpu, cores, kernel, .. } = Host::here();
    let id = text("/etc/machine-id").filter(|id| !id.is_empty());
    let hash = |id: String| hex::encode(Sha256::digest(format!("tierlab {id}")))[..16].to_owned();
    Machine {
        cpu,
        cores,
        kernel,
        clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_else(unknown),
        id: id.map_or_else(unknown, hash),
    }
}

fn this_program() -> Result<Program, RunError> {
    // The running file, even if another one has replaced it meanwhile.
    let running = Path::new("/proc/self/exe");
    let written = fs::metadata(running).and_then(|file| file.modified());
    Ok(Program {
        version: env!("CARGO_PKG_VERSION").into(),
        git_commit: environment::build_commit().into(),
        written_at: rfc3339(written.map_err(RunError::io(running))?),
        sha256: sha256_of(running)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn machine() -> Machine {
        Machine {
            cpu: "A".into(),
            cores: 2,
            kernel: "6.1".into(),
            clock_source: "tsc".into(),
            id: "0".into(),
        }
    }

    fn program() -> Program {
        Program {
            version: "1.0.0".into(),
            git_commit: "c0ffee".into(),
            written_at: "2026-01-01T00:00:00Z".into(),
            sha256: "a0".into(),
        }
    }

    fn certificate() -> Certificate {
        Certificate {
            made_at: rfc3339(at(NOW)),
            program: program(),
            machine: machine(),
            checks: vec![Check {
                name: "clock".into(),
                expected: "1".into(),
                measured: "1".into(),
                passed: true,
            }],
        }
    }

    #[test]
    fn a_proof_is_of_this_machine_and_build_and_at_most_seven_days_old() {
        let copied = Program {
            written_at: "2026-01-02T00:00:00Z".into(),
            ..program()
        };
        let held = judge(certificate(), &machine(), &copied, at(NOW + 7 * 86_400));
        assert!(held.proof().is_some(), "{:?}", held.doubts);
        assert_eq!(held.age_s, Some(7 * 86_400));
    }

    type Change = fn(&mut Certificate);

    #[test]
    fn every_difference_is_named() {
        let changes: [(Change, &str); 9] = [
            (|made| made.machine.cpu = "B".into(), "CPU was B and is A"),
            (|made| made.machine.cores = 4, "cores was 4 and is 2"),
            (|made| made.machine.kernel = "5".into(), "kernel was 5 and is 6.1"),
            (
                |made| made.machine.clock_source = "hpet".into(),
                "clock source was hpet and is tsc",
            ),
            (
                |made| made.machine.id = "1".into(),
                "another machine (of the same kind)",
            ),
            (|made| made.program.version = "0.9.0".into(), "version 0.9.0"),
            (
                |made| made.program.sha256 = String::new(),
                "another build of version 1.0.0",
            ),
            (|made| made.checks[0].passed = false, "1 of its 1 checks failed"),
            (|made| made.made_at = "yesterday".into(), "its date"),
        ];
        for (change, named) in changes {
            let mut made = certificate();
            change(&mut made);
            let carried = judge(made, &machine(), &program(), at(NOW + 60));
            assert!(carried.proof().is_none());
            assert!(
                carried.doubts.len() == 1 && carried.doubts[0].contains(named),
                "{named}: {:?}",
                carried.doubts
            );
        }
        let old = judge(certificate(), &machine(), &program(), at(NOW + 7 * 86_400 + 1));
        assert_eq!(old.doubts, ["older than 7 days"]);
        let ahead = judge(certificate(), &machine(), &program(), at(NOW - 1));
        assert!(ahead.proof().is_none() && ahead.age_s.is_none());
    }

    #[test]
    fn it_is_kept_where_the_user_says_or_in_the_state_folder() {
        let with = |chosen: Option<&str>, variables: &[(&str, &str)]| {
            let file = chosen.map(PathBuf::from);
            let file = CertificateStore { file }.file_by(|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.into())
            });
            file.map(|file| file.display().to_string()).ok()
        };
        let home = ("HOME", "/home/a");
        let of = |path: &str| Some(path.to_owned());
        assert_eq!(with(Some("b.json"), &[home]), of("b.json"));
        assert_eq!(
            with(None, &[home, ("XDG_STATE_HOME", "/s")]),
            of("/s/tierlab/certificate.json")
        );
        let default = of("/home/a/.local/state/tierlab/certificate.json");
        assert_eq!(with(None, &[home, ("XDG_STATE_HOME", "relative")]), default);
        assert_eq!(with(None, &[home]), default);
        assert_eq!(with(None, &[]), None);
    }

    #[test]
    fn what_is_kept_comes_back_and_damage_is_no_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er/certificate.json");
        let store = CertificateStore {
            file: Some(file.clone()),
        };
        assert!(store.assess().doubts[0].contains("does not exist"));
        store.store(&certificate()).unwrap();
        assert_eq!(store.read().unwrap(), certificate());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        fs::write(&file, "{").unwrap();
        let damaged = store.assess();
        assert!(damaged.certificate.is_none() && damaged.doubts[0].contains("is not a certificate"));
    }
}
