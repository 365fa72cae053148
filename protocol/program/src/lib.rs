//! Startup and exit of every program: version and help output, file schemas, search for ONNX Runtime without its
//! telemetry, a check that enough threads can start, the signals that interrupt a measurement, and a quiet exit when
//! standard output is closed. Independent of the programs' own work.

pub mod onnxruntime;
pub mod schema;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use nix::sys::signal::{SigSet, Signal};
use std::error::Error as _;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Threads besides a runtime's workers, for blocking calls, timers and startup.
const SPARE_THREADS: usize = 4;
/// Exit status that a shell reports for a program ended by SIGPIPE.
const UNREAD: i32 = 128 + 13;
/// Time in which further signals belong to the first: `timeout` signals the process, and then its group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Prepares the process; called first in `main`, before any other thread starts.
///
/// Disables ONNX Runtime's telemetry: its first environment would write a device id and events below the home folder,
/// before a call could disable it.
///
/// Ends the process without a panic when its standard output is closed (`... | head`), as SIGPIPE does in other
/// programs, and with a message when it cannot be written (a full disk). The signal itself stays ignored: a socket
/// closed by its peer is an error that must not end the process.
#[allow(unsafe_code)]
pub fn begin() {
    // SAFETY: no other thread runs yet that could read the environment.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        let Some(code) = exit_code(message) else {
            return before(panic);
        };
        if code != UNREAD {
            let _ = writeln!(io::stderr(), "error: {message}");
        }
        std::process::exit(code);
    }));
}

/// Exit code after a panic of `println!`, or of `eprintln!` on a closed pipe; `None` after other panics.
fn exit_code(message: &str) -> Option<i32> {
    let stream = message.strip_prefix("failed printing to ")?;
    if message.contains("Broken pipe") {
        return Some(UNREAD);
    }
    stream.starts_with("stdout").then_some(1)
}

/// Checks that an async runtime of `workers` threads (0: one per core) can start, with spare threads: the runtime
/// panics if it cannot.
///
/// # Errors
/// The system's error, with the number of threads that can start and the limits to raise.
pub fn can_start_workers(workers: usize) -> io::Result<()> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = if workers == 0 { cores() } else { workers } + SPARE_THREADS;
    let mut started = Vec::with_capacity(wanted);
    // All run at the same time: each waits until its sender is dropped.
    for number in 0..wanted {
        let (release, wait) = mpsc::channel::<()>();
        let trial = thread::Builder::new()
            .spawn(move || wait.recv().is_err())
            .map_err(|error| {
                let what = format!(
                    "cannot start {wanted} threads, only {number}: {error}; raise the limit (`ulimit -u`, \
                 `pids.max` of the control group, `TasksMax` of the service) or use fewer threads"
                );
                io::Error::new(error.kind(), what)
            })?;
        started.push((release, trial));
    }
    for (release, trial) in started {
        drop(release);
        let _ = trial.join();
    }
    Ok(())
}

/// Commit set by the builder; `None` in development builds.
const BUILD_COMMIT: Option<&str> = option_env!("TIERLAB_BUILD_COMMIT");

/// Returns the version, as `0.1.0 (commit 1234abcd, release, opt-level 3, x86_64-unknown-linux-gnu, rustc 1.92.0)`; the
/// first call decides. `commit`, known to the program itself, overrides the build's.
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

/// Starts a program: returns its parsed arguments, or ends the process after `--help`, an error in them, or [`describe`].
pub fn start<P: Parser>() -> P {
    begin();
    if ignores_hangup(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        // The handler of `on_interrupt` replaces the ignoring; later threads and children inherit the mask.
        let _ = SigSet::from(Signal::SIGHUP).thread_block();
    }
    describe::<P>();
    parse().unwrap_or_else(|error| error.exit())
}

/// True if a process was started to ignore SIGHUP, as by `nohup`. `status` is the text of `/proc/self/status`.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Handles SIGINT, SIGTERM and SIGHUP for the rest of the process: calls `first` at the first signal, and `again` at later
/// ones. SIGHUP stays without effect in a process that [`start`] found ignoring it.
///
/// # Errors
/// A handler is in place already.
pub fn on_interrupt(first: impl Fn() + Send + 'static, again: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut began = None::<Instant>;
    let handler = move || match began {
        None => {
            began = Some(Instant::now());
            first();
        }
        Some(at) if at.elapsed() > SAME_SIGNAL => again(),
        Some(_) => {}
    };
    ctrlc::set_handler(handler).map_err(io::Error::other)
}

