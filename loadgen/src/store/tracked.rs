//! Check for version control. In: a folder. Out: true if git tracks a file of it. If git cannot be asked, a folder in a
//! checkout counts as tracked.

use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn is_tracked(dir: &Path) -> bool {
    let listed = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["ls-files", "-z", "--", "."])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match listed {
        Ok(output) if output.status.success() => !output.stdout.is_empty(),
        _ => dir
            .canonicalize()
            .is_ok_and(|dir| dir.ancestors().any(|folder| folder.join(".git").exists())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
