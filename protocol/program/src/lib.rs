//! Start and end of every program: version and help output, search for ONNX Runtime, enough threads to start with, and a quiet
//! exit when the reader of its output has gone. Independent of the programs' own work.

mod about;
pub mod onnxruntime;

pub use about::{describe, version};

use std::io;
use std::sync::mpsc;
use std::thread;

/// Beside a runtime's workers: for blocking calls, timers and whatever a program starts before it can say what is wrong.
const SPARE_THREADS: usize = 4;
/// Exit status that a shell reports for a program ended by SIGPIPE.
const UNREAD: i32 = 128 + 13;

/// Ends the process, as SIGPIPE does with other programs, when its standard output is closed under it (`... | head`), instead of
/// with a panic. The signal itself stays ignored: a socket that is closed by its peer is an error, and no end.
pub fn end_when_unread() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().is_some_and(is_unread) {
            std::process::exit(UNREAD);
        }
        before(panic);
    }));
}

/// True if a panic comes from `println!` or `eprintln!` on a closed pipe.
fn is_unread(message: &str) -> bool {
    message.starts_with("failed printing to std") && message.contains("Broken pipe")
}

/// Tries whether an async runtime of `workers` threads (0: one for each core) can be started, with some to spare: the runtime
/// panics where it cannot.
///
/// # Errors
/// The system's, with how many threads there could be and what limits them.
pub fn can_start_workers(workers: usize) -> io::Result<()> {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = if workers == 0 { cores() } else { workers } + SPARE_THREADS;
    let mut started = Vec::with_capacity(wanted);
    // All at the same time: each waits until its sender is dropped.
    for number in 0..wanted {
        let (release, wait) = mpsc::channel::<()>();
        let trial = thread::Builder::new().spawn(move || wait.recv().is_err()).map_err(|error| {
            let what = format!(
                "{wanted} threads are needed to start, and there can be {number}: {error}; raise the limit (`ulimit -u`, \
                 `pids.max` of the control group, `TasksMax` of the service) or ask for fewer"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_a_quiet_end() {
        assert!(is_unread("failed printing to stdout: Broken pipe (os error 32)"));
        assert!(!is_unread(
            "failed printing to stdout: No space left on device (os error 28)"
        ));
        assert!(!is_unread("index out of bounds"));
    }

    #[test]
    fn threads_that_are_there_can_be_had() {
        can_start_workers(0).unwrap();
        can_start_workers(3).unwrap();
    }
}
