//! Files of a plan sent by a run. In: messages. Out: a folder with the files at their relative paths, removed on drop.

use crate::error::RunError;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;
use tierlab_agents::link::{LinkError, Orders};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::workers::message::{Job, Setup, ToWorker};

/// Maximum files of one plan, and maximum bytes in them.
const MOST_FILES: usize = 10_000;
const MOST_BYTES: u64 = 2 << 30;

/// Receives the files announced by a setup.
pub(super) async fn receive(orders: &mut Orders<Job>, setup: &Setup) -> Result<TempDir, RunError> {
    let bytes: u64 = setup.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    if setup.files.len() > MOST_FILES || bytes > MOST_BYTES {
        return Err(RunError::Usage(format!(
            "the plan has {} files of {bytes} bytes; the limit is {MOST_FILES} files of {MOST_BYTES} bytes",
            setup.files.len()
        )));
    }
    let folder = tempfile::tempdir().map_err(RunError::io(&std::env::temp_dir()))?;
    for head in &setup.files {
        let path = place(folder.path(), &head.path).map_err(RunError::Usage)?;
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
                let what = "a file differs from its announced length".to_owned();
                return Err(LinkError::Unreadable(what).into());
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
pub(super) fn relocate(spec: &mut TargetSpec, folder: &Path) -> Result<(), String> {
    if let Some(file) = spec.custom.as_mut().and_then(|custom| custom.body.file_mut()) {
        *file = place(folder, file)?;
    }
    spec.others.iter_mut().try_for_each(|other| relocate(other, folder))
}

/// Path below `folder` for a path of the run's host.
///
/// # Errors
/// A path that would leave the folder.
pub(super) fn place(folder: &Path, path: &Path) -> Result<PathBuf, String> {
    let mut placed = folder.to_owned();
    for part in path.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => placed.push(name),
            _ => return Err(format!("{}: not an absolute path without `..`", path.display())),
        }
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tierlab_load::custom::{BodySource, CustomSpec, Success};
    use tierlab_load::recording::RecordingSpec;

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let folder = Path::new("/tmp/agent");
        assert_eq!(
            place(folder, Path::new("/home/a/b.npy")).unwrap(),
            Path::new("/tmp/agent/home/a/b.npy")
        );
        for path in ["/home/../../etc/x", "../x", "./x"] {
            assert!(place(folder, Path::new(path)).is_err(), "{path}");
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
            Ok::<_, String>([spec.others.remove(0), spec].map(|spec| spec.custom.unwrap().body))
        };
        for (body, own) in bodies("/etc/passwd").into_iter().zip(bodies("/tmp/agent/etc/passwd")) {
            assert_eq!(relocated(body), Ok([own.clone(), own]));
        }
        for body in bodies("/tmp/agent/../../etc/passwd") {
            assert!(relocated(body).is_err());
        }
    }
}
