//! Live view of the current step for a terminal. In: counters of the step. Out: its figures so far, four times a
//! second; the commands format them.
//!
//! The view does not disturb the measurement:
//! - Sent and finished requests are read from counters that the ticket queue has anyway; the pacer's thread does
//!   nothing for the view and touches none of its memory.
//! - For each reply a user increments a bucket of a fixed table after the request's last time was read: a relaxed
//!   atomic addition, without a lock, an allocation or a wait.
//! - A separate thread sums and draws. Its lock is otherwise only taken once at each step's start, by no user.
//! - Without a terminal there is neither table nor thread.
//!
//! The view is approximate: its buckets are 2 % of their values wide, and no result uses it. As in results, latencies
//! are of good replies to requests due in the window, from the scheduled send.

use crate::lock;
use crate::pacer::Clock;
use crate::tickets::{Counts, Tickets};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tierlab_analysis::record::Sample;

/// Interval between two readings.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// Period over which rates are computed.
const RATE_OVER_US: u64 = 1_000_000;
/// Buckets of each power of two of a latency.
const BUCKETS_OF_OCTAVE: usize = 32;
/// Buckets up to 2^36 us, 19 hours.
const BUCKETS: usize = 36 * BUCKETS_OF_OCTAVE;

/// Live view of a step while it runs; off by default. Clones share the step.
#[derive(Debug, Clone, Default)]
pub struct Watch(Option<Arc<Meter>>);

#[derive(Debug)]
struct Meter {
    /// Parts of the step; several in a mix.
    parts: Mutex<Vec<(Arc<Tickets>, Clock)>>,
    /// Number of processes that send instead of this one.
    processes: AtomicUsize,
    /// Number of users of a closed loop, which has no tickets, and their clock.
    closed_loop: OnceLock<(usize, Clock)>,
    ended: AtomicU64,
    errors: AtomicU64,
    latencies: [AtomicU32; BUCKETS],
}

impl Watch {
    /// Creates a watch with a meter.
    pub fn on() -> Self {
        Self(Some(Arc::new(Meter {
            parts: Mutex::default(),
            processes: AtomicUsize::new(0),
            closed_loop: OnceLock::new(),
            ended: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            latencies: [const { AtomicU32::new(0) }; BUCKETS],
        })))
    }

    /// Starts the clock of a part of the step.
    pub fn starts(&self, tickets: &Arc<Tickets>, clock: Clock) {
        if let Some(meter) = &self.0 {
            lock(&meter.parts).push((Arc::clone(tickets), clock));
        }
    }

    /// Starts the clock of a closed loop of `users` users.
    pub fn closed_loop(&self, users: usize, clock: Clock) {
        if let Some(meter) = &self.0 {
            // A step starts once.
            let _ = meter.closed_loop.set((users, clock));
        }
    }

    /// Marks the step as sent by other processes, whose samples are known at its end.
    pub fn sent_by(&self, processes: usize) {
        if let Some(meter) = &self.0 {
            meter.processes.store(processes, Ordering::Relaxed);
        }
    }

