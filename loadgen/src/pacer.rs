//! Releases tickets at their due times. In: a schedule. Out: tickets that goose users take, and what the pacer saw.
//!
//! The pacer owns a named OS thread, sleeps to absolute deadlines with a timer slack of 1 ns, and never waits for anybody:
//! a ticket that finds every user busy stays in line, its due time unchanged, so that its wait counts as latency
//! (open loop). Due times are the schedule's; the moment of waking is never read as one.

use crate::record::Sample;
use crate::schedule::Schedule;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The in-flight count is sampled once in every span of this length, at a random point of it, so that samples
/// cannot fall into step with constant arrivals.
const SAMPLE_EVERY_US: u64 = 2_000;
/// The longest sleep between two looks at the stop flag.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// The one clock of a step: microseconds since its start, monotonic.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock whose zero is `start`, which may lie ahead.
    #[must_use]
    pub const fn starting_at(start: Instant) -> Self {
        Self(start)
    }

    /// Microseconds since the start; 0 before it.
    #[must_use]
    pub fn now_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The instant of a time on this clock.
    #[must_use]
    pub fn at(self, us: u64) -> Instant {
        self.0 + Duration::from_micros(us)
    }
}

/// Leave to send one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Which request of the schedule.
    pub index: usize,
    /// When it is due, on the step's clock.
    pub due_us: u64,
}

/// The line of released tickets. Takers wait in order of arrival; released tickets wait without bound but for the
/// schedule's length.
#[derive(Debug)]
pub struct Tickets {
    schedule: Arc<Schedule>,
    takers: usize,
    released: Semaphore,
    next: AtomicUsize,
    finished: AtomicUsize,
    stopped: AtomicBool,
}

impl Tickets {
    /// A line for `takers` takers.
    #[must_use]
    pub fn new(schedule: Arc<Schedule>, takers: usize) -> Self {
        Self {
            schedule,
            takers,
            released: Semaphore::new(0),
            next: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Waits for a ticket; `None` once there are no more. Each ticket taken must be [`Tickets::finish`]ed.
    pub async fn take(&self) -> Option<Ticket> {
        self.released.acquire().await.ok()?.forget();
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let due_us = *self.schedule.due_us.get(index)?;
        Some(Ticket { index, due_us })
    }

    /// Says that a ticket's request is over.
    pub fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the step early: no further ticket is released or can be taken.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.released.close();
    }

    /// What has happened by `now_us` on the step's clock; a few loads, which nobody waits for.
    #[must_use]
    pub fn counts(&self, now_us: u64) -> Counts {
        let due_us = &self.schedule.due_us;
        // In this order, so that no request is over before it is sent.
        let over = self.finished.load(Ordering::Acquire);
        Counts {
            due: due_us.partition_point(|&due_us| due_us <= now_us),
            // At the end each taker takes once in vain.
            sent: self.next.load(Ordering::Relaxed).min(due_us.len()),
            over,
        }
    }

    fn in_flight(&self, released: usize) -> usize {
        released.saturating_sub(self.finished.load(Ordering::Relaxed))
    }
}

/// Requests of a step by one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whose due time had come.
    pub due: usize,
    /// That users had taken.
    pub sent: usize,
    /// That were over.
    pub over: usize,
}

/// What the pacer saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Whether some ticket of the window found as many in flight as there are users.
    pub limit_hit: bool,
    /// Mean number of requests released and not finished over the window, sampled apart from the latencies.
    pub mean_in_flight: f64,
}

/// Starts the pacer's thread. It ends after the window's last ticket and the window's end, or when stopped.
///
/// # Errors
/// No thread could be started.
pub fn start(tickets: Arc<Tickets>, clock: Clock) -> io::Result<JoinHandle<Observed>> {
    thread::Builder::new().name("pacer".into()).spawn(move || {
        // Without it the kernel may wake the thread up to 50 us late; that shows in the send lag, so it is no error.
        let _ = minimal_timer_slack();
        pace(&tickets, clock)
    })
}

