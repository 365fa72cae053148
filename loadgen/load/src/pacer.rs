//! Releases tickets at their due times. In: a schedule. Out: tickets for users, and the pacer's observations.
//!
//! The pacer owns a named OS thread and sleeps to absolute deadlines with a timer slack of 1 ns. It wakes up a little
//! before them, for at most a fiftieth of the time. It never blocks on users: if every user is busy, a ticket waits in
//! the queue with its due time unchanged, so that its wait counts as latency (open loop). Due times are always the
//! schedule's, never the time of waking.

use crate::lock;
use crate::schedule::Schedule;
use crate::tickets::{Next, Ticket, TicketTaker, Tickets};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tierlab_analysis::record::Sample;

/// Approximate number of samples of the in-flight count in a window: one in every span of equal length, at a random
/// point, so that samples cannot fall into step with constant arrivals.
const SAMPLES: u64 = 500;
/// Limits of such a span's length: every sample wakes the thread.
const SAMPLE_SPAN_US: RangeInclusive<u64> = 2_000..=10_000;
/// Time for which every user must be busy until a ramp ends.
const BUSY_US: u64 = 1_000_000;
/// Longest sleep between two checks of the stop flag.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Longest busy wait at the end of a sleep before a ticket; it is also limited to this share of the sleep. A core that has been
/// idle takes tens of microseconds to wake up, a virtual one more.
const MAX_SPIN: Duration = Duration::from_micros(50);
const SPIN_SHARE: u32 = 50;

/// Clock of a step: microseconds since its start, monotonic.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Creates a clock whose zero is `start`, possibly in the future.
    pub const fn starting_at(start: Instant) -> Self {
        Self(start)
    }

    /// Returns microseconds since the start; 0 before it.
    pub fn now_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the instant of a time on this clock.
    pub fn at(self, us: u64) -> Instant {
        self.0 + Duration::from_micros(us)
    }
}

/// The pacer's observations.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// True if a ticket of the window found as many requests in flight as there are users.
    pub limit_hit: bool,
    /// Mean number of requests released and not finished over the window, sampled independently of the latencies.
    pub mean_in_flight: f64,
    /// Time at which a ramp ended because every user had been busy, in microseconds since the step's start.
    pub stopped_us: Option<u64>,
}

/// Starts the pacer's thread. It ends after the window's last ticket and the window's end, or on a stop.
///
/// # Errors
/// No thread could be started.
pub fn start(tickets: Arc<Tickets>, clock: Clock) -> io::Result<JoinHandle<Observed>> {
    thread::Builder::new().name("pacer".into()).spawn(move || {
        // Without it the kernel may wake the thread up to 50 us late; the send lag shows that, so it is not an error.
        let _ = minimal_timer_slack();
        pace(&tickets, clock)
    })
}

fn pace(tickets: &Tickets, clock: Clock) -> Observed {
    let schedule = &tickets.schedule;
    let mut sampler = InFlightSampler::new(schedule);
    let mut limit_hit = false;
    let mut released = 0;
    let (mut busy_since_us, mut stopped_us) = (None, None);
    while !tickets.is_stopped() {
        let now_us = clock.now_us();
        if schedule.stops && tickets.in_flight(released) >= tickets.takers {
            let since_us = *busy_since_us.get_or_insert(now_us);
            if now_us - since_us >= BUSY_US {
                stopped_us = Some(now_us);
                break;
            }
        } else {
            busy_since_us = None;
        }
        let mut due = 0;
        while let Some(&due_us) = schedule.due_us.get(released + due).filter(|&&due_us| due_us <= now_us) {
            limit_hit |= schedule.in_window(due_us) && tickets.in_flight(released + due) >= tickets.takers;
            due += 1;
        }
        if due > 0 {
            released += due;
            tickets.release(due);
        }
        sampler.sample(now_us, || tickets.in_flight(released));
        let next_due = schedule.due_us.get(released).copied();
        let Some(wake_us) = next_due.into_iter().chain(sampler.next_us()).min() else {
            break;
        };
        sleep_until(clock.at(wake_us), next_due == Some(wake_us));
    }
    tickets.close();
    Observed {
        limit_hit,
        mean_in_flight: sampler.mean(),
        stopped_us,
    }
}

/// Sleeps until `wake`, or for the longest sleep; before a ticket, it stays awake at the end.
fn sleep_until(wake: Instant, before_ticket: bool) {
    let left = wake.saturating_duration_since(Instant::now());
    if left > LONGEST_SLEEP {
        return thread::sleep(LONGEST_SLEEP);
    }
    let longest = if before_ticket { MAX_SPIN } else { Duration::ZERO };
    let spin = (left / SPIN_SHARE).min(longest);
    if left > spin {
        thread::sleep(left - spin);
    }
    while before_ticket && Instant::now() < wake {
        // Other threads with work for this core run first.
        thread::yield_now();
    }
}

/// Sampler of the in-flight count over a window.
struct InFlightSampler {
    rng: ChaCha8Rng,
    end_us: u64,
    every_us: u64,
    span_us: u64,
    at_us: u64,
    sum: u64,
    count: u64,
}

impl InFlightSampler {
    fn new(schedule: &Schedule) -> Self {
        let window_us = schedule.window_end_us - schedule.window_start_us;
        let every_us = (window_us / SAMPLES).clamp(*SAMPLE_SPAN_US.start(), *SAMPLE_SPAN_US.end());
        let mut rng = ChaCha8Rng::seed_from_u64(schedule.due_us.len() as u64);
        Self {
            at_us: schedule.window_start_us + rng.random_range(0..every_us),
            span_us: schedule.window_start_us,
            end_us: schedule.window_end_us,
            every_us,
            rng,
            sum: 0,
            count: 0,
        }
    }

