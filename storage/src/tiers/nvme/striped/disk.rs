//! Striped objects on disk. In: roots. Out: manifests read, objects written and removed, and positions of an object's
//! bytes in its parts. Everything here blocks.
//!
//! ```text
//! ROOT 0/models/ctr/1/model.onnx          manifest: size, stripe_bytes, parts, set
//! ROOT 0/.tierlab-stripes/SET.0           part 0
//! ROOT 1/.tierlab-stripes/SET.1           part 1
//! ```
//! Each set of parts has its own name (128 random bits) and is never written again. A put writes the parts, makes them
//! durable, and then renames the manifest into place. Before the rename readers see the old object, after it the new
//! object, even if the machine stops in between. The next start removes sets that no manifest names. A set is such a
//! set only if its part 0 is in root 0, which would hold its manifest too: a root that is missing, not mounted or in
//! another place of the list has no part 0, so nothing is removed.

use super::super::root::{FileId, Root};
use super::super::store;
use crate::tiers::source::Source;
use crate::{Body, ErrorKind, Object, ObjectPath, StorageError};
use bytes::Bytes;
use nix::fcntl::OFlag;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Folder of the parts in each root, not allowed in object paths.
pub(super) const FOLDER: &str = ".tierlab-stripes";
/// Supported format version of the manifest.
const FORMAT: u32 = 1;
/// Maximum size of a manifest, in bytes.
const LONGEST_MANIFEST: u64 = 4096;
/// Maximum look-ups of an object that is replaced during each look-up.
const ATTEMPTS: u32 = 8;
/// Age from which parts without a manifest cannot belong to a put in progress.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// JSON file at the object's path in root 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    tierlab_stripes: u32,
    size: u64,
    stripe_bytes: u64,
    parts: usize,
    set: String,
}

impl Manifest {
    const fn layout(&self) -> Layout {
        Layout {
            size: self.size,
            stripe_bytes: self.stripe_bytes,
            parts: self.parts,
        }
    }
}

/// A striped object as looked up.
#[derive(Debug)]
pub(super) struct Striped {
    pub(super) object: Object,
    pub(super) layout: Layout,
    /// Parts of the object, one per root.
    pub(super) parts: Vec<Object>,
}

/// Path of a part.
fn part_path(set: &str, part: usize) -> Result<ObjectPath, StorageError> {
    ObjectPath::new(&format!("{FOLDER}/{set}.{part}"))
}

/// Refuses paths among the parts: they are not objects.
pub(super) fn check_path(path: &ObjectPath) -> Result<(), StorageError> {
    if path.segments().next() == Some(FOLDER) {
        let detail = "path is in the folder of the parts of striped objects";
        return Err(ErrorKind::NotFound.error(path, detail));
    }
    Ok(())
}

/// Looks up an object, with its parts.
pub(super) fn look_up(roots: &[Arc<Root>], path: &ObjectPath) -> Result<Striped, StorageError> {
    check_path(path)?;
    let mut attempts = 0;
    loop {
        let (id, manifest) = read_manifest(roots, path)?;
        match gather(roots, path, id, &manifest) {
            // The object was replaced meanwhile, and its parts removed.
            Err(e) if e.kind() == ErrorKind::NotFound && attempts < ATTEMPTS => attempts += 1,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let hint = "use the same `roots`, in the same order, as for the write";
                let detail = format!("missing part: {}; {hint}", e.detail());
                return Err(ErrorKind::Corrupt.error(path, detail));
            }
            result => return result,
        }
    }
}

/// Identity and first bytes of the file that may be a manifest.
fn read_start(root: &Root, path: &ObjectPath) -> Result<(FileId, Vec<u8>), StorageError> {
    let failed = |e: &io::Error| root.explain(path.as_str(), e);
    // Checked first, because opening a pipe would wait for its writer.
    root.stat_file(path)?;
    let fd = root.open_raw(path.as_str(), OFlag::O_RDONLY).map_err(|e| failed(&e))?;
    let id = super::super::root::stat_fd(fd.as_fd()).map_err(|e| failed(&e))?.id;
    let mut text = Vec::new();
    let read = File::from(fd).take(LONGEST_MANIFEST).read_to_end(&mut text);
    read.map_err(|e| failed(&e))?;
    Ok((id, text))
}

