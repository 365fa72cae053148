//! Runs of other hosts: the files of their plans, and the variables and secret files of this host that they may name. In: messages, a
//! server as a run describes it. Out: a folder with the files at their relative paths, removed on drop; a refusal that names the option
//! to use. Must not read what it refuses.

use crate::error::RunError;
use anyhow::{Result, bail};
use clap::Args;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;
use tierlab_agents::link::{LinkError, Orders};
use tierlab_agents::token::TokenSource;
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::workers::message::{Job, Setup, ToWorker};

/// Maximum files of one plan, and maximum bytes in them.
const MAX_FILES: usize = 10_000;
const MAX_BYTES: u64 = 2 << 30;

/// Receives the files announced by a setup.
pub(super) async fn receive(orders: &mut Orders<Job>, setup: &Setup) -> Result<TempDir, RunError> {
    let bytes: u64 = setup.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    if setup.files.len() > MAX_FILES || bytes > MAX_BYTES {
        return Err(RunError::Usage(format!(
            "the plan has {} files of {bytes} bytes; the limit is {MAX_FILES} files of {MAX_BYTES} bytes",
            setup.files.len()
        )));
    }
    let folder = tempfile::tempdir().map_err(RunError::io(&std::env::temp_dir()))?;
    for head in &setup.files {
        let path = local_path(folder.path(), &head.path).map_err(RunError::usage)?;
        let at = |error| RunError::io(&path)(error);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(at)?;
        }
        let mut file = std::fs::File::create(&path).map_err(at)?;
        let mut left = head.bytes;
        while left > 0 {
            let ToWorker::Job(Job::File(piece)) = orders.next().await? else {
                return Err(LinkError::Unexpected("File").into());
            };
            let length = piece.len() as u64;
            if !(1..=left).contains(&length) {
                let problem = "a file differs from its announced length".to_owned();
                return Err(LinkError::Unreadable(problem).into());
            }
            file.write_all(&piece).map_err(at)?;
            left -= length;
        }
    }
    Ok(folder)
}

/// Replaces the files of bodies by the sent copies, so that no file of this host can be sent.
///
/// # Errors
/// A path that would leave the folder.
pub(super) fn relocate(spec: &mut TargetSpec, folder: &Path) -> Result<()> {
    if let Some(file) = spec.custom.as_mut().and_then(|custom| custom.body.file_mut()) {
        *file = local_path(folder, file)?;
    }
    spec.others.iter_mut().try_for_each(|other| relocate(other, folder))
}

/// Path below `folder` for a path of the run's host.
///
/// # Errors
/// A path that would leave the folder.
pub(super) fn local_path(folder: &Path, path: &Path) -> Result<PathBuf> {
    let mut local = folder.to_owned();
    for part in path.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => local.push(name),
            _ => bail!("{}: not an absolute path without `..`", path.display()),
        }
    }
    Ok(local)
}

/// Secrets that the agent's owner lets runs use.
#[derive(Debug, Clone, Default, Args)]
pub struct Secrets {
    /// Variable that runs may use as a server's token; may be repeated
    #[arg(long = "allow-env", value_name = "NAME")]
    variables: Vec<String>,
    /// Folder of the tokens, certificates and keys that runs may use
    #[arg(long = "secrets-dir", value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Secrets {
    /// Checks every variable, token, certificate and key named in a server's description.
    ///
    /// # Errors
    /// The first name that is not allowed.
    pub fn check(&self, spec: &TargetSpec) -> Result<()> {
        match &spec.access.token {
            Some(TokenSource::Env(name)) if !self.variables.contains(name) => {
                bail!("variable `{name}` is not allowed on this agent: start the agent with --allow-env {name}");
            }
            Some(TokenSource::File(file)) => self.check_file(file)?,
            _ => {}
        }
        let identity = spec.access.identity.iter().flat_map(|own| [&own.cert, &own.key]);
        for file in spec.access.ca.iter().chain(identity) {
            self.check_file(file)?;
        }
        spec.others.iter().try_for_each(|other| self.check(other))
    }