fn pace(tickets: &Tickets, clock: Clock) -> Observed {
    let schedule = &tickets.schedule;
    let mut rng = ChaCha8Rng::seed_from_u64(schedule.due_us.len() as u64);
    let mut sample_span = schedule.window_start_us;
    let mut sample_at = sample_span + rng.random_range(0..SAMPLE_EVERY_US);
    let (mut seen, mut samples) = (0_u64, 0_u64);
    let mut limit_hit = false;
    let mut released = 0;
    while !tickets.stopped.load(Ordering::Relaxed) {
        let now_us = clock.now_us();
        let mut due = 0;
        while let Some(&due_us) = schedule.due_us.get(released + due).filter(|&&due_us| due_us <= now_us) {
            limit_hit |= schedule.in_window(due_us) && tickets.in_flight(released + due) >= tickets.takers;
            due += 1;
        }
        if due > 0 {
            released += due;
            tickets.released.add_permits(due);
        }
        if sample_at <= now_us && sample_at < schedule.window_end_us {
            seen += tickets.in_flight(released) as u64;
            samples += 1;
            // A late wake-up skips the spans that it slept through.
            sample_span += SAMPLE_EVERY_US * ((now_us - sample_span) / SAMPLE_EVERY_US).max(1);
            sample_at = sample_span + rng.random_range(0..SAMPLE_EVERY_US);
        }
        let next_due = schedule.due_us.get(released).copied();
        let next_sample = Some(sample_at).filter(|&at| at < schedule.window_end_us);
        let Some(wake_us) = next_due.into_iter().chain(next_sample).min() else {
            break;
        };
        let sleep = clock.at(wake_us).saturating_duration_since(Instant::now());
        thread::sleep(sleep.min(LONGEST_SLEEP));
    }
    // One more for each taker, which finds the schedule at its end.
    tickets.released.add_permits(tickets.takers);
    Observed {
        limit_hit,
        mean_in_flight: seen as f64 / samples.max(1) as f64,
    }
}

/// Asks the kernel to wake this thread as close to its deadline as it can. Linux keeps the slack of each thread in
/// `/proc/TID/timerslack_ns`, which a thread may write for itself.
///
/// # Errors
/// No such file, or no right to write it; deadlines are then kept to within 50 us or so.
pub fn minimal_timer_slack() -> io::Result<()> {
    let thread = std::fs::read_link("/proc/thread-self")?;
    let id = thread.file_name().ok_or(io::ErrorKind::NotFound)?;
    std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1")
}

/// The release lag of a pacer without users, as samples without service: for `selfcheck`.
///
/// # Errors
/// No thread could be started, or it panicked.
pub async fn measure_release_lag(schedule: Schedule) -> io::Result<Vec<Sample>> {
    let tickets = Arc::new(Tickets::new(Arc::new(schedule), 1));
    let clock = Clock::starting_at(Instant::now() + Duration::from_millis(20));
    let pacer = start(Arc::clone(&tickets), clock)?;
    let mut samples = Vec::with_capacity(tickets.schedule.due_us.len());
    while let Some(ticket) = tickets.take().await {
        let now_us = clock.now_us();
        tickets.finish();
        samples.push(Sample {
            due_us: ticket.due_us,
            sent_us: now_us,
            done_us: now_us,
            outcome: crate::record::Outcome::Ok,
            timings: None,
        });
    }
    pacer.join().map_err(|_| io::Error::other("the pacer panicked"))?;
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrivals;

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

    #[tokio::test]
    async fn a_user_that_never_finishes_hits_the_limit_and_later_tickets_wait() {
        let tickets = Arc::new(Tickets::new(schedule(500.0, 100), 1));
        let pacer = start(Arc::clone(&tickets), Clock::starting_at(Instant::now())).unwrap();
        let first = tickets.take().await.unwrap();
        assert_eq!(first.index, 0);
        let observed = tokio::task::spawn_blocking(|| pacer.join().unwrap()).await.unwrap();
        assert!(observed.limit_hit);
        assert!(observed.mean_in_flight > 1.0, "{observed:?}");
        for index in 1..50 {
            assert_eq!(tickets.take().await.unwrap().index, index);
        }
        assert!(tickets.take().await.is_none());
    }

    #[tokio::test]
    async fn stopping_ends_pacer_and_takers() {
        let tickets = Arc::new(Tickets::new(schedule(1.0, 3_600_000), 2));
        let pacer = start(Arc::clone(&tickets), Clock::starting_at(Instant::now())).unwrap();
        tickets.stop();
        assert!(tickets.take().await.is_none());
        tokio::task::spawn_blocking(|| pacer.join().unwrap()).await.unwrap();
    }

    #[test]
    fn the_timer_slack_can_be_set() {
        thread::spawn(|| minimal_timer_slack().unwrap()).join().unwrap();
    }
}
