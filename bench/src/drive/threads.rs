//! Callers that are threads, for calls that block. In: a repeat, and one caller for each call in flight. Out: their results.

use super::{Call, RepeatResult, RepeatRun, Tally, watch};
use crate::machine::MachineMonitor;
use crate::random::Pick;
use crate::stop::{POLL_INTERVAL, sleep_until};
use anyhow::{Context, Result};
use std::time::Instant;
use tierlab_storage::ReadCost;

/// Blocking caller.
pub(crate) trait BlockingCaller: Send {
    /// Prepares an access, before its time starts.
    fn prepare(&mut self, pick: Pick);

    /// Makes an access, and returns the time of its end. Checks the bytes after that time.
    fn act(&mut self, pick: Pick) -> Result<Instant>;
}

/// Runs a repeat, and `finish` after the last call.
///
/// # Errors
/// A failed access, wrong bytes, or an error of `finish`.
pub(crate) fn run_threads(
    run: &RepeatRun,
    callers: Vec<impl BlockingCaller>,
    monitor: &MachineMonitor,
    finish: impl FnOnce() -> Result<()>,
) -> Result<RepeatResult> {
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(callers.len());
        for (number, caller) in (0..).zip(callers) {
            let thread = std::thread::Builder::new().name("bench-caller".to_owned());
            let thread = thread.spawn_scoped(scope, move || call(run, caller, number));
            let thread = thread.context("cannot start a thread for each call in flight");
            // Otherwise those that have started would make calls for the whole repeat.
            running.push(thread.inspect_err(|_| run.fail())?);
        }
        watch(run, monitor, || {
            let mut tally = Tally::default();
            for thread in running {
                let own = thread.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
                tally.add(&own);
            }
            finish()?;
            Ok(tally)
        })
    })
}

