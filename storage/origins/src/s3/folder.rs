//! Objects as files: a root folder whose sub-folders are buckets.
//!
//! In: bucket names, keys and staged files. Out: open files with their version marks, listings, or a [`FolderError`].
//! Everything here blocks; the caller moves it off the async threads. Knows nothing of HTTP.
//!
//! A version mark is made of inode, modification time and size, so no read ever hashes a file. Every write goes to a
//! new file, which is synced and renamed into place with a unique modification time, so two writes never share a mark.
//! Symbolic links are not followed: a key's file is inside its bucket, or the key does not exist.

use parking_lot::Mutex;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierlab_storage::path::ObjectPath;
use tierlab_storage::tiers::next_nanos;

/// Folder for incomplete writes. A bucket's name cannot begin with a dot.
const STAGING: &str = ".tierlab-origin";
/// Age from which a start removes files that a crash left in the staging folder.
const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);

/// Error of a bucket or an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error("no such bucket")]
    NoSuchBucket,
    #[error("the bucket exists already")]
    BucketExists,
    #[error("no such key")]
    NoSuchKey,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("{0}")]
    BadKey(String),
    #[error("a condition of the request does not hold")]
    Precondition,
    #[error("part {0} was not uploaded, or with another ETag")]
    BadPart(i32),
    #[error("the parts are not in ascending order")]
    PartOrder,
    #[error("part {0} is below 5 MiB and not the last")]
    PartTooSmall(i32),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Attributes of a stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// Length in bytes.
    pub(super) size: u64,
    /// Time of the last write.
    pub(super) modified: SystemTime,
    /// The version mark, fit for an ETag. Holds dashes, so no client takes it for an MD5.
    pub(super) version: String,
}

impl Stored {
    pub(super) fn of(meta: &Metadata) -> Self {
        let (size, ino, seconds, nanos) = (meta.size(), meta.ino(), meta.mtime(), meta.mtime_nsec());
        Self {
            size,
            modified: meta.modified().unwrap_or(UNIX_EPOCH),
            version: format!("{ino:x}-{seconds:x}{nanos:08x}-{size:x}"),
        }
    }
}

/// Condition on the object that a write replaces.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    /// No condition.
    Always,
    /// No object exists.
    Absent,
    /// Object has this version mark; `None` is any version.
    Matches(Option<String>),
}

/// File that is not yet an object; removed when dropped before it is one.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) file: File,
    path: Option<PathBuf>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // No caller is left to get the error; a later start removes the file.
            let _ = fs::remove_file(path);
        }
    }
}

/// The root folder.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    staging: PathBuf,
    /// Last modification time given to a file, in nanoseconds since 1970.
    clock: AtomicU64,
    /// Held while names change, so that conditions are checked and folders pruned without races.
    names: Mutex<()>,
}