fn read_manifest(roots: &[Arc<Root>], path: &ObjectPath) -> Result<(FileId, Manifest), StorageError> {
    let root = &roots[0];
    let (id, text) = read_start(root, path)?;
    let corrupt = |why: &str| {
        let folder = root.location.display();
        ErrorKind::Corrupt.error(path, format!("invalid manifest of a striped object in {folder}: {why}"))
    };
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| corrupt(&e.to_string()))?;
    if manifest.tierlab_stripes != FORMAT || !(1..=super::LARGEST_STRIPE).contains(&manifest.stripe_bytes) {
        return Err(corrupt("unsupported format"));
    }
    if manifest.parts != roots.len() {
        let why = format!("{} parts, but `roots` has {}", manifest.parts, roots.len());
        return Err(corrupt(&why));
    }
    Ok((id, manifest))
}

/// Looks up the parts of a manifest. The object's version includes the versions of all parts.
fn gather(roots: &[Arc<Root>], path: &ObjectPath, id: FileId, manifest: &Manifest) -> Result<Striped, StorageError> {
    let layout = manifest.layout();
    let mut version = id.version();
    let mut parts = Vec::with_capacity(roots.len());
    for (part, root) in roots.iter().enumerate() {
        let part_path = part_path(&manifest.set, part)?;
        let found = root.stat_file(&part_path)?;
        let (has, wanted) = (found.size, layout.part_size(part));
        if has != wanted {
            let folder = root.location.display();
            let detail = format!("part {part} in {folder} has {has} bytes, not {wanted}");
            return Err(ErrorKind::Corrupt.error(path, detail));
        }
        version = format!("{version}+{}", found.version());
        parts.push(found.describe(&part_path));
    }
    let (path, size) = (path.clone(), manifest.size);
    let object = Object { path, size, version };
    Ok(Striped { object, layout, parts })
}

/// Writes an object. `lock` is held while the manifest changes, so that each old set is removed by one put.
pub(super) fn put(
    roots: &[Arc<Root>],
    path: &ObjectPath,
    source: &Source,
    stripe_bytes: u64,
    lock: &Mutex<()>,
) -> Result<Striped, StorageError> {
    check_path(path)?;
    let random = || RandomState::new().hash_one(path.as_str());
    let manifest = Manifest {
        tierlab_stripes: FORMAT,
        size: source.size,
        stripe_bytes,
        parts: roots.len(),
        set: format!("{:016x}{:016x}", random(), random()),
    };
    let text = serde_json::to_vec(&manifest)
        .map_err(|e| ErrorKind::Invalid.error(path, format!("cannot encode the manifest: {e}")))?;
    let placed = write_parts(roots, source, manifest.layout(), &manifest.set).and_then(|()| {
        let _held = lock.lock();
        // An existing file is replaced even if it is not a manifest.
        let old = read_manifest(roots, path).ok().map(|(_, old)| old.set);
        store::put(&roots[0], path, &Body::Bytes(text.into()))?;
        Ok(old)
    });
    let old = placed.map_err(|e| {
        remove_set(roots, &manifest.set);
        e.kind().error(path, e.detail())
    })?;
    if let Some(set) = old {
        remove_set(roots, &set);
    }
    look_up(roots, path)
}

/// Writes all parts concurrently, since each root should have its own device.
fn write_parts(roots: &[Arc<Root>], source: &Source, layout: Layout, set: &str) -> Result<(), StorageError> {
    // Part 0 is created first, so that a sweep finds the set after a crash.
    store::put(&roots[0], &part_path(set, 0)?, &Body::Bytes(Bytes::new()))?;
    std::thread::scope(|scope| {
        let write = |part: usize| {
            let mut reader = PartReader {
                source,
                layout,
                part,
                at: 0,
            };
            let (path, size) = (part_path(set, part)?, layout.part_size(part));
            store::put_from(&roots[part], &path, &mut reader, size).map(|_| ())
        };
        let writers: Vec<_> = (1..roots.len()).map(|part| scope.spawn(move || write(part))).collect();
        let mut result = write(0);
        for writer in writers {
            let panicked = |_| Err(ErrorKind::Unavailable.error(set, "thread panicked while writing a part"));
            result = result.and(writer.join().unwrap_or_else(panicked));
        }
        result
    })
}

