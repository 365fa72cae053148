//! Mounts as listed by the kernel. In: the text of `/proc/self/mountinfo`, and a folder. Out: the mount that holds it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A mount (Linux, Documentation/filesystems/proc.rst, 3.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Mount point.
    pub folder: PathBuf,
    /// Path of the mount point in its file system.
    pub root: String,
    /// Device as `major:minor`. File systems on a network or in memory have numbers that no disk has.
    pub device: String,
    /// Type of the file system.
    pub kind: String,
    /// Device or server.
    pub source: String,
    /// Options of the mount: `rw,relatime`.
    pub options: String,
    /// Options of the file system, such as `rsize` of NFS.
    pub filesystem_options: String,
}

/// Returns the innermost mount that holds a folder. Of two on one folder, the later hides the other.
pub fn mount_of(mountinfo: &str, folder: &Path) -> Option<Mount> {
    let containing = all(mountinfo).filter(|mount| folder.starts_with(&mount.folder));
    containing.max_by_key(|mount| mount.folder.as_os_str().len())
}

/// Returns all mounts, in order; malformed lines are skipped.
pub fn all(mountinfo: &str) -> impl Iterator<Item = Mount> {
    mountinfo.lines().filter_map(line)
}

fn line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let (left, right): (Vec<&str>, Vec<&str>) = (left.split(' ').collect(), right.split(' ').collect());
    Some(Mount {
        folder: unescaped(left.get(4)?).into(),
        root: unescaped(left.get(3)?),
        device: (*left.get(2)?).to_owned(),
        kind: (*right.first()?).to_owned(),
        source: unescaped(right.get(1)?),
        options: (*left.get(5)?).to_owned(),
        filesystem_options: right.get(2).copied().unwrap_or_default().to_owned(),
    })
}

/// Unescapes a path: the kernel writes blanks and backslashes in octal.
fn unescaped(path: &str) -> String {
    let blanks = path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
    blanks.replace("\\134", "\\")
}

/// Prints `ext4 on /dev/vda (rw,relatime)`, with the options of the file system that the mount does not have.
impl fmt::Display for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} on {} ({}", self.kind, self.source, self.options)?;
        let own = self.options.split(',');
        let others = self.filesystem_options.split(',');
        for option in others.filter(|option| !option.is_empty() && !own.clone().any(|other| other == *option)) {
            write!(out, ",{option}")?;
        }
        out.write_str(")")
    }
}

impl Mount {
    /// Returns the value of an option such as `rsize`, of the file system or of the mount.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut pairs = self.all_options().filter_map(|option| option.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    }

    /// True if an option without a value is set.
    pub fn has(&self, name: &str) -> bool {
        self.all_options().any(|option| option == name)
    }

    fn all_options(&self) -> impl Iterator<Item = &str> {
        self.filesystem_options.split(',').chain(self.options.split(','))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,data=ordered\n\
        30 22 0:40 / /mnt/a\\040b rw,noatime - nfs4 filer:/a rw,vers=4.2,rsize=65536,nconnect=4\n\
        31 22 0:41 / /mnt rw - tmpfs tmpfs rw,size=100k\n";

    #[test]
    fn the_innermost_mount_holds_a_folder() {
        let of = |folder: &str| mount_of(TEXT, Path::new(folder)).unwrap();
        let nfs = of("/mnt/a b/c");
        assert_eq!(
            (nfs.kind.as_str(), nfs.device.as_str(), nfs.source.as_str()),
            ("nfs4", "0:40", "filer:/a")
        );
        assert_eq!((nfs.option("rsize"), nfs.option("wsize")), (Some("65536"), None));
        assert!(nfs.has("noatime") && !nfs.has("rsize"));
        assert_eq!(of("/home").to_string(), "ext4 on /dev/vda (rw,relatime,data=ordered)");
        assert_eq!(of("/mnt/a").kind, "tmpfs");
        assert_eq!(of("/home").kind, "ext4");
        assert_eq!(mount_of("nonsense - x", Path::new("/")), None);
    }
}
