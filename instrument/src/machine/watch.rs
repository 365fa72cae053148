//! Thread that watches the machine during a step.
//!
//! In: the server's address, and the maximum time of a step. Out: the use of the machine in the step's window. The thread
//! reads up to a few dozen small files of `/proc` every 100 ms, and everything else once a second; between samples it
//! sleeps. It writes and computes nothing before the step is over.

use super::counters::Counters;
use super::processes::Processes;
use super::sockets::servers_at;
use super::usage::machine_use;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::MachineUse;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of samples from one detailed sample to the next.
const DETAILED_EVERY: u32 = 10;
/// Maximum samples of a step: more than an hour. In a longer step they are further apart.
const MAX_SAMPLES: u32 = 50_000;

/// Watch over the machine. Ends when dropped.
#[derive(Debug)]
pub struct MachineWatch {
    // Dropped in this order: the stop signal before the thread is joined.
    stop: Sender<()>,
    /// Returns the samples, and true if the server is on another machine or its processes are known.
    thread: JoinHandle<(Vec<Counters>, bool)>,
    began: (SystemTime, Instant),
}

/// Use of the machine during a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// Use of the machine.
    pub machine: MachineUse,
    /// True if the server is on another machine or its processes are known; else its CPU cannot be separated from foreign CPU.
    pub server_is_known: bool,
}

impl MachineWatch {
    /// Starts to watch; `None` if no thread can be started. `servers` are the addresses of the server and its replicas, whose processes
    /// always count as the lab's own; `longest` is the maximum time of the step.
    #[must_use]
    pub fn begin(servers: Vec<String>, longest: Duration) -> Option<Self> {
        let (stop, stopped) = mpsc::channel();
        let every = SAMPLE_INTERVAL.max(longest / MAX_SAMPLES);
        let began = (SystemTime::now(), Instant::now());
        let record = move || {
            let mut roots = vec![i32::try_from(std::process::id()).unwrap_or(0)];
            let server = servers_at(&servers);
            let server_is_known = server.is_some();
            roots.extend(server.into_iter().flatten());
            let mut processes = Processes::below(roots);
            let mut samples = Vec::new();
            for number in 0..=MAX_SAMPLES {
                samples.extend(match number % DETAILED_EVERY {
                    0 => Counters::detailed(&mut processes),
                    _ => Counters::quick(&mut processes),
                });
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            samples.extend(Counters::detailed(&mut processes));
            (samples, server_is_known)
        };
        let thread = std::thread::Builder::new().name("machine-watch".into());
        let thread = thread.spawn(record).ok()?;
        Some(Self { stop, thread, began })
    }

    /// Stops, and returns the use of the machine in a window; `None` without data.
    #[must_use]
    pub fn end(self, window_began: SystemTime, window: Duration) -> Option<Watched> {
        drop(self.stop);
        let (samples, server_is_known) = self.thread.join().ok()?;
        let (system, instant) = self.began;
        let from = instant + window_began.duration_since(system).unwrap_or_default();
        Some(Watched {
            machine: machine_use(&samples, &(from..from + window))?,
            server_is_known,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_tells_of_its_window() {
        let watch = MachineWatch::begin(vec!["http://192.0.2.1:1".into()], Duration::from_secs(10)).unwrap();
        std::thread::sleep(Duration::from_millis(400));
        let began = SystemTime::now();
        // Something of our own to do.
        let mut sum = 0_u64;
        while began.elapsed().unwrap() < Duration::from_millis(1_200) {
            sum = std::hint::black_box(sum + 1);
        }
        let watched = watch.end(began, Duration::from_millis(1_200)).unwrap();
        let machine = watched.machine;
        assert!(watched.server_is_known);
        assert!(machine.samples >= 3, "{machine:?}");
        assert!(
            machine.own_cpu_share > 0.0 && machine.context_switches_per_s > 0.0,
            "{machine:?}"
        );
        for share in [machine.foreign_cpu_share, machine.own_cpu_share, machine.steal_share] {
            assert!((0.0..=1.1).contains(&share), "{machine:?}");
        }
        assert!(machine.foreign_cpu_share_max >= machine.foreign_cpu_share);
    }
}