/// Removes an object: first the manifest, then its parts.
pub(super) fn delete(roots: &[Arc<Root>], path: &ObjectPath, lock: &Mutex<()>) -> Result<(), StorageError> {
    check_path(path)?;
    let set = {
        let _held = lock.lock();
        let manifest = read_manifest(roots, path);
        store::delete(&roots[0], path)?;
        manifest.map(|(_, manifest)| manifest.set)
    };
    if let Ok(set) = set {
        remove_set(roots, &set);
    }
    Ok(())
}

/// Removes parts that no manifest names any more. If that fails, they only waste space until the next start. Part 0 is
/// removed last: without it no sweep would find the others. So it stays if a root has no folder of parts, as a disk that
/// is not mounted.
fn remove_set(roots: &[Arc<Root>], set: &str) {
    for (part, root) in roots.iter().enumerate().rev() {
        let removed = part_path(set, part).and_then(|path| match store::delete(root, &path) {
            Err(e) if e.kind() == ErrorKind::NotFound => root.stat(&ObjectPath::new(FOLDER)?).map(|_| ()),
            removed => removed,
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "cannot remove the parts of a removed striped object");
            return;
        }
    }
}

/// Lists the objects at and below a prefix. Files that are not manifests are left out with a warning.
pub(super) fn list(roots: &[Arc<Root>], prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
    let mut found = Vec::new();
    for file in store::list(&roots[0], prefix)? {
        if check_path(&file.path).is_err() {
            continue;
        }
        match look_up(roots, &file.path) {
            Ok(striped) => found.push(striped.object),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "omitted from a listing: invalid striped object"),
        }
    }
    Ok(found)
}

/// Removes sets that no manifest names and that are too old to belong to a put in progress. Removes nothing if any
/// possible manifest cannot be read.
pub(super) fn sweep(roots: &[Arc<Root>]) -> Result<(), StorageError> {
    let root = &roots[0];
    let mut abandoned = HashSet::new();
    store::walk(root, Some(&ObjectPath::new(FOLDER)?), &mut |path, id| {
        let name = path.as_str().trim_start_matches(FOLDER).trim_start_matches('/');
        if let Some(set) = name.strip_suffix(".0")
            && is_abandoned(id)
        {
            abandoned.insert(set.to_owned());
        }
        Ok(())
    })?;
    // Read after the parts, so that a set completed meanwhile is found in its manifest.
    store::walk(root, None, &mut |path, _| {
        if check_path(&path).is_err() {
            return Ok(());
        }
        match read_start(root, &path) {
            Ok((_, text)) => {
                // Any format version counts: its parts are in use.
                let manifest: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
                let set = manifest.as_ref().and_then(|manifest| manifest.get("set")?.as_str());
                set.map(|set| abandoned.remove(set));
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    })?;
    for set in abandoned {
        tracing::info!(set, root = %root.location.display(), "removing parts left by an interrupted put");
        remove_set(roots, &set);
    }
    Ok(())
}

fn is_abandoned(part: FileId) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos().cast_signed() - part.modified_ns > ABANDONED_AFTER.as_nanos().cast_signed()
}

/// Reads the stripes of a part in order.
struct PartReader<'a> {
    source: &'a Source,
    layout: Layout,
    part: usize,
    at: u64,
}

impl Read for PartReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.layout.part_size(self.part) - self.at;
        let (place, in_stripe) = self.layout.place_in_object(self.part, self.at);
        let len = left.min(in_stripe).min(into.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        let n = self.source.read_at(&mut into[..len], place)?;
        if n == 0 {
            let shrunk = "file became shorter while it was read";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, shrunk));
        }
        self.at += n as u64;
        Ok(n)
    }
}

/// Stripe `k` of an object, the bytes `k * stripe_bytes ..`, is in part `k % parts`, behind that part's earlier
/// stripes. So any range of the object is one range, or none, of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Length of the object.
    pub(super) size: u64,
    /// Length of a stripe, at least 1.
    pub(super) stripe_bytes: u64,
    /// Number of parts, at least 1.
    pub(super) parts: usize,
}

impl Layout {
    /// Number of the object's first `end` bytes that are in `part`.
    fn bytes_before(&self, end: u64, part: usize) -> u64 {
        let row = self.stripe_bytes * self.parts as u64;
        let in_row = (end % row).saturating_sub(part as u64 * self.stripe_bytes);
        end / row * self.stripe_bytes + in_row.min(self.stripe_bytes)
    }

