//! Callers as threads, for calls that block. In: a repeat, and one caller for each call in flight. Out: their figures.

use super::{Course, Driven, Tally, Window};
use crate::machine::Watched;
use crate::ways::LocalCaller;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tierlab_storage::ReadCost;

/// Polling interval of the waiting thread.
const WAKE: Duration = Duration::from_millis(5);

/// Runs a repeat.
///
/// # Errors
/// A failed access, or wrong bytes.
pub(crate) fn threads(course: &Course, callers: Vec<LocalCaller>, watched: &Watched) -> Result<Driven> {
    let mut window = Window::new(course, watched);
    let (begins, ends) = window.times();
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(callers.len());
        for (number, caller) in (0..).zip(callers) {
            let thread = std::thread::Builder::new().name("bench-caller".to_owned());
            let thread = thread.spawn_scoped(scope, move || call(course, caller, number));
            running.push(thread.context("cannot start a thread for each call in flight")?);
        }
        wait(course, begins);
        window.begins();
        wait(course, ends);
        // In a closed loop the last calls end after the window: neither they nor their load on the machine count.
        let at_end = course.due().is_none().then(|| watched.look());
        let mut tally = Tally::default();
        for thread in running {
            let own = thread.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            tally.add(&own);
        }
        Ok(window.ends(tally, at_end.unwrap_or_else(|| watched.look())))
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

fn call(course: &Course, mut caller: LocalCaller, number: u32) -> Result<Tally> {
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut random = course.random(number);
    let mut tally = Tally::default();
    std::thread::sleep(course.begin.saturating_duration_since(Instant::now()));
    while let Some(turn) = course.turn(&mut random, &mut tally) {
        if let Some(due) = turn.due {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let begun = Instant::now();
        let ended = caller.act(turn.pick).inspect_err(|_| course.fail())?;
        course.count(turn, begun, ended, &ReadCost::default(), &mut tally);
    }
    Ok(tally)
}
