//! Callers that are threads, for calls that block. In: a course, and one caller for each call in flight. Out: their results.

use super::{Call, Course, Driven, Tally};
use crate::chance::Pick;
use crate::machine::Watched;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tierlab_storage::ReadCost;

/// Time between checks of who waits.
const WAKE: Duration = Duration::from_millis(5);

/// A caller that blocks: makes an access and returns the time of its end.
pub(crate) trait Blocking: FnMut(Pick) -> Result<Instant> + Send {}

impl<F: FnMut(Pick) -> Result<Instant> + Send> Blocking for F {}

/// Runs a repeat.
///
/// # Errors
/// A failed access, or wrong bytes.
pub(crate) fn threads(course: &Course, callers: Vec<impl Blocking>, watched: &Watched) -> Result<Driven> {
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(callers.len());
        for (number, caller) in (0..).zip(callers) {
            let thread = std::thread::Builder::new().name("bench-caller".to_owned());
            let thread = thread.spawn_scoped(scope, move || call(course, caller, number));
            running.push(thread.context("cannot start a thread for each call in flight")?);
        }
        wait(course, course.measure_from);
        let first = watched.look();
        wait(course, course.until);
        // In a closed loop the last calls end after the window: neither they nor their load on the machine count.
        let at_end = course.due().is_none().then(|| watched.look());
        let mut tally = Tally::default();
        for thread in running {
            let own = thread.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            tally.add(&own);
        }
        let last = at_end.unwrap_or_else(|| watched.look());
        Ok(Driven::new(course, tally, (first, last)))
    })
}

fn wait(course: &Course, until: Instant) {
    while !course.is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(WAKE));
    }
}

fn call(course: &Course, mut caller: impl Blocking, number: u32) -> Result<Tally> {
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut random = course.random(number);
    let mut tally = Tally::default();
    std::thread::sleep(course.begin.saturating_duration_since(Instant::now()));
    while let Some(turn) = course.turn(&mut random, &mut tally) {
        if let Some(due) = turn.due {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let begun = Instant::now();
        let ended = caller(turn.pick).inspect_err(|_| course.fail())?;
        let call = Call {
            begun,
            ended,
            bytes: turn.pick.len,
            cost: ReadCost::default(),
        };
        course.count(turn, &call, &mut tally);
    }
    Ok(tally)
}
