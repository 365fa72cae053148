//! Files of results: written atomically, and tracked by git or not.

use crate::error::StoreError;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file so that a reader, or a crash, sees either the old text or the new one. Of two concurrent writers the
/// last one's text stays, complete; a failed writer leaves nothing behind.
pub(crate) fn write_atomically(path: &Path, text: &[u8]) -> Result<(), StoreError> {
    write_with(path, |file| file.write_all(text)).map_err(StoreError::io(path))
}

/// Writes a file by `write`, as [`write_atomically`] does.
pub(super) fn write_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Created here: tempfile's own files are private to their owner, but a result follows the umask.
    let mut part = tempfile::Builder::new()
        .prefix(".")
        .suffix(".part")
        .make_in(folder.unwrap_or(Path::new(".")), |part| {
            OpenOptions::new().write(true).create_new(true).open(part)
        })?;
    write(part.as_file_mut())?;
    part.as_file().sync_all()?;
    part.persist(path)?;
    Ok(())
}

pub(crate) fn is_tracked(dir: &Path) -> bool {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["ls-files", "-z", "--", "."]);
    match git.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) if output.status.success() => !output.stdout.is_empty(),
        _ => dir
            .canonicalize()
            .is_ok_and(|dir| dir.ancestors().any(|folder| folder.join(".git").exists())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn writers_of_one_file_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let texts: Vec<Vec<u8>> = (1..=4_u8).map(|who| vec![who; usize::from(who) * 100_000]).collect();
        std::thread::scope(|scope| {
            let (path, texts) = (&path, &texts);
            for text in texts {
                scope.spawn(move || {
                    for _ in 0..20 {
                        write_atomically(path, text).unwrap();
                        assert!(texts.contains(&fs::read(path).unwrap()));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "parts are left");
    }

    #[test]
    fn a_file_is_as_open_as_any_other_and_what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, plain) = (folder.path().join("x"), folder.path().join("plain"));
        fs::write(&plain, "").unwrap();
        write_atomically(&path, b"text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
        // A folder in place of the file.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_atomically(&taken, b"text").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{}: ", taken.display())) && !error.contains(".part"),
            "{error}"
        );
        let absent = folder.path().join("absent/x");
        let error = write_atomically(&absent, b"text").unwrap_err().to_string();
        assert!(
            error.contains("absent/x: No such file") && !error.contains(".part"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_folder_is_tracked_where_git_keeps_a_file_of_it() {
        let checkout = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let command = Command::new("git").arg("-C").arg(checkout.path()).args(args).output();
            assert!(command.unwrap().status.success(), "git {args:?}");
        };
        git(&["init", "--quiet"]);
        for folder in ["kept", "new"] {
            std::fs::create_dir(checkout.path().join(folder)).unwrap();
            std::fs::write(checkout.path().join(folder).join("run.json"), "{}").unwrap();
        }
        git(&["add", "kept/run.json"]);
        assert!(is_tracked(&checkout.path().join("kept")));
        assert!(!is_tracked(&checkout.path().join("new")));
        assert!(!is_tracked(tempfile::tempdir().unwrap().path()));
    }
}