    /// Length of a part.
    pub(super) fn part_size(&self, part: usize) -> u64 {
        self.bytes_before(self.size, part)
    }

    /// Range of `part` that holds the bytes of a range of the object.
    pub(super) fn part_range(&self, range: &Range<u64>, part: usize) -> Range<u64> {
        self.bytes_before(range.start, part)..self.bytes_before(range.end, part)
    }

    /// Part that holds a byte of the object.
    pub(super) const fn part_of(&self, at: u64) -> usize {
        (at / self.stripe_bytes % self.parts as u64) as usize
    }

    /// Offset in its part of the object's byte `at`.
    pub(super) fn place_in_part(&self, at: u64) -> u64 {
        self.bytes_before(at, self.part_of(at))
    }

    /// Offset in the object of a part's byte, and the number of bytes that follow it in its stripe.
    pub(super) const fn place_in_object(&self, part: usize, at: u64) -> (u64, u64) {
        let (row, in_stripe) = (at / self.stripe_bytes, at % self.stripe_bytes);
        let stripe = row * self.parts as u64 + part as u64;
        (stripe * self.stripe_bytes + in_stripe, self.stripe_bytes - in_stripe)
    }

    /// Reassembles a range from the bytes of each part's [`part_range`](Self::part_range). The second value is true if
    /// bytes were copied: a range within one stripe is not copied.
    pub(super) fn join(&self, range: &Range<u64>, pieces: &[Bytes]) -> (Bytes, bool) {
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        match (filled.next(), filled.next()) {
            (None, _) => return (Bytes::new(), false),
            (Some(only), None) => return (only.clone(), false),
            _ => {}
        }
        let mut whole = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let part = self.part_of(at);
            let from = (self.place_in_part(at) - self.bytes_before(range.start, part)) as usize;
            let left_in_stripe = self.stripe_bytes - at % self.stripe_bytes;
            let len = left_in_stripe.min(range.end - at);
            whole.extend_from_slice(&pieces[part][from..from + len as usize]);
            at += len;
        }
        (whole.into(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stripes_take_turns() {
        let layout = Layout {
            size: 25,
            stripe_bytes: 4,
            parts: 3,
        };
        // 0..4 4..8 8..12 | 12..16 16..20 20..24 | 24..25
        assert_eq!([0, 1, 2].map(|part| layout.part_size(part)), [9, 8, 8]);
        assert_eq!(layout.part_range(&(3..13), 0), 3..5);
        assert_eq!(layout.part_range(&(3..13), 1), 0..4);
        assert_eq!(layout.part_range(&(3..5), 2), 0..0);
        assert_eq!((layout.part_of(17), layout.place_in_part(17)), (1, 5));
        assert_eq!(layout.place_in_object(1, 5), (17, 3));
    }

    proptest! {
        #[test]
        fn what_is_split_is_put_together_again(
            size in 0u64..3000,
            stripe_bytes in 1u64..300,
            parts in 1usize..6,
            cuts in (0.0f64..1.0, 0.0f64..1.0),
        ) {
            let layout = Layout { size, stripe_bytes, parts };
            let object: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let mut files = vec![Vec::new(); parts];
            for (stripe, bytes) in object.chunks(stripe_bytes as usize).enumerate() {
                files[stripe % parts].extend_from_slice(bytes);
            }
            for (part, file) in files.iter().enumerate() {
                prop_assert_eq!(layout.part_size(part), file.len() as u64);
                for at in 0..file.len() as u64 {
                    let (place, left) = layout.place_in_object(part, at);
                    prop_assert_eq!(object[place as usize], file[at as usize]);
                    prop_assert_eq!((layout.part_of(place), layout.place_in_part(place)), (part, at));
                    prop_assert!((1..=stripe_bytes).contains(&left));
                }
            }
            let cut = |share: f64| (share * (size + 1) as f64) as u64;
            let range = cut(cuts.0).min(cut(cuts.1))..cut(cuts.0).max(cut(cuts.1));
            let pieces: Vec<Bytes> = files.iter().enumerate().map(|(part, file)| {
                let of = layout.part_range(&range, part);
                Bytes::copy_from_slice(&file[of.start as usize..of.end as usize])
            }).collect();
            let (joined, _) = layout.join(&range, &pieces);
            prop_assert_eq!(&joined[..], &object[range.start as usize..range.end as usize]);
        }
    }
}
