//! Multipart uploads: parts as files in a staging folder of their own until they are joined into an object.
//!
//! In: upload ids, part numbers and staged files. Out: the joined object. Blocking; knows nothing of HTTP.

use super::folder::{Condition, Folder, FolderError, Staged, Stored};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// S3's least size of a part that is not the last.
const MIN_PART_BYTES: u64 = 5 << 20;
/// S3's highest part number.
const MAX_PART: i32 = 10_000;
/// The file in an upload's folder that names its bucket and key.
const DESTINATION: &str = "destination";

impl Folder {
    /// Begins an upload and returns its id.
    pub(super) fn begin_upload(&self, bucket: &str, key: &str) -> Result<String, FolderError> {
        match self.get(bucket, key) {
            Ok(_) | Err(FolderError::NoSuchKey) => {}
            Err(e) => return Err(e),
        }
        let id = self.unique();
        let folder = self.staging().join(format!("{id}.upload"));
        fs::create_dir(&folder)?;
        fs::write(folder.join(DESTINATION), format!("{bucket}/{key}"))?;
        Ok(id)
    }

    /// Stores a part, replacing an earlier part of that number.
    pub(super) fn keep_part(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: i32,
        staged: Staged,
    ) -> Result<Stored, FolderError> {
        let folder = self.upload(bucket, key, id)?;
        if !(1..=MAX_PART).contains(&number) {
            return Err(FolderError::BadPart(number));
        }
        self.seal(&staged.file)?;
        let target = folder.join(format!("part-{number}"));
        self.publish(staged, &target, key)?;
        Ok(Stored::of(&fs::symlink_metadata(target)?))
    }

    /// Joins parts, given as number and version, into the object.
    pub(super) fn complete_upload(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        parts: &[(i32, String)],
        condition: &Condition,
    ) -> Result<Stored, FolderError> {
        let folder = self.upload(bucket, key, id)?;
        if !parts.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(FolderError::PartOrder);
        }
        let mut staged = self.stage()?;
        for (i, (number, version)) in parts.iter().enumerate() {
            let mut part =
                File::open(folder.join(format!("part-{number}"))).map_err(|_| FolderError::BadPart(*number))?;
            let stored = Stored::of(&part.metadata()?);
            if stored.version != *version {
                return Err(FolderError::BadPart(*number));
            }
            if stored.size < MIN_PART_BYTES && i + 1 < parts.len() {
                return Err(FolderError::PartTooSmall(*number));
            }
            // Between files, `io::copy` lets the kernel copy, or share blocks where the file system can.
            io::copy(&mut part, &mut staged.file)?;
        }
        let stored = self.commit(staged, bucket, key, condition)?;
        discard(&folder)?;
        Ok(stored)
    }

    /// Gives an upload up.
    pub(super) fn abort_upload(&self, bucket: &str, key: &str, id: &str) -> Result<(), FolderError> {
        Ok(discard(&self.upload(bucket, key, id)?)?)
    }

    /// The folder of an upload that exists and is of this key.
    fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<PathBuf, FolderError> {
        let folder = self.staging().join(format!("{id}.upload"));
        let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit());
        match plain.then(|| fs::read_to_string(folder.join(DESTINATION))) {
            Some(Ok(destination)) if destination == format!("{bucket}/{key}") => Ok(folder),
            _ => Err(FolderError::NoSuchUpload),
        }
    }
}

/// Removes an upload's folder. It is renamed first: a part that is just being put into it would otherwise make the
/// removal fail half-way, with the name of its destination gone, and no later call could find it again.
fn discard(folder: &Path) -> io::Result<()> {
    let ended = folder.with_extension("ended");
    fs::rename(folder, &ended)?;
    fs::remove_dir_all(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn parts_join_in_order_and_bad_lists_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.create_bucket("tierlab").unwrap();
        let id = folder.begin_upload("tierlab", "k").unwrap();
        let keep = |number: i32, byte: u8, len: usize| {
            let mut staged = folder.stage().unwrap();
            staged.file.write_all(&vec![byte; len]).unwrap();
            folder.keep_part("tierlab", "k", &id, number, staged).unwrap().version
        };
        let min = usize::try_from(MIN_PART_BYTES).unwrap();
        let (second, first, small) = (keep(2, b'b', 3), keep(1, b'a', min), keep(3, b'c', 1));
        let complete = |parts: &[(i32, String)]| folder.complete_upload("tierlab", "k", &id, parts, &Condition::Always);
        let pair = |number, version: &String| (number, version.clone());
        assert!(matches!(
            complete(&[pair(2, &second), pair(1, &first)]),
            Err(FolderError::PartOrder)
        ));
        assert!(matches!(complete(&[pair(1, &second)]), Err(FolderError::BadPart(1))));
        assert!(matches!(complete(&[pair(4, &second)]), Err(FolderError::BadPart(4))));
        assert!(matches!(
            complete(&[pair(2, &second), pair(3, &small)]),
            Err(FolderError::PartTooSmall(2))
        ));
        let stored = complete(&[pair(1, &first), pair(2, &second)]).unwrap();
        assert_eq!(stored.size, MIN_PART_BYTES + 3);
        let mut bytes = Vec::new();
        folder.get("tierlab", "k").unwrap().0.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes[0], &bytes[min..]), (b'a', b"bbb".as_slice()));
        assert!(matches!(complete(&[pair(1, &first)]), Err(FolderError::NoSuchUpload)));
        assert!(matches!(
            folder.abort_upload("tierlab", "k", "../tierlab"),
            Err(FolderError::NoSuchUpload)
        ));
        assert_eq!(fs::read_dir(folder.staging()).unwrap().count(), 0);
    }
}