fn call(run: &RepeatRun, mut caller: impl BlockingCaller, number: u32) -> Result<Tally> {
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut random = run.random(number);
    let mut tally = Tally::default();
    sleep_until(run.start, POLL_INTERVAL, || run.is_over());
    while let Some(next) = run.next_call(&mut random, &mut tally) {
        caller.prepare(next.pick);
        if let Some(due) = next.due {
            // Another caller may have found no data left; this call still has its own.
            sleep_until(due, POLL_INTERVAL, || run.is_cut_short());
            if run.is_cut_short() {
                continue;
            }
        }
        let started = Instant::now();
        let ended = caller.act(next.pick).inspect_err(|_| run.fail())?;
        let call = Call {
            started,
            ended,
            bytes: next.pick.len,
            cost: ReadCost::default(),
        };
        run.count(next, &call, &mut tally);
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Access, CacheState, Operation, Pattern, Point, WriteSync};
    use crate::stop::Stop;
    use std::time::Duration;

    /// Takes 5 ms to make content, and no time to write it.
    struct Slow;

    impl BlockingCaller for Slow {
        fn prepare(&mut self, _: Pick) {
            std::thread::sleep(Duration::from_millis(5));
        }

        fn act(&mut self, _: Pick) -> Result<Instant> {
            Ok(Instant::now())
        }
    }

    fn run(point: &Point, seconds: f64) -> RepeatResult {
        let time = Duration::from_secs_f64(seconds);
        let access = Access::reads(16 * 4096, time, time);
        let run = RepeatRun::new(point, &access, access.size, 0, &Stop::default()).unwrap();
        let finish = || {
            std::thread::sleep(Duration::from_millis(40));
            Ok(())
        };
        run_threads(&run, vec![Slow, Slow], &MachineMonitor::default(), finish).unwrap()
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_the_next_due_time() {
        let point = Point {
            rate: 1,
            depth: 64,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(16 * 4096, Duration::from_secs(600), Duration::ZERO);
        let (stop, started) = (Stop::default(), Instant::now());
        let run = RepeatRun::new(&point, &access, access.size, 0, &stop).unwrap();
        let later = stop.clone();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            later.request();
        });
        // The last one is due after a minute.
        let readers = Vec::from_iter((0..point.depth).map(|_| Reader));
        run_threads(&run, readers, &MachineMonitor::default(), || Ok(())).unwrap();
        interrupt.join().unwrap();
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn content_is_made_before_the_clock() {
        let outcome = run(&Point::reads("t", 4096), 0.05);
        assert!(outcome.tally.sums.calls > 0);
        assert!(outcome.tally.latency_ns.value_at_quantile(0.5) < 4_000_000);
    }

    #[test]
    fn making_writes_durable_at_the_end_takes_part_of_the_time() {
        let point = Point {
            sync: WriteSync::End,
            ..Point::reads("t", 4096)
        };
        let window = run(&point, 0.05).window;
        assert!(window >= Duration::from_millis(90), "{window:?}");
        assert!(run(&Point::reads("t", 4096), 0.05).window <= Duration::from_millis(50));
    }

    #[test]
    fn each_whole_second_of_a_window_has_its_calls() {
        let outcome = run(&Point::reads("t", 4096), 2.0);
        let calls: Vec<u64> = outcome.seconds.iter().map(|second| second.latency_ns.len()).collect();
        assert!(calls.len() == 2 && calls.iter().all(|calls| *calls > 50), "{calls:?}");
        assert_eq!(calls.iter().sum::<u64>(), outcome.tally.sums.ended);
        assert!(run(&Point::reads("t", 4096), 0.05).seconds.is_empty());
    }

    #[test]
    fn a_checkpoint_takes_until_every_caller_has_written_its_object() {
        let point = Point {
            operation: Operation::Checkpoint,
            pattern: Pattern::Sequential,
            depth: 2,
            ..Point::reads("t", 1 << 20)
        };
        let access = Access::reads(1, Duration::from_millis(1), Duration::ZERO);
        let run = RepeatRun::new(&point, &access, point.block_bytes, 0, &Stop::default()).unwrap();
        let outcome = run_threads(&run, vec![Reader, Reader], &MachineMonitor::default(), || Ok(())).unwrap();
        assert_eq!((outcome.tally.sums.calls, outcome.tally.sums.ended), (2, 2));
        assert!(outcome.window >= Duration::from_millis(30), "{:?}", outcome.window);
    }

    #[test]
    fn a_repeat_that_ends_with_its_data_begins_with_its_first_call() {
        let point = Point {
            operation: Operation::Checkpoint,
            pattern: Pattern::Sequential,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(1, Duration::from_millis(1), Duration::ZERO);
        let run = RepeatRun::new(&point, &access, point.block_bytes, 0, &Stop::default()).unwrap();
        // Its content is made after the planned start.
        let outcome = run_threads(&run, vec![Slow], &MachineMonitor::default(), || Ok(())).unwrap();
        let latency = Duration::from_nanos(outcome.tally.latency_ns.max());
        assert!(outcome.window <= latency, "{:?} {latency:?}", outcome.window);
    }

    /// Takes 30 ms for a call.
    struct Reader;

    impl BlockingCaller for Reader {
        fn prepare(&mut self, _: Pick) {}

        fn act(&mut self, _: Pick) -> Result<Instant> {
            std::thread::sleep(Duration::from_millis(30));
            Ok(Instant::now())
        }
    }

    #[test]
    fn a_repeat_that_ends_with_its_data_lasts_until_its_last_call_has_ended() {
        let point = Point {
            pattern: Pattern::Sequential,
            cache: CacheState::Cold,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(2 * 4096, Duration::from_secs(20), Duration::ZERO);
        let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let readers = vec![Reader, Reader, Reader];
        let outcome = run_threads(&run, readers, &MachineMonitor::default(), || Ok(())).unwrap();
        assert_eq!(outcome.tally.sums.ended, 2);
        assert!(outcome.window >= Duration::from_millis(30), "{:?}", outcome.window);
    }

    #[test]
    fn calls_of_a_cold_open_loop_are_made_although_other_callers_find_no_data() {
        let point = Point {
            pattern: Pattern::Sequential,
            cache: CacheState::Cold,
            rate: 50,
            depth: 8,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(4 * 4096, Duration::from_secs(20), Duration::ZERO);
        let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let readers = Vec::from_iter((0..point.depth).map(|_| Reader));
        let outcome = run_threads(&run, readers, &MachineMonitor::default(), || Ok(())).unwrap();
        assert_eq!((outcome.tally.sums.calls, outcome.tally.sums.ended), (4, 4));
        assert!(outcome.window < Duration::from_secs(10), "{:?}", outcome.window);
    }

    /// Takes 500 ms to make content.
    struct Late;

    impl BlockingCaller for Late {
        fn prepare(&mut self, _: Pick) {
            std::thread::sleep(Duration::from_millis(500));
        }

        fn act(&mut self, _: Pick) -> Result<Instant> {
            Ok(Instant::now())
        }
    }

    #[test]
    fn a_repeat_whose_first_call_begins_after_its_window_has_no_figures() {
        let point = Point {
            pattern: Pattern::Sequential,
            cache: CacheState::Cold,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(4096, Duration::from_millis(300), Duration::ZERO);
        let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        // One caller takes the only block, and prepares for long; the other one ends the repeat.
        let callers = vec![Late, Late];
        let error = run_threads(&run, callers, &MachineMonitor::default(), || Ok(())).unwrap_err();
        assert!(error.to_string().contains("no call began"), "{error}");
    }

    #[test]
    fn a_cold_repeat_in_order_ends_with_its_data() {
        let point = Point {
            pattern: Pattern::Sequential,
            cache: CacheState::Cold,
            ..Point::reads("t", 4096)
        };
        let outcome = run(&point, 20.0);
        assert_eq!(outcome.tally.sums.calls, 16);
        assert!(outcome.window < Duration::from_secs(10), "{:?}", outcome.window);
    }
}
