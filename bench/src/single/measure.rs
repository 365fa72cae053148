//! Callers of one object, in a closed loop, and the cost of the tier without reads. In: a tier, an object and a workload. Out: their
//! results.

use super::options::{Into, SingleOptions};
use crate::chance::{Pick, Random};
use crate::content::{CHECKED, Data};
use crate::drive::{Call, Caller, Course, Driven, tasks};
use crate::machine::Watched;
use crate::plan::{Access, Point};
use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use procfs::process::{Process, Task};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_storage::Tier;
use tierlab_storage::device::Landed;
use tokio::runtime::Runtime;

/// Unmeasured time for the last reads' threads to fall asleep.
const SETTLING: Duration = Duration::from_millis(200);

struct ObjectCaller {
    course: Arc<Course>,
    tier: Arc<dyn Tier>,
    data: Data,
    into: Into,
    ranges: u32,
    random: Random,
}

/// Measures until the window is over or an interrupt.
pub(super) fn run(
    runtime: &Runtime,
    tier: &Arc<dyn Tier>,
    data: &Data,
    options: &SingleOptions,
    stop: &Stop,
) -> Result<Driven> {
    let access = Access {
        seed: options.seed,
        exponent: options.exponent,
        ..Access::reads(data.file_bytes, options.window, options.warmup)
    };
    let point = Point {
        pattern: options.pattern,
        depth: options.depth,
        ..Point::reads("", options.block_bytes)
    };
    let course = Arc::new(Course::new(&point, &access, data.file_bytes, 0, stop)?);
    let caller = |number| ObjectCaller {
        course: Arc::clone(&course),
        tier: Arc::clone(tier),
        data: data.clone(),
        into: options.into,
        ranges: options.ranges_per_call,
        // Beside those of the course, from which the first range of each call is drawn.
        random: course.random(options.depth + number),
    };
    let callers = (0..options.depth).map(caller);
    let driven = tasks(runtime, &course, callers, &Watched::default())?;
    ensure!(
        driven.tally.sums.calls > 0,
        "no call finished in {:.1} s: measure for longer",
        driven.window.as_secs_f64()
    );
    Ok(driven)
}

impl Caller for ObjectCaller {
    async fn call(&mut self, pick: Pick) -> Result<Call> {
        let range = |pick: Pick| pick.offset..pick.offset + pick.len as u64;
        let mut ranges = vec![range(pick)];
        ranges.extend((1..self.ranges).map(|_| range(self.course.pick(&mut self.random))));
        let object = &self.data.objects[0];
        let begun = Instant::now();
        let (ended, cost) = match (self.into, self.tier.device()) {
            (Into::Device, Some(device)) => {
                let landed = device.read_to_device(object, &ranges).await;
                let ended = Instant::now();
                let landed = landed.context("a read failed")?;
                self.check_device(&ranges, &landed, begun)?;
                (ended, landed.cost)
            }
            _ => {
                let read = self.tier.read_many(object, &ranges).await;
                let ended = Instant::now();
                let read = read.context("a read failed")?;
                for (range, part) in ranges.iter().zip(&read.parts) {
                    self.data.check(0, range, part, part.len())?;
                }
                (ended, read.cost)
            }
        };
        Ok(Call {
            begun,
            ended,
            bytes: ranges.iter().map(|range| (range.end - range.start) as usize).sum(),
            cost,
        })
    }
}

impl ObjectCaller {
    /// Checks bytes on the device, during the warm-up only: looking at them is a copy.
    fn check_device(&self, ranges: &[Range<u64>], landed: &Landed, begun: Instant) -> Result<()> {
        if begun >= self.course.measure_from {
            return Ok(());
        }
        for (range, part) in ranges.iter().zip(&landed.parts) {
            let mut beginning = vec![0; part.len().min(CHECKED)];
            landed.bytes.to_host(part.start, &mut beginning)?;
            self.data.check(0, range, &beginning, part.len())?;
        }
        Ok(())
    }
}

/// Waits, and returns the CPU time of the whole process meanwhile, as a share of one core.
pub(super) fn idle_cpu_share(span: Duration) -> Result<f64> {
    std::thread::sleep(SETTLING);
    let (before, begun) = (cpu_ns()?, Instant::now());
    std::thread::sleep(span);
    let elapsed = begun.elapsed();
    // Threads that ended meanwhile were idle threads of the runtime.
    let used = |(thread, ns): (&i32, &u64)| ns - before.get(thread).unwrap_or(&0);
    let used: u64 = cpu_ns()?.iter().map(used).sum();
    Ok(used as f64 / elapsed.as_nanos() as f64)
}

/// Returns the CPU time of each thread so far, in nanoseconds.
fn cpu_ns() -> Result<HashMap<i32, u64>> {
    let tasks = Process::myself().and_then(|own| own.tasks())?;
    // A thread may end meanwhile.
    let used = |task: Task| Some((task.tid, task.schedstat().ok()?.sum_exec_runtime));
    Ok(tasks.flatten().filter_map(used).collect())
}
