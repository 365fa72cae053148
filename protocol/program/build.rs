//! Records the build in `TIERLAB_BUILT`, and the commit in `TIERLAB_BUILD_COMMIT` if the builder sets it
//! (`scripts/package` does). Does not ask git: every commit would recompile every program.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIERLAB_BUILD_COMMIT");
    let of = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".into());
    let built = format!(
        "{}, opt-level {}, {}, {}",
        of("PROFILE"),
        of("OPT_LEVEL"),
        of("TARGET"),
        compiler(&of("RUSTC")).unwrap_or_else(|| "rustc unknown".into())
    );
    println!("cargo::rustc-env=TIERLAB_BUILT={built}");
}

/// Returns the compiler's version, as `rustc 1.92.0`.
fn compiler(rustc: &str) -> Option<String> {
    let output = Command::new(rustc).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    (words.len() == 2).then(|| words.join(" "))
}
