//! What the machine did between two looks.
//!
//! In: looks, and the window of a step. Out: [`MachineUse`]. Pure: shares and rates of differences of counters.

use super::look::{Look, More};
use std::ops::Range;
use std::time::Instant;
use tierlab_analysis::record::MachineUse;

/// A look that took everything.
struct Thorough<'a> {
    look: &'a Look,
    more: &'a More,
}

/// What the machine did in a window, by the looks around it; `None` where there are no two.
pub(super) fn machine_use(looks: &[Look], window: &Range<Instant>) -> Option<MachineUse> {
    let around = around(looks, |look| look.at, window)?;
    let thorough: Vec<Thorough<'_>> = looks
        .iter()
        .filter_map(|look| {
            Some(Thorough {
                look,
                more: look.more.as_ref()?,
            })
        })
        .collect();
    let thorough = self::around(&thorough, |one| one.look.at, window)?;
    let (first, last) = (around.first()?, around.last()?);
    let (began, ended) = (thorough.first()?, thorough.last()?);
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let slow_seconds = ended.look.at.duration_since(began.look.at).as_secs_f64();
    if ticks(first, last, |look| look.cpu.all) == 0.0 || seconds <= 0.0 || slow_seconds <= 0.0 {
        return None;
    }
    let foreign_cpu_share = foreign_share(first, last, kernel_share(began, ended));
    let periods = thorough.windows(2);
    let of_periods = periods.map(|pair| foreign_share(pair[0].look, pair[1].look, kernel_share(&pair[0], &pair[1])));
    let [cpu_pressure, memory_pressure, io_pressure] = [0, 1, 2].map(|what| {
        let (before, after) = (began.more.waited_us[what]?, ended.more.waited_us[what]?);
        Some(after.saturating_sub(before) as f64 / 1e6 / slow_seconds)
    });
    let mhz: Vec<f64> = thorough.iter().filter_map(|one| one.more.cpu_mhz).collect();
    let rate = |of: fn(&More) -> u64| of(ended.more).saturating_sub(of(began.more)) as f64 / slow_seconds;
    Some(MachineUse {
        samples: u32::try_from(around.len()).unwrap_or(u32::MAX),
        foreign_cpu_share,
        foreign_cpu_share_max: of_periods.fold(foreign_cpu_share, f64::max),
        own_cpu_share: share(first, last, |look| look.own),
        steal_share: share(first, last, |look| look.cpu.steal),
        cpu_pressure,
        memory_pressure,
        io_pressure,
        context_switches_per_s: ticks(first, last, |look| look.context_switches) / seconds,
        cpu_mhz: (!mhz.is_empty()).then(|| mhz.iter().sum::<f64>() / mhz.len() as f64),
        disk_bytes_per_s: rate(|more| more.disk_bytes),
        network_bytes_per_s: rate(|more| more.network_bytes),
    })
}

/// From the last one at the window's beginning or before to the first one at its end or after; at least two.
fn around<'a, T>(all: &'a [T], at: impl Fn(&T) -> Instant, window: &Range<Instant>) -> Option<&'a [T]> {
    let first = all.iter().rposition(|one| at(one) <= window.start).unwrap_or(0);
    let last = all.iter().position(|one| at(one) >= window.end);
    let last = last.unwrap_or(all.len().saturating_sub(1));
    (first < last).then(|| &all[first..=last])
}

/// By how much a counter rose.
fn ticks(first: &Look, last: &Look, of: impl Fn(&Look) -> u64) -> f64 {
    of(last).saturating_sub(of(first)) as f64
}

/// The same as a share of all cores' time.
fn share(first: &Look, last: &Look, of: impl Fn(&Look) -> u64) -> f64 {
    ticks(first, last, of) / ticks(first, last, |look| look.cpu.all).max(1.0)
}

fn kernel_share(first: &Thorough<'_>, last: &Thorough<'_>) -> f64 {
    let ticks = last.more.kernel.saturating_sub(first.more.kernel) as f64;
    ticks / self::ticks(first.look, last.look, |look| look.cpu.all).max(1.0)
}