impl Folder {
    /// Opens a root, creating it if missing.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let root = fs::canonicalize(root)?;
        let staging = root.join(STAGING);
        fs::create_dir_all(&staging)?;
        clear_leftovers(&staging)?;
        Ok(Self {
            root,
            staging,
            clock: AtomicU64::new(0),
            names: Mutex::new(()),
        })
    }

    pub(super) fn buckets(&self) -> Result<Vec<(String, SystemTime)>, FolderError> {
        let mut buckets = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && !name.starts_with('.')
                && entry.file_type()?.is_dir()
            {
                buckets.push((name, entry.metadata()?.modified()?));
            }
        }
        buckets.sort();
        Ok(buckets)
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> Result<(), FolderError> {
        match fs::create_dir(self.root.join(bucket_name(bucket)?)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(FolderError::BucketExists),
            other => Ok(other?),
        }
    }

    /// Returns the folder of an existing bucket.
    pub(super) fn bucket(&self, bucket: &str) -> Result<PathBuf, FolderError> {
        let path = self.root.join(bucket_name(bucket)?);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => Ok(path),
            _ => Err(FolderError::NoSuchBucket),
        }
    }

    fn target(&self, bucket: &str, key: &str) -> Result<PathBuf, FolderError> {
        let bucket = self.bucket(bucket)?;
        let key = ObjectPath::new(key).map_err(|_| {
            let text = format!("this origin stores objects as files: `{key}` is not a relative path of plain segments");
            FolderError::BadKey(text)
        })?;
        Ok(bucket.join(key.as_str()))
    }

    /// Opens an object for reading. Keys that no object can have are missing, as on S3.
    pub(super) fn get(&self, bucket: &str, key: &str) -> Result<(File, Stored), FolderError> {
        let path = match self.target(bucket, key) {
            Err(FolderError::BadKey(_)) => return Err(FolderError::NoSuchKey),
            path => path?,
        };
        // Equal only without a symbolic link on the way.
        if !matches!(fs::canonicalize(&path), Ok(real) if real == path) {
            return Err(FolderError::NoSuchKey);
        }
        // O_NONBLOCK: a FIFO in the folder must not hang the thread.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path);
        let file = opened.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FolderError::NoSuchKey,
            _ => FolderError::Io(e),
        })?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(FolderError::NoSuchKey);
        }
        Ok((file, Stored::of(&meta)))
    }

    /// Returns the version mark of an object; `None` if it does not exist.
    fn version(&self, bucket: &str, key: &str) -> Result<Option<String>, FolderError> {
        match self.get(bucket, key) {
            Ok((_, stored)) => Ok(Some(stored.version)),
            Err(FolderError::NoSuchKey) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Creates a new, empty file to write an object into.
    pub(super) fn stage(&self) -> Result<Staged, FolderError> {
        let path = self.staging.join(format!("{}.part", self.unique()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Staged { file, path: Some(path) })
    }

    /// Makes a staged file the object of `key`: durable first, then visible at once.
    pub(super) fn commit(
        &self,
        staged: Staged,
        bucket: &str,
        key: &str,
        condition: &Condition,
    ) -> Result<Stored, FolderError> {
        let target = self.target(bucket, key)?;
        self.seal(&staged.file)?;
        let _names = self.names.lock();
        let current = self.version(bucket, key)?;
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => current.is_none(),
            Condition::Matches(None) => current.is_some(),
            Condition::Matches(wanted) => current == *wanted,
        };
        if !holds {
            return Err(FolderError::Precondition);
        }
        let parent = make_parent(&target, key)?;
        self.publish(staged, &target, key)?;
        File::open(parent)?.sync_all()?;
        Ok(Stored::of(&fs::symlink_metadata(&target)?))
    }

    /// Gives a file a unique modification time, and makes it durable.
    pub(super) fn seal(&self, file: &File) -> Result<(), FolderError> {
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(next_nanos(&self.clock)))?;
        Ok(file.sync_all()?)
    }

    /// Renames a staged file to its final name.
    pub(super) fn publish(&self, mut staged: Staged, target: &Path, key: &str) -> Result<(), FolderError> {
        let Some(from) = staged.path.take() else { return Ok(()) };
        fs::rename(&from, target).map_err(|e| {
            staged.path = Some(from);
            match e.kind() {
                io::ErrorKind::IsADirectory => FolderError::BadKey(format!("`{key}` is a folder of other keys here")),
                _ => FolderError::Io(e),
            }
        })
    }

    /// Removes an object, and the folders that this leaves empty. A missing key is not an error, as on S3.
    pub(super) fn delete(&self, bucket: &str, key: &str) -> Result<(), FolderError> {
        let bucket_folder = self.bucket(bucket)?;
        let _names = self.names.lock();
        if self.version(bucket, key)?.is_none() {
            return Ok(());
        }
        let path = self.target(bucket, key)?;
        fs::remove_file(&path)?;
        for folder in path.ancestors().skip(1).take_while(|folder| *folder != bucket_folder) {
            if fs::remove_dir(folder).is_err() {
                break; // not empty
            }
        }
        Ok(())
    }

    /// Returns a name that is unique over calls and processes.
    pub(super) fn unique(&self) -> String {
        format!("{:016x}{:08x}", next_nanos(&self.clock), std::process::id())
    }
}

