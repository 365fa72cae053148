//! Records the commit that a program is built from: `TIERLAB_COMMIT`, with `-dirty` if its sources have changes, and
//! `unknown` outside a checkout of its own. Runs again only when the commit or the sources change. `TIERLAB_COMMIT_OF`
//! is the checkout's folder: if two checkouts share a target folder, one may be built with the other's record.

use std::path::Path;
use std::process::{Command, Stdio};

/// Sources of the program, below the workspace's root.
const SOURCES: [&str; 4] = ["loadgen", "protocol", "Cargo.toml", "Cargo.lock"];

fn main() {
    let own = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&own).parent().unwrap_or(Path::new(&own));
    println!("cargo::rustc-env=TIERLAB_COMMIT_OF={own}");
    for path in [
        "loadgen/src",
        "loadgen/analysis",
        "loadgen/load",
        "loadgen/report",
        "loadgen/build.rs",
        "loadgen/Cargo.toml",
        "protocol/src",
        "protocol/formats/src",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!(
        "cargo::rustc-env=TIERLAB_COMMIT={}",
        commit(root).unwrap_or_else(|| "unknown".into())
    );
}

fn commit(root: &Path) -> Option<String> {
    // Sources unpacked inside another project's checkout are not part of its commits.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let head = git(root, &["rev-parse", "HEAD"])?;
    // In a worktree these lie in the main checkout's folder, which git knows.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(file) = git(root, &["rev-parse", "--git-path", name]) {
            let file = root.join(file);
            if file.exists() {
                println!("cargo::rerun-if-changed={}", file.display());
            }
        }
    }
    let status: Vec<&str> = ["status", "--porcelain", "--"].into_iter().chain(SOURCES).collect();
    let is_clean = git(root, &status).is_some_and(|changes| changes.is_empty());
    Some(if is_clean { head } else { format!("{head}-dirty") })
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(args);
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