/// What was busy, less what the lab's own processes and kernel threads used. The kernel samples the one at its ticks and
/// adds up the other, so that the difference of almost nothing may come out below zero.
fn foreign_share(first: &Look, last: &Look, kernel: f64) -> f64 {
    (share(first, last, |look| look.cpu.busy) - share(first, last, |look| look.own) - kernel).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::look::CpuTicks;
    use super::*;
    use std::time::Duration;

    /// Looks every 100 ms at two cores, 20 ticks, of which `own` are the lab's, `foreign` others' and one the kernel's; every tenth
    /// look is thorough.
    fn looks(began: Instant, count: u64, own: impl Fn(u64) -> u64, foreign: impl Fn(u64) -> u64) -> Vec<Look> {
        let (mut own_sum, mut foreign_sum) = (0, 0);
        (0..count)
            .map(|number| {
                let look = Look {
                    at: began + Duration::from_millis(100 * number),
                    cpu: CpuTicks {
                        busy: 1_000 + own_sum + foreign_sum + number,
                        steal: number,
                        all: 5_000 + 20 * number,
                    },
                    own: own_sum,
                    context_switches: 50 * number,
                    more: (number % 10 == 0).then(|| More {
                        kernel: number,
                        waited_us: [Some(10_000 * number), Some(0), None],
                        cpu_mhz: Some(2_000.0 + number as f64),
                        disk_bytes: 1_000 * number,
                        network_bytes: 2_000 * number,
                    }),
                };
                own_sum += own(number);
                foreign_sum += foreign(number);
                look
            })
            .collect()
    }

    fn window(began: Instant, from_ms: u64, to_ms: u64) -> Range<Instant> {
        began + Duration::from_millis(from_ms)..began + Duration::from_millis(to_ms)
    }

    #[test]
    fn shares_are_of_all_cores_and_of_the_window() {
        let began = Instant::now();
        // A compiler runs before the window, and in its second second.
        let foreign = |number| match number {
            0..10 => 9,
            20..30 => 6,
            _ => 0,
        };
        let looks = looks(began, 51, |_| 8, foreign);
        let machine = machine_use(&looks, &window(began, 1_000, 4_000)).unwrap();
        assert_eq!(machine.samples, 31);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(machine.foreign_cpu_share, 0.1), "{machine:?}");
        assert!(near(machine.foreign_cpu_share_max, 0.3), "{machine:?}");
        assert!(
            near(machine.own_cpu_share, 0.4) && near(machine.steal_share, 0.05),
            "{machine:?}"
        );
        assert!(near(machine.cpu_pressure.unwrap(), 0.1), "{machine:?}");
        assert_eq!((machine.memory_pressure, machine.io_pressure), (Some(0.0), None));
        assert!(near(machine.context_switches_per_s, 500.0));
        assert_eq!(machine.cpu_mhz, Some(2_025.0));
        assert!(near(machine.disk_bytes_per_s, 10_000.0) && near(machine.network_bytes_per_s, 20_000.0));
    }

    #[test]
    fn a_window_between_two_looks_is_told_by_those_around_it() {
        let began = Instant::now();
        let looks = looks(began, 31, |_| 4, |_| 5);
        let machine = machine_use(&looks, &window(began, 1_530, 1_560)).unwrap();
        assert_eq!(machine.samples, 2);
        assert!((machine.foreign_cpu_share - 0.25).abs() < 1e-9);
        // Half before the first look, half after the last.
        assert_eq!(machine_use(&looks, &window(began, 0, 9_000)).unwrap().samples, 31);
    }

    #[test]
    fn more_own_than_was_busy_is_no_foreign_time_below_zero() {
        let began = Instant::now();
        let mut all = looks(began, 21, |_| 10, |_| 0);
        for look in &mut all {
            look.own = look.own * 11 / 10;
        }
        let machine = machine_use(&all, &window(began, 0, 2_000)).unwrap();
        assert_eq!((machine.foreign_cpu_share, machine.foreign_cpu_share_max), (0.0, 0.0));
    }

    #[test]
    fn nothing_is_told_by_fewer_than_two_looks() {
        let began = Instant::now();
        let looks = looks(began, 2, |_| 1, |_| 1);
        assert_eq!(machine_use(&[], &window(began, 0, 100)), None);
        assert_eq!(machine_use(&looks[..1], &window(began, 0, 100)), None);
        // The second look was not a thorough one.
        assert_eq!(machine_use(&looks, &window(began, 0, 100)), None);
    }
}
