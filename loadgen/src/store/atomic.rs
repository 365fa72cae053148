//! Files that are written atomically.

use crate::error::StoreError;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file so that a reader, or a crash, sees either the old text or the new one. Of two concurrent writers the
/// last one's text stays, complete; a failed writer leaves nothing behind.
pub(crate) fn write_atomically(path: &Path, text: &[u8]) -> Result<(), StoreError> {
    write(path, text).map_err(StoreError::io(path))
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Created here: tempfile's own files are private to their owner, but a result follows the umask.
    let mut part = tempfile::Builder::new()
        .prefix(".")
        .suffix(".part")
        .make_in(folder.unwrap_or(Path::new(".")), |part| {
            OpenOptions::new().write(true).create_new(true).open(part)
        })?;
    part.as_file_mut().write_all(text)?;
    part.as_file().sync_all()?;
    part.persist(path)?;
    Ok(())
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
}
