//! Information that a program prints about itself: version with commit and build, shell completions, man pages. In: its command
//! line as clap describes it. Independent of the command's own work.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

/// The commit that who builds has named; a build for development names none.
const BUILD_COMMIT: Option<&str> = option_env!("TIERLAB_BUILD_COMMIT");

/// `0.1.0 (commit 1234abcd, release, opt-level 3, x86_64-unknown-linux-gnu, rustc 1.92.0)`; the first call decides. `commit` is
/// what the program knows by itself, and goes before what its build was told.
#[must_use]
pub fn version(commit: Option<&str>) -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        format!(
            "{} (commit {}, {})",
            env!("CARGO_PKG_VERSION"),
            commit
                .or(BUILD_COMMIT)
                .filter(|commit| !commit.is_empty())
                .unwrap_or("not recorded"),
            env!("TIERLAB_BUILT")
        )
    })
}

/// Answers `--completions SHELL` (to stdout) and `--man FOLDER` (a page for the program and each of its subcommands), where one
/// of them is the first argument; the exit code then. For those who package: not part of `--help`.
#[must_use]
pub fn describe<P: CommandFactory>() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let flag = arguments.next()?;
    let command = P::command();
    let name = command.get_name().to_owned();
    let written = match flag.to_str()? {
        "--completions" => completions(command, arguments.next()),
        "--man" => man_pages(command, arguments.next()),
        _ => return None,
    };
    Some(match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(if error.kind() == io::ErrorKind::InvalidInput {
                2
            } else {
                1
            })
        }
    })
}

fn completions(mut command: Command, shell: Option<OsString>) -> io::Result<()> {
    let shell = shell.unwrap_or_default();
    let known: Shell = shell.to_string_lossy().parse().map_err(|_| {
        let shell = shell.display();
        usage(format!(
            "--completions `{shell}`: give it bash, elvish, fish, powershell or zsh"
        ))
    })?;
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(known, &mut command, name, &mut text);
    io::stdout().write_all(&text)
}

fn man_pages(command: Command, folder: Option<OsString>) -> io::Result<()> {
    let folder = folder.ok_or_else(|| usage("--man: give it the folder to write the pages to".into()))?;
    let named = |error: io::Error| {
        let folder = Path::new(&folder).display();
        io::Error::new(
            error.kind(),
            format!("--man `{folder}`: {error}; give it a folder that can be written"),
        )
    };
    std::fs::create_dir_all(&folder).map_err(named)?;
    // A page's heading has no room for the build.
    let command = command.version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command, &folder).map_err(named)
}

fn usage(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_number_commit_and_build() {
        let text = version(Some("1234abcd"));
        assert!(text.starts_with(env!("CARGO_PKG_VERSION")), "{text}");
        for part in ["(commit 1234abcd, ", "opt-level ", "rustc "] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_shell_that_is_not_known_is_named_with_those_that_are() {
        let error = completions(Command::new("x"), Some("tcsh".into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("`tcsh`: give it bash"), "{error}");
    }
}