    fn check_file(&self, file: &Path) -> Result<()> {
        let is_inside = || {
            let folder = self.folder.as_ref()?.canonicalize().ok()?;
            Some(file.canonicalize().ok()?.starts_with(folder))
        };
        if is_inside() == Some(true) {
            return Ok(());
        }
        bail!(
            "{}: the file is not in a folder that this agent allows: put it there and start the agent with --secrets-dir FOLDER",
            file.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tierlab_agents::tls::Identity;
    use tierlab_load::custom::{BodySource, CustomSpec, Success};
    use tierlab_load::recording::RecordingSpec;

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let folder = Path::new("/tmp/agent");
        assert_eq!(
            local_path(folder, Path::new("/home/a/b.npy")).unwrap(),
            Path::new("/tmp/agent/home/a/b.npy")
        );
        for path in ["/home/../../etc/x", "../x", "./x"] {
            assert!(local_path(folder, Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn bodies_come_from_the_run() {
        let folder = Path::new("/tmp/agent");
        let bodies = |file: &str| {
            let (file, template) = (PathBuf::from(file), "{}".to_owned());
            let recording = RecordingSpec {
                file: file.clone(),
                column: "timestamp".into(),
                unit: None,
            };
            [
                BodySource::File(file.clone()),
                BodySource::Recorded(file.clone()),
                BodySource::Rows {
                    template,
                    rows: file.clone(),
                },
                BodySource::Replay {
                    recording,
                    template: None,
                },
            ]
        };
        let relocated = |body: BodySource| {
            let mut spec = TargetSpec::plain("http://127.0.0.1:1", None);
            spec.custom = Some(CustomSpec {
                method: "POST".into(),
                path: "/".into(),
                content_type: String::new(),
                body,
                rows_per_request: 1,
                entities: None,
                values: BTreeMap::new(),
                success: Success::default(),
                stream: None,
            });
            spec.others = vec![spec.clone()];
            relocate(&mut spec, folder)?;
            anyhow::Ok([spec.others.remove(0), spec].map(|spec| spec.custom.unwrap().body))
        };
        for (body, own) in bodies("/etc/passwd").into_iter().zip(bodies("/tmp/agent/etc/passwd")) {
            assert_eq!(relocated(body).unwrap(), [own.clone(), own]);
        }
        for body in bodies("/tmp/agent/../../etc/passwd") {
            assert!(relocated(body).is_err());
        }
    }

    fn plain() -> TargetSpec {
        TargetSpec::plain("http://127.0.0.1:1", None)
    }

    #[test]
    fn only_named_variables_and_files_of_the_folder_are_allowed() {
        let root = tempfile::tempdir().unwrap();
        let (folder, outside) = (root.path().join("secrets"), root.path().join("other"));
        std::fs::create_dir(&folder).unwrap();
        for file in [folder.join("token"), outside.clone()] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        let allowed = Secrets {
            variables: vec!["TOKEN".to_owned()],
            folder: Some(folder.clone()),
        };
        let token = |source: TokenSource| {
            let mut spec = plain();
            spec.access.token = Some(source);
            spec
        };
        allowed.check(&plain()).unwrap();
        allowed.check(&token(TokenSource::Env("TOKEN".into()))).unwrap();
        allowed.check(&token(TokenSource::File(folder.join("token")))).unwrap();
        let refused = allowed
            .check(&token(TokenSource::Env("AWS_SECRET_ACCESS_KEY".into())))
            .unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("--allow-env AWS_SECRET_ACCESS_KEY"), "{refused}");
        for file in [
            &outside,
            &folder.join("../other"),
            &folder.join("link"),
            &folder.join("none"),
        ] {
            let mut with_identity = plain();
            with_identity.access.identity = Some(Identity {
                cert: folder.join("token"),
                key: file.clone(),
            });
            let mut with_ca = plain();
            with_ca.access.ca = Some(file.clone());
            let mut among_others = plain();
            among_others.others = vec![with_ca.clone()];
            for spec in [
                token(TokenSource::File(file.clone())),
                with_identity,
                with_ca,
                among_others,
            ] {
                let refused = allowed.check(&spec).unwrap_err().to_string();
                assert!(refused.contains("--secrets-dir"), "{refused}");
                assert!(Secrets::default().check(&spec).is_err());
            }
        }
    }
}
