//! Callers of one object, in a closed loop. In: a tier, an object and a workload. Out: their results.

use super::object::Subject;
use super::options::{Into, Workload};
use crate::chance::{Pick, Random};
use crate::drive::{Call, Caller, Course, Driven, tasks};
use crate::machine::Watched;
use crate::plan::{Access, Point};
use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tierlab_storage::Tier;
use tierlab_storage::device::Landed;

/// Bytes of a range on a device that are checked.
const CHECKED: usize = 8;

struct ObjectCaller {
    course: Arc<Course>,
    tier: Arc<dyn Tier>,
    subject: Subject,
    into: Into,
    ranges: u32,
    random: Random,
}

/// Measures until the window is over or an interrupt.
pub(super) async fn run(tier: &Arc<dyn Tier>, subject: &Subject, workload: &Workload, stop: &Stop) -> Result<Driven> {
    let access = Access {
        seed: workload.seed,
        exponent: workload.exponent.unwrap_or_default(),
        ..Access::reads(subject.object.size, workload.window, workload.warmup)
    };
    let point = Point {
        pattern: workload.pattern,
        depth: workload.depth,
        ..Point::reads("", workload.block_bytes)
    };
    let course = Arc::new(Course::new(&point, &access, subject.object.size, 0, stop)?);
    let caller = |number| ObjectCaller {
        course: Arc::clone(&course),
        tier: Arc::clone(tier),
        subject: subject.clone(),
        into: workload.into,
        ranges: workload.ranges_per_call,
        // Beside those of the course, from which the first range of each call is drawn.
        random: course.random(workload.depth + number),
    };
    let callers = (0..workload.depth).map(caller).collect();
    let driven = tasks(Arc::clone(&course), callers, &Watched::default()).await?;
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
        let object = &self.subject.object;
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
                    self.subject.check(range, part, part.len())?;
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
            self.subject.check(range, &beginning, part.len())?;
        }
        Ok(())
    }
}
