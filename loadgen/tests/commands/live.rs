//! Terminal output while a sweep runs: the real binary, its stderr a pseudo-terminal.

use crate::program::{NullEndpoint, Workdir};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

/// One step of a second and a half; other tests run beside it.
const PLAN: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 1.4\n\
    drain_s = 0.5\nmax_in_flight = 16\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
    [[load]]\nmode = \"realtime\"\nrates = [100]\n";

/// Runs a command to its end with stderr on a terminal of 80 columns, and returns the output without escapes.
fn seen_at_a_terminal(mut command: Command) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).unwrap();
    command.env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(terminal.slave).spawn().unwrap();
    // The command holds a copy of the terminal's other side, without which there is no end.
    drop(command);
    let mut bytes = Vec::new();
    // A terminal that everybody left is an error, not an end, to its reader.
    let end = File::from(terminal.master).read_to_end(&mut bytes);
    assert!(end.is_ok() || end.is_err_and(|error| error.raw_os_error() == Some(nix::libc::EIO)));
    let text = console::strip_ansi_codes(&String::from_utf8_lossy(&bytes)).into_owned();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

/// Returns the numbers between `before` and `after`, on every line with both.
fn numbers(text: &str, before: &str, after: &str) -> Vec<f64> {
    let rests = text.split(before).skip(1);
    rests
        .filter_map(|rest| rest.split(after).next()?.parse().ok())
        .collect()
}

#[test]
fn a_terminal_shows_the_step_while_it_runs() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let text = seen_at_a_terminal(place.sweep(&endpoint.url));
    for (before, after) in [
        ("sent ", "/s"),
        ("answered ", "/s"),
        ("p50 ", " ms  p99"),
        ("p99 ", " ms  "),
    ] {
        let shown = numbers(&text, before, after);
        assert!(shown.iter().any(|&number| number > 0.0), "{before}{shown:?}: {text}");
    }
    for part in ["0 errors", " in flight", "ETA ", "null", "0/1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The line that stays.
    assert!(text.contains("[1/1]") && !text.contains("1 steps, about"), "{text}");
}

#[test]
fn of_other_processes_it_says_that_their_figures_come_later() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--workers", "2"]);
    let text = seen_at_a_terminal(sweep);
    assert!(text.contains("sent by 2 processes") && text.contains("ETA "), "{text}");
    assert!(!text.contains("in flight"), "{text}");
}