    /// Returns the due time of the next sample.
    fn next_us(&self) -> Option<u64> {
        Some(self.at_us).filter(|&at_us| at_us < self.end_us)
    }

    fn sample(&mut self, now_us: u64, in_flight: impl FnOnce() -> usize) {
        if self.next_us().is_none_or(|at_us| now_us < at_us) {
            return;
        }
        self.sum += in_flight() as u64;
        self.count += 1;
        // A late wake-up skips the spans that it missed.
        self.span_us += self.every_us * ((now_us - self.span_us) / self.every_us).max(1);
        self.at_us = self.span_us + self.rng.random_range(0..self.every_us);
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }
}

/// Asks the kernel to wake this thread as close to its deadline as possible. Linux stores the slack of each thread in
/// `/proc/TID/timerslack_ns`, which a thread may write for itself.
///
/// # Errors
/// No such file, or no right to write it; deadlines are then met within about 50 us.
pub fn minimal_timer_slack() -> io::Result<()> {
    let thread = std::fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1")
}

/// Measures the release lag of a pacer without users, as samples without service, for `selfcheck`.
///
/// # Errors
/// No thread could be started, or it panicked.
pub async fn measure_release_lag(schedule: Schedule) -> io::Result<Vec<Sample>> {
    let tickets = Arc::new(Tickets::new(Arc::new(schedule), 1));
    let clock = Clock::starting_at(Instant::now() + Duration::from_millis(20));
    let probe = Arc::new(Probe {
        clock,
        samples: Mutex::new(Vec::with_capacity(tickets.schedule.due_us.len())),
        tickets: Arc::clone(&tickets),
    });
    let taker: Arc<dyn TicketTaker> = probe.clone();
    tickets.next(&taker);
    let pacer = start(tickets, clock)?;
    let joined = tokio::task::spawn_blocking(|| pacer.join()).await?;
    joined.map_err(|_| io::Error::other("the pacer panicked"))?;
    Ok(std::mem::take(&mut lock(&probe.samples)))
}

/// User that reads the clock and finishes at once.
struct Probe {
    clock: Clock,
    tickets: Arc<Tickets>,
    samples: Mutex<Vec<Sample>>,
}

impl TicketTaker for Probe {
    fn assign(self: Arc<Self>, ticket: Ticket) {
        let taker: Arc<dyn TicketTaker> = self.clone();
        let mut next = Next::Ticket(ticket);
        while let Next::Ticket(ticket) = next {
            let now_us = self.clock.now_us();
            lock(&self.samples).push(Sample {
                due_us: ticket.due_us,
                sent_us: now_us,
                done_us: now_us,
                outcome: tierlab_analysis::record::Outcome::Ok,
                timings: None,
            });
            self.tickets.finish();
            next = self.tickets.next(&taker);
        }
    }

    fn end(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::tickets::tests::RecordingTaker;

    fn schedule(rate: f64, millis: u64) -> Arc<Schedule> {
        let window = Duration::from_millis(millis);
        Arc::new(Schedule::new(&Arrivals::default(), rate, Duration::ZERO, window, 1))
    }

    #[tokio::test]
    async fn every_ticket_comes_once_in_order_and_never_early() {
        let schedule = schedule(2_000.0, 200);
        let samples = measure_release_lag((*schedule).clone()).await.unwrap();
        let due: Vec<u64> = samples.iter().map(|sample| sample.due_us).collect();
        assert_eq!(due, schedule.due_us);
        assert!(samples.iter().all(|sample| sample.sent_us >= sample.due_us));
    }

    #[test]
    fn a_user_that_never_finishes_hits_the_limit_and_later_tickets_wait() {
        let schedule = schedule(500.0, 100);
        let count = schedule.due_us.len();
        let tickets = Arc::new(Tickets::new(schedule, 1));
        let recording = Arc::new(RecordingTaker::default());
        let taker: Arc<dyn TicketTaker> = recording.clone();
        assert_eq!(tickets.next(&taker), Next::Queued);
        let pacer = start(Arc::clone(&tickets), Clock::starting_at(Instant::now())).unwrap();
        let observed = pacer.join().unwrap();
        assert_eq!(*recording.assigned.lock().unwrap(), [0]);
        assert!(observed.limit_hit);
        assert!(observed.mean_in_flight > 1.0, "{observed:?}");
        for index in 1..count {
            assert!(matches!(tickets.next(&taker), Next::Ticket(ticket) if ticket.index == index));
        }
        assert_eq!(tickets.next(&taker), Next::Closed);
    }

    #[test]
    fn stopping_ends_pacer_and_takers() {
        let tickets = Arc::new(Tickets::new(schedule(1.0, 3_600_000), 2));
        let pacer = start(Arc::clone(&tickets), Clock::starting_at(Instant::now())).unwrap();
        tickets.stop();
        let taker: Arc<dyn TicketTaker> = Arc::new(RecordingTaker::default());
        assert_eq!(tickets.next(&taker), Next::Closed);
        pacer.join().unwrap();
    }

    #[test]
    fn the_timer_slack_can_be_set() {
        thread::spawn(|| minimal_timer_slack().unwrap()).join().unwrap();
    }
}