/// Parses the arguments of the process. Errors about numbers say which form is expected.
///
/// # Errors
/// Those of clap.
pub fn parse<P: Parser>() -> Result<P, clap::Error> {
    P::try_parse().map_err(with_form)
}

/// Replaces the standard library's words for a text that is no number.
fn with_form(error: clap::Error) -> clap::Error {
    let form = match error.source().map(ToString::to_string).as_deref() {
        Some("invalid float literal" | "cannot parse float from empty string") => {
            "give a number without a unit, such as 0.5"
        }
        Some("invalid digit found in string" | "cannot parse integer from empty string") => {
            "give a whole number without a unit, such as 5"
        }
        _ => return error,
    };
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (option, value) = (said(ContextKind::InvalidArg), said(ContextKind::InvalidValue));
    clap::Error::raw(
        ErrorKind::ValueValidation,
        format!("invalid value '{value}' for '{option}': {form}\n"),
    )
}

/// Answers `--completions SHELL` (to stdout) or `--man FOLDER` (a page for the program and each of its subcommands) if
/// it is the first argument, and ends the process. For packagers: not part of `--help`.
pub fn describe<P: CommandFactory>() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(flag) = arguments.next() else { return };
    let command = P::command();
    let name = command.get_name().to_owned();
    let written = match flag.to_str() {
        Some("--completions") => completions(command, arguments.next()),
        Some("--man") => man_pages(command, arguments.next()),
        _ => return,
    };
    std::process::exit(match written {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{name}: {error}");
            1 + i32::from(error.kind() == io::ErrorKind::InvalidInput)
        }
    })
}

fn completions(mut command: Command, shell: Option<OsString>) -> io::Result<()> {
    let shell = shell.unwrap_or_default();
    let known: Shell = shell.to_string_lossy().parse().map_err(|_| {
        let shell = shell.display();
        let what = format!("invalid shell for --completions: `{shell}`; use bash, elvish, fish, powershell or zsh");
        usage(what)
    })?;
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(known, &mut command, name, &mut text);
    io::stdout().write_all(&text)
}

fn man_pages(command: Command, folder: Option<OsString>) -> io::Result<()> {
    let folder = folder.ok_or_else(|| usage("--man: missing folder to write the pages to".into()))?;
    let named = |error: io::Error| {
        let folder = Path::new(&folder).display();
        io::Error::new(
            error.kind(),
            format!("--man `{folder}`: {error}; use a writable folder"),
        )
    };
    std::fs::create_dir_all(&folder).map_err(named)?;
    // The build does not fit in a page's heading.
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
    fn output_that_cannot_be_written_ends_without_a_panic() {
        let of = |stream: &str, problem: &str| exit_code(&format!("failed printing to {stream}: {problem}"));
        assert_eq!(of("stdout", "Broken pipe (os error 32)"), Some(UNREAD));
        assert_eq!(of("stderr", "Broken pipe (os error 32)"), Some(UNREAD));
        assert_eq!(of("stdout", "No space left on device (os error 28)"), Some(1));
        assert_eq!(of("stderr", "No space left on device (os error 28)"), None);
        assert_eq!(exit_code("index out of bounds"), None);
    }

    #[test]
    fn a_hangup_is_ignored_if_its_bit_is_set() {
        for (status, expected) in [
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n", true),
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n", false),
            ("SigIgn:\tnone\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), expected, "{status}");
        }
    }

    #[test]
    fn a_text_that_is_no_number_is_told_the_form_of_one() {
        #[derive(Debug, Parser)]
        struct Flags {
            #[arg(long)]
            rate: Option<f64>,
            #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
            workers: Option<u32>,
        }
        let refused = |flag: &str, value: &str| {
            let error = with_form(Flags::try_parse_from(["x", flag, value]).unwrap_err());
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(refused("--rate", "9/s").contains("invalid value '9/s' for '--rate <RATE>': give a number without"));
        assert!(refused("--workers", "1.5").contains("give a whole number"));
        assert!(refused("--workers", "65").contains("65 is not in 1..=64"));
        let read = Flags::try_parse_from(["x", "--rate", "0.5", "--workers", "2"]).unwrap();
        assert_eq!((read.rate, read.workers), (Some(0.5), Some(2)));
    }

    #[test]
    fn threads_that_are_there_can_be_had() {
        can_start_workers(0).unwrap();
        can_start_workers(3).unwrap();
    }

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
        assert!(error.to_string().contains("`tcsh`; use bash"), "{error}");
    }
}