/// Returns the folder name of a bucket: names that S3 allows have no leading dot, no slash and no upper case.
fn bucket_name(name: &str) -> Result<&str, FolderError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    let valid = (3..=63).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain);
    valid.then_some(name).ok_or(FolderError::NoSuchBucket)
}

/// Creates the folder of `target`, and nothing beyond a link.
fn make_parent<'a>(target: &'a Path, key: &str) -> Result<&'a Path, FolderError> {
    let parent = target.parent().ok_or(FolderError::NoSuchBucket)?;
    let conflict = || FolderError::BadKey(format!("a leading part of `{key}` is an object or a link here"));
    let existing = parent.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let existing = existing.ok_or(FolderError::NoSuchBucket)?;
    // Checked before anything is made, so that no folder is made beyond a link.
    if fs::canonicalize(existing)? != existing || !fs::metadata(existing)?.is_dir() {
        return Err(conflict());
    }
    fs::create_dir_all(parent)?;
    Ok(parent)
}

fn clear_leftovers(staging: &Path) -> io::Result<()> {
    for entry in fs::read_dir(staging)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.modified()?.elapsed().unwrap_or_default() < LEFTOVER_AGE {
            continue;
        }
        match meta.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// S3's minimum size of a part that is not the last.
const MIN_PART_BYTES: u64 = 5 << 20;
/// S3's highest part number.
const MAX_PART: i32 = 10_000;
/// The file in an upload's folder that names its bucket and key.
const DESTINATION: &str = "destination";

impl Folder {
    /// Starts an upload and returns its id.
    pub(super) fn begin_upload(&self, bucket: &str, key: &str) -> Result<String, FolderError> {
        self.target(bucket, key)?;
        let id = self.unique();
        let folder = self.staging.join(format!("{id}.upload"));
        fs::create_dir(&folder)?;
        fs::write(folder.join(DESTINATION), format!("{bucket}/{key}"))?;
        Ok(id)
    }

    /// Stores a part, replacing an earlier part of that number.
    pub(super) fn store_part(
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
            // Between files, `io::copy` lets the kernel copy, or share blocks if the file system can.
            io::copy(&mut part, &mut staged.file)?;
        }
        let stored = self.commit(staged, bucket, key, condition)?;
        discard(&folder)?;
        Ok(stored)
    }

    /// Aborts an upload.
    pub(super) fn abort_upload(&self, bucket: &str, key: &str, id: &str) -> Result<(), FolderError> {
        Ok(discard(&self.upload(bucket, key, id)?)?)
    }

    /// Returns the folder of an existing upload of this key.
    fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<PathBuf, FolderError> {
        let folder = self.staging.join(format!("{id}.upload"));
        let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit());
        match plain.then(|| fs::read_to_string(folder.join(DESTINATION))) {
            Some(Ok(destination)) if destination == format!("{bucket}/{key}") => Ok(folder),
            _ => Err(FolderError::NoSuchUpload),
        }
    }
}

