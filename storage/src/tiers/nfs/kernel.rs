//! Options of a kernel NFS mount. In: a path and `/proc/self/mountinfo`. Out: the options to record with every figure,
//! or why the path is not an NFS mount.

use crate::error::{ErrorKind, StorageError};
use std::path::Path;
use tierlab_formats::mounts::holding;

/// Mount options that decide latency, as `key` or `key=value`.
const NOTED: [&str; 14] = [
    "vers", "rsize", "wsize", "proto", "nconnect", "hard", "soft", "timeo", "retrans", "acregmin", "acregmax",
    "acdirmin", "acdirmax", "noac",
];

/// Notes on the NFS mount that holds `path`, an absolute path without links.
pub(super) fn notes(path: &Path, mountinfo: &str) -> Result<Vec<String>, StorageError> {
    let refuse = |what: String| {
        let hint = "mount the export first, or use `url` (user space) or the tier kind `nvme` (a local disk)";
        Err(StorageError::new(
            ErrorKind::Invalid,
            path.display().to_string(),
            format!("{what}; {hint}"),
        ))
    };
    let Some(mount) = holding(mountinfo, path) else {
        return refuse("it lies on no known mount".to_owned());
    };
    if mount.kind != "nfs" && mount.kind != "nfs4" {
        return refuse(format!("it lies on {}, which is no NFS mount", mount.kind));
    }
    let noted = |option: &&str| NOTED.contains(&option.split('=').next().unwrap_or_default());
    let options: Vec<&str> = mount.of_filesystem.split(',').filter(noted).collect();
    Ok(vec![format!(
        "kernel mount of {} ({}: {})",
        mount.source,
        mount.kind,
        options.join(",")
    )])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:50 / /mnt/with\\040space rw,relatime shared:2 - nfs4 host:/export rw,vers=4.2,rsize=1048576,hard,proto=tcp,addr=10.0.0.1
41 22 0:51 / /mnt/v3 rw - nfs host:/old rw,vers=3,rsize=32768,nolock,acregmin=3
42 41 0:52 / /mnt/v3/tmp rw - tmpfs tmpfs rw";

    #[test]
    fn the_deepest_mount_counts_and_its_options_are_noted() {
        let of = |path: &str| notes(Path::new(path), MOUNTINFO);
        assert_eq!(
            of("/mnt/with space/features").unwrap(),
            ["kernel mount of host:/export (nfs4: vers=4.2,rsize=1048576,hard,proto=tcp)"]
        );
        assert_eq!(
            of("/mnt/v3/x").unwrap(),
            ["kernel mount of host:/old (nfs: vers=3,rsize=32768,acregmin=3)"]
        );
        for (path, kind) in [("/mnt/v3/tmp/x", "tmpfs"), ("/srv", "ext4"), ("/mnt/v3x", "ext4")] {
            let error = of(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.detail().contains(kind), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[ -~\n]{0,200}") {
            let _ = notes(Path::new("/mnt"), &text);
        }
    }
}