    /// Counts a finished request.
    pub fn record(&self, sample: &Sample, in_window: bool) {
        let Some(meter) = &self.0 else { return };
        meter.ended.fetch_add(1, Ordering::Relaxed);
        if !sample.is_ok() {
            meter.errors.fetch_add(1, Ordering::Relaxed);
        } else if in_window {
            meter.latencies[bucket(sample.latency_us())].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Meter {
    /// Returns the figures of the step so far, over all its parts.
    fn read(&self, past: &mut VecDeque<Moment>) -> Seen {
        let processes = self.processes.load(Ordering::Relaxed);
        if processes > 0 {
            return Seen::Processes(processes);
        }
        // Read before the counts: each error is one of the finished requests.
        let errors = self.errors.load(Ordering::Relaxed);
        let Some((at_us, all)) = self.closed_counts().or_else(|| self.open_counts()) else {
            return Seen::Preparing;
        };
        let now = Moment {
            at_us,
            sent: all.sent as u64,
            answered: (all.finished as u64).saturating_sub(errors),
        };
        let (sent_rps, answered_rps) = rates(past, now);
        let latencies: Vec<u32> = self.latencies.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        Seen::Figures(Figures {
            sent_rps,
            answered_rps,
            p50_us: quantile(&latencies, 0.5),
            p99_us: quantile(&latencies, 0.99),
            errors,
            in_flight: all.due.saturating_sub(all.finished),
        })
    }

    /// Returns the counts of all parts so far; `None` before the clock of the first.
    fn open_counts(&self) -> Option<(u64, Counts)> {
        let parts = lock(&self.parts);
        let at_us = parts.first()?.1.now_us();
        let mut all = Counts::default();
        for counts in parts.iter().map(|(tickets, clock)| tickets.counts(clock.now_us())) {
            all.due += counts.due;
            all.sent += counts.sent;
            all.finished += counts.finished;
        }
        Some((at_us, all))
    }

    /// Counts of a closed loop. Each user is assumed to have a request in flight.
    fn closed_counts(&self) -> Option<(u64, Counts)> {
        let (users, clock) = self.closed_loop.get()?;
        let finished = usize::try_from(self.ended.load(Ordering::Relaxed)).unwrap_or(usize::MAX / 2);
        let counts = Counts {
            due: finished + users,
            sent: finished,
            finished,
        };
        Some((clock.now_us(), counts))
    }
}

/// Counts at one moment of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moment {
    at_us: u64,
    sent: u64,
    answered: u64,
}

/// Returns sent and answered requests per second over the last second, or over a shorter step.
fn rates(past: &mut VecDeque<Moment>, now: Moment) -> (f64, f64) {
    if past.is_empty() {
        // At the clock's zero the counts are 0.
        past.push_back(Moment::default());
    }
    past.push_back(now);
    while past.len() > 2 && past[1].at_us + RATE_OVER_US <= now.at_us {
        past.pop_front();
    }
    let since = past[0];
    let seconds = (now.at_us.saturating_sub(since.at_us)).max(1) as f64 / 1e6;
    (
        now.sent.saturating_sub(since.sent) as f64 / seconds,
        now.answered.saturating_sub(since.answered) as f64 / seconds,
    )
}

fn bucket(us: u64) -> usize {
    let at = (us as f64 + 1.0).log2() * BUCKETS_OF_OCTAVE as f64;
    (at as usize).min(BUCKETS - 1)
}

/// Returns the middle of a bucket, in microseconds.
fn middle_us(bucket: usize) -> f64 {
    let middle = (bucket as f64 + 0.5) / BUCKETS_OF_OCTAVE as f64;
    (middle.exp2() - 1.0).round()
}

/// Returns the quantile `q` of the latencies, in microseconds; `None` without requests.
fn quantile(latencies: &[u32], q: f64) -> Option<f64> {
    let all: u64 = latencies.iter().map(|&count| u64::from(count)).sum();
    let rank = ((q * all as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let reached = latencies.iter().position(|&count| {
        seen += u64::from(count);
        seen >= rank
    });
    reached.map(middle_us)
}

/// State of the view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Seen {
    /// Before the start: requests are prepared, users start.
    Preparing,
    /// Number of sending processes, which report nothing before they are done.
    Processes(usize),
    /// Counts of this process.
    Figures(Figures),
}

/// Figures of a step so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Requests sent per second over the last second.
    pub sent_rps: f64,
    /// Requests answered without an error per second over the last second.
    pub answered_rps: f64,
    /// Median latency of the window so far, in microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of the window so far, in microseconds.
    pub p99_us: Option<f64>,
    /// Failed requests of the step, its warm-up included.
    pub errors: u64,
    /// Requests due and unfinished, sent or waiting for a user.
    pub in_flight: usize,
}

/// Thread that draws a step; it ends on drop.
#[derive(Debug)]
pub struct View(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl View {
    /// Calls `draw` with the view, at once and then four times a second.
    ///
    /// # Errors
    /// The watch is off, or no thread could be started.
    pub fn start(watch: &Watch, draw: impl Fn(Seen) + Send + 'static) -> io::Result<Self> {
        let meter = watch.0.clone().ok_or(io::ErrorKind::NotFound)?;
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("live view".into()).spawn(move || {
            let mut past = VecDeque::new();
            loop {
                draw(meter.read(&mut past));
                if stopped.recv_timeout(READ_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Self(Some((stop, thread))))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::schedule::Schedule;
    use crate::tickets::tests::RecordingTaker;
    use crate::tickets::{Next, TicketTaker};
    use proptest::prelude::*;
    use std::time::Instant;
    use tierlab_analysis::record::{Failure, Outcome};

    proptest! {
        #[test]
        fn a_bucket_is_near_its_values_and_in_their_order(us in 0_u64..1 << 36, more in 0_u64..1 << 30) {
            let bucket_of = bucket(us);
            prop_assert!((middle_us(bucket_of) - us as f64).abs() <= us as f64 / 32.0);
            prop_assert_eq!(bucket(middle_us(bucket_of) as u64), bucket_of);
            prop_assert!(bucket(us + more) >= bucket_of && bucket(us + more) < BUCKETS);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(0_u64..10_000_000, 1..400), q in 0.01_f64..1.0) {
            let mut latencies = vec![0_u32; BUCKETS];
            for &us in &values {
                latencies[bucket(us)] += 1;
            }
            values.sort_unstable();
            let exact = values[(q * values.len() as f64).ceil() as usize - 1];
            prop_assert_eq!(quantile(&latencies, q), Some(middle_us(bucket(exact))));
        }
    }

    #[test]
    fn the_longest_latency_has_a_bucket_too_and_none_has_no_quantile() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }

    #[test]
    fn rates_are_of_the_last_second() {
        let mut past = VecDeque::new();
        let moment = |at_us, sent, answered| Moment { at_us, sent, answered };
        assert_eq!(rates(&mut past, moment(250_000, 100, 50)), (400.0, 200.0));
        for quarter in 2..=8 {
            rates(&mut past, moment(quarter * 250_000, quarter * 100, quarter * 50));
        }
        // From here on there are no replies.
        for quarter in 9..=12 {
            let (sent, answered) = rates(&mut past, moment(quarter * 250_000, quarter * 100, 400));
            assert_eq!((sent, answered), (400.0, (12 - quarter) as f64 * 50.0));
        }
        assert!(past.len() <= 6, "{past:?}");
    }

    #[test]
    fn a_look_adds_up_the_parts_of_a_step() {
        let taker: Arc<dyn TicketTaker> = Arc::new(RecordingTaker::default());
        let watch = Watch::on();
        let meter = watch.0.clone().unwrap();
        assert_eq!(meter.read(&mut VecDeque::new()), Seen::Preparing);
        for _ in 0..2 {
            let window = Duration::from_millis(10);
            let schedule = Schedule::new(&Arrivals::constant(), 1_000.0, Duration::ZERO, window, 1);
            let tickets = Arc::new(Tickets::new(Arc::new(schedule), 1));
            let clock = Clock::starting_at(Instant::now());
            watch.starts(&tickets, clock);
            crate::pacer::start(Arc::clone(&tickets), clock)
                .unwrap()
                .join()
                .unwrap();
            for (outcome, in_window) in [
                (Outcome::Ok, true),
                (Outcome::Failed(Failure::Timeout), true),
                (Outcome::Ok, false),
            ] {
                let Next::Ticket(ticket) = tickets.next(&taker) else {
                    panic!("none waits")
                };
                tickets.finish();
                let (sent_us, done_us) = (ticket.due_us, ticket.due_us + if in_window { 20 } else { 900 });
                let timings = None;
                let sample = Sample {
                    due_us: ticket.due_us,
                    sent_us,
                    done_us,
                    outcome,
                    timings,
                };
                watch.record(&sample, in_window);
            }
            assert!(matches!(tickets.next(&taker), Next::Ticket(_)));
        }
        let Seen::Figures(figures) = meter.read(&mut VecDeque::new()) else {
            panic!("not begun")
        };
        // Each part has ten due requests: three are finished and one is in flight.
        assert_eq!((figures.errors, figures.in_flight), (2, 14));
        assert_eq!((figures.p50_us, figures.p99_us), (Some(20.0), Some(20.0)));
        let share = figures.answered_rps / figures.sent_rps;
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        watch.sent_by(3);
        assert_eq!(meter.read(&mut VecDeque::new()), Seen::Processes(3));
    }
}