/// Removes an upload's folder. Renames it first: a part written into it at the same time would make the removal fail
/// half-way, with the name of its destination gone, and no later call could find it again.
fn discard(folder: &Path) -> io::Result<()> {
    let ended = folder.with_extension("ended");
    fs::rename(folder, &ended)?;
    fs::remove_dir_all(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.create_bucket("tierlab").unwrap();
        (dir, folder)
    }

    fn put(folder: &Folder, key: &str, bytes: &[u8], condition: &Condition) -> Result<Stored, FolderError> {
        let mut staged = folder.stage()?;
        staged.file.write_all(bytes)?;
        folder.commit(staged, "tierlab", key, condition)
    }

    #[test]
    fn equal_writes_in_one_tick_have_their_own_versions() {
        let (_dir, folder) = folder();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..50 {
            assert!(seen.insert(put(&folder, "a", b"same", &Condition::Always).unwrap().version));
        }
        assert_eq!(
            fs::read_dir(&folder.staging).unwrap().count(),
            0,
            "nothing is left behind"
        );
    }

    #[test]
    fn keys_stay_in_their_bucket() {
        let (dir, folder) = folder();
        fs::write(dir.path().join("outside"), b"secret").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("tierlab/link")).unwrap();
        for key in ["../outside", "/etc/passwd", "a/../../outside", "", "a//b"] {
            assert!(
                matches!(folder.get("tierlab", key), Err(FolderError::NoSuchKey)),
                "{key}"
            );
            folder.delete("tierlab", key).unwrap();
            assert!(
                matches!(folder.begin_upload("tierlab", key), Err(FolderError::BadKey(_))),
                "{key}"
            );
            assert!(
                matches!(put(&folder, key, b"x", &Condition::Always), Err(FolderError::BadKey(_))),
                "{key}"
            );
        }
        assert!(matches!(
            folder.get("tierlab", "link/outside"),
            Err(FolderError::NoSuchKey)
        ));
        assert!(matches!(
            put(&folder, "link/new/x", b"x", &Condition::Always),
            Err(FolderError::BadKey(_))
        ));
        assert!(!dir.path().join("new").exists());
        for bucket in ["..", ".tierlab-origin", "a/b", "Upper", ""] {
            assert!(
                matches!(folder.get(bucket, "a"), Err(FolderError::NoSuchBucket)),
                "{bucket}"
            );
        }
    }

    #[test]
    fn conditions_decide() {
        let (_dir, folder) = folder();
        let first = put(&folder, "k", b"1", &Condition::Absent).unwrap();
        assert!(matches!(
            put(&folder, "k", b"2", &Condition::Absent),
            Err(FolderError::Precondition)
        ));
        let other = Condition::Matches(Some("other".to_owned()));
        assert!(matches!(
            put(&folder, "k", b"2", &other),
            Err(FolderError::Precondition)
        ));
        put(&folder, "k", b"2", &Condition::Matches(Some(first.version))).unwrap();
        assert!(matches!(
            put(&folder, "new", b"2", &Condition::Matches(None)),
            Err(FolderError::Precondition)
        ));
    }

    #[test]
    fn a_key_cannot_be_object_and_folder() {
        let (_dir, folder) = folder();
        put(&folder, "a/b", b"1", &Condition::Always).unwrap();
        assert!(matches!(
            put(&folder, "a", b"1", &Condition::Always),
            Err(FolderError::BadKey(_))
        ));
        assert!(matches!(
            put(&folder, "a/b/c", b"1", &Condition::Always),
            Err(FolderError::BadKey(_))
        ));
        folder.delete("tierlab", "a/b").unwrap();
        put(&folder, "a", b"1", &Condition::Always).unwrap();
    }
}

#[cfg(test)]
mod uploads_tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn parts_join_in_order_and_bad_lists_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        folder.create_bucket("tierlab").unwrap();
        let id = folder.begin_upload("tierlab", "k").unwrap();
        let put = |number: i32, byte: u8, len: usize| {
            let mut staged = folder.stage().unwrap();
            staged.file.write_all(&vec![byte; len]).unwrap();
            folder.store_part("tierlab", "k", &id, number, staged).unwrap().version
        };
        let min = usize::try_from(MIN_PART_BYTES).unwrap();
        let (second, first, small) = (put(2, b'b', 3), put(1, b'a', min), put(3, b'c', 1));
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
        assert_eq!(fs::read_dir(&folder.staging).unwrap().count(), 0);
    }
}
