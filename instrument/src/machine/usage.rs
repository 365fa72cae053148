//! The machine between two samples.
//!
//! In: samples, and the window of a step. Out: [`MachineUse`]. Pure: shares and rates of differences of counters.

use super::counters::{Counters, Details};
use super::processes::Traffic;
use std::ops::Range;
use std::time::Instant;
use tierlab_analysis::record::MachineUse;

/// Look with all counters.
type Detailed<'a> = (&'a Counters, &'a Details);

/// Returns the use of the machine in a window, from the samples around it; `None` with fewer than two samples.
pub(super) fn machine_use(samples: &[Counters], window: &Range<Instant>) -> Option<MachineUse> {
    let covering = covering(samples, |sample| sample.at, window)?;
    let detailed = samples.iter().filter_map(|s| Some((s, s.details.as_ref()?)));
    let detailed: Vec<Detailed<'_>> = detailed.collect();
    let detailed = self::covering(&detailed, |(sample, _)| sample.at, window)?;
    let (first, last) = (covering.first()?, covering.last()?);
    let (&(began_sample, began), &(ended_sample, ended)) = (detailed.first()?, detailed.last()?);
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let slow_seconds = ended_sample.at.duration_since(began_sample.at).as_secs_f64();
    if ticks(first, last, |sample| sample.cpu.all) == 0.0 || seconds <= 0.0 || slow_seconds <= 0.0 {
        return None;
    }
    let foreign_cpu_share = foreign_share(first, last, kernel_share(detailed[0], detailed[detailed.len() - 1]));
    let periods = detailed.windows(2);
    let of_periods = periods.map(|pair| foreign_share(pair[0].0, pair[1].0, kernel_share(pair[0], pair[1])));
    let [cpu_pressure, memory_pressure, io_pressure] = [0, 1, 2].map(|what| {
        let (before, after) = (began.waited_us[what]?, ended.waited_us[what]?);
        Some(after.saturating_sub(before) as f64 / 1e6 / slow_seconds)
    });
    let mhz: Vec<f64> = detailed.iter().filter_map(|(_, details)| details.cpu_mhz).collect();
    let rate = |of: fn(&Details) -> Option<u64>| Some(of(ended)?.saturating_sub(of(began)?) as f64 / slow_seconds);
    let foreign_disk = foreign_disk(began, ended);
    let has_own_network = detailed.iter().any(|(_, details)| details.has_own_network);
    let mut machine = MachineUse {
        samples: u32::try_from(covering.len()).unwrap_or(u32::MAX),
        foreign_cpu_share,
        foreign_cpu_share_max: of_periods.fold(foreign_cpu_share, f64::max),
        own_cpu_share: share(first, last, |sample| sample.own),
        steal_share: share(first, last, |sample| sample.cpu.steal),
        cpu_pressure,
        memory_pressure,
        io_pressure,
        context_switches_per_s: ticks(first, last, |sample| sample.context_switches) / seconds,
        cpu_mhz: (!mhz.is_empty()).then(|| mhz.iter().sum::<f64>() / mhz.len() as f64),
        disk_bytes_per_s: rate(|details| details.disk.map(|disk| disk.read + disk.written)).unwrap_or_default(),
        network_bytes_per_s: rate(|details| details.network_bytes).unwrap_or_default(),
        foreign_disk_bytes_per_s: foreign_disk.map(|(bytes, _)| bytes / slow_seconds),
        foreign_network_bytes_per_s: rate(|details| details.network_bytes).filter(|_| !has_own_network),
        foreign_io_pressure: io_pressure.zip(foreign_disk).map(|(all, (bytes, share))| {
            let is_significant = bytes >= SIGNIFICANT_BYTES_PER_S * slow_seconds;
            if is_significant { all * share } else { 0.0 }
        }),
        foreign_memory_pressure: ended.own_memory.and_then(|own| Some(memory_pressure? * (1.0 - own))),
        unseen: Vec::new(),
    };
    machine.unseen = unseen(&machine);
    Some(machine)
}

/// Foreign load that cannot be separated from the lab's own, or that the kernel does not show.
fn unseen(machine: &MachineUse) -> Vec<String> {
    let kinds = [
        ("disk traffic", machine.foreign_disk_bytes_per_s),
        ("network traffic", machine.foreign_network_bytes_per_s),
        ("I/O pressure", machine.foreign_io_pressure),
        ("memory pressure", machine.foreign_memory_pressure),
    ];
    let unseen = kinds.into_iter().filter(|(_, found)| found.is_none());
    unseen.map(|(kind, _)| kind.to_owned()).collect()
}

/// Foreign disk traffic in bytes per second below which I/O pressure is the lab's own.
///
/// The kernel counts a process at an idle io_uring as waiting for I/O. Servers of the `nvme` tier thus show a pressure
/// near 100 % with an idle disk, of which a daemon's log line would be all of the foreign traffic.
const SIGNIFICANT_BYTES_PER_S: f64 = 1e6;

/// Returns the disk traffic of others in bytes, and its share of the storage traffic of all processes.
fn foreign_disk(began: &Details, ended: &Details) -> Option<(f64, f64)> {
    let read = |of: fn(&Details) -> Option<Traffic>| Some(of(ended)?.read.saturating_sub(of(began)?.read));
    let written = |of: fn(&Details) -> Option<Traffic>| Some(of(ended)?.written.saturating_sub(of(began)?.written));
    let own_read = read(|details| details.own_traffic)?;
    let own_written = written(|details| details.own_traffic)?;
    // The kernel may write earlier writes of any age now.
    let own_total = ended.own_traffic?.written;
    let bytes = read(|d| d.disk)?.saturating_sub(own_read) + written(|d| d.disk)?.saturating_sub(own_total);
    let all = bytes + own_read + own_written;
    Some((bytes as f64, bytes as f64 / all.max(1) as f64))
}

/// Returns the items from the last one at or before the window's start to the first one at or after its end; at least two.
fn covering<'a, T>(all: &'a [T], at: impl Fn(&T) -> Instant, window: &Range<Instant>) -> Option<&'a [T]> {
    let first = all.iter().rposition(|item| at(item) <= window.start).unwrap_or(0);
    let last = all.iter().position(|item| at(item) >= window.end);
    let last = last.unwrap_or(all.len().saturating_sub(1));
    (first < last).then(|| &all[first..=last])
}

/// Increase of a counter.
fn ticks(first: &Counters, last: &Counters, of: impl Fn(&Counters) -> u64) -> f64 {
    of(last).saturating_sub(of(first)) as f64
}

/// Increase of a counter as a share of all cores' time.
fn share(first: &Counters, last: &Counters, of: impl Fn(&Counters) -> u64) -> f64 {
    ticks(first, last, of) / ticks(first, last, |sample| sample.cpu.all).max(1.0)
}

fn kernel_share(first: Detailed<'_>, last: Detailed<'_>) -> f64 {
    let kernel = last.1.kernel.saturating_sub(first.1.kernel) as f64;
    kernel / ticks(first.0, last.0, |sample| sample.cpu.all).max(1.0)
}

/// Busy share of the CPUs without the lab's own processes and kernel threads. The kernel samples busy time at its ticks but
/// sums up process time, so the difference may be slightly negative.
fn foreign_share(first: &Counters, last: &Counters, kernel: f64) -> f64 {
    (share(first, last, |sample| sample.cpu.busy) - share(first, last, |sample| sample.own) - kernel).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::counters::CpuTicks;
    use super::*;
    use std::time::Duration;

    /// Looks every 100 ms at two cores, 20 ticks, of which `own` are the lab's, `foreign` others' and one the kernel's; every tenth
    /// sample is detailed.
    fn samples(began: Instant, count: u64, own: impl Fn(u64) -> u64, foreign: impl Fn(u64) -> u64) -> Vec<Counters> {
        let (mut own_sum, mut foreign_sum) = (0, 0);
        (0..count)
            .map(|number| {
                let sample = Counters {
                    at: began + Duration::from_millis(100 * number),
                    cpu: CpuTicks {
                        busy: 1_000 + own_sum + foreign_sum + number,
                        steal: number,
                        all: 5_000 + 20 * number,
                    },
                    own: own_sum,
                    context_switches: 50 * number,
                    details: (number % 10 == 0).then(|| Details {
                        kernel: number,
                        waited_us: [Some(10_000 * number), Some(4_000 * number), Some(50_000 * number)],
                        cpu_mhz: Some(2_000.0 + number as f64),
                        disk: Some(Traffic {
                            read: 100_000 * number,
                            written: 300_000 * number,
                        }),
                        own_traffic: Some(Traffic {
                            read: 80_000 * number,
                            written: 100_000 * number,
                        }),
                        network_bytes: Some(2_000 * number),
                        has_own_network: false,
                        own_memory: Some(0.25),
                    }),
                };
                own_sum += own(number);
                foreign_sum += foreign(number);
                sample
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
        let samples = samples(began, 51, |_| 8, foreign);
        let machine = machine_use(&samples, &window(began, 1_000, 4_000)).unwrap();
        assert_eq!(machine.samples, 31);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(machine.foreign_cpu_share, 0.1), "{machine:?}");
        assert!(near(machine.foreign_cpu_share_max, 0.3), "{machine:?}");
        assert!(
            near(machine.own_cpu_share, 0.4) && near(machine.steal_share, 0.05),
            "{machine:?}"
        );
        assert!(near(machine.cpu_pressure.unwrap(), 0.1), "{machine:?}");
        assert!(near(machine.memory_pressure.unwrap(), 0.04) && near(machine.io_pressure.unwrap(), 0.5));
        assert!(near(machine.foreign_memory_pressure.unwrap(), 0.03), "{machine:?}");
        assert!(near(machine.context_switches_per_s, 500.0));
        assert_eq!(machine.cpu_mhz, Some(2_025.0));
        assert!(near(machine.disk_bytes_per_s, 4_000_000.0) && near(machine.network_bytes_per_s, 20_000.0));
        assert!(
            near(machine.foreign_network_bytes_per_s.unwrap(), 20_000.0),
            "{machine:?}"
        );
        // 600 kB read by others; 9 MB written, of which at most 4 MB since the first sample are the lab's own.
        let foreign = 5_600_000.0 / 3.0;
        assert!(near(machine.foreign_disk_bytes_per_s.unwrap(), foreign), "{machine:?}");
        let share = 5_600_000.0 / (5_600_000.0 + 2_400_000.0 + 3_000_000.0);
        assert!(near(machine.foreign_io_pressure.unwrap(), 0.5 * share), "{machine:?}");
    }

    #[test]
    fn pressure_beside_an_idle_disk_is_not_foreign() {
        let began = Instant::now();
        for foreign_bytes in [0, 80_000] {
            let mut samples = samples(began, 31, |_| 4, |_| 0);
            for (number, details) in samples.iter_mut().filter_map(|s| s.details.as_mut()).enumerate() {
                let idle = Traffic { read: 0, written: 0 };
                details.own_traffic = Some(idle);
                details.disk = Some(Traffic {
                    written: foreign_bytes * number as u64,
                    ..idle
                });
                details.waited_us[2] = Some(950_000 * number as u64);
            }
            let machine = machine_use(&samples, &window(began, 0, 3_000)).unwrap();
            assert!(machine.io_pressure.unwrap() > 0.9, "{machine:?}");
            assert_eq!(machine.foreign_io_pressure, Some(0.0), "{foreign_bytes}");
        }
    }

    #[test]
    fn pressure_under_a_limit_of_the_own_memory_is_nobodys() {
        let began = Instant::now();
        let mut samples = samples(began, 31, |_| 4, |_| 0);
        for details in samples.iter_mut().filter_map(|s| s.details.as_mut()) {
            details.own_memory = None;
        }
        let machine = machine_use(&samples, &window(began, 0, 3_000)).unwrap();
        assert!(machine.memory_pressure.is_some() && machine.foreign_memory_pressure.is_none());
        assert_eq!(machine.unseen, ["memory pressure"]);
    }

    #[test]
    fn without_counters_of_the_own_processes_nothing_is_foreign() {
        let began = Instant::now();
        let mut samples = samples(began, 21, |_| 4, |_| 0);
        for details in samples.iter_mut().filter_map(|s| s.details.as_mut()) {
            (details.own_traffic, details.has_own_network, details.waited_us) = (None, true, [None; 3]);
        }
        let machine = machine_use(&samples, &window(began, 0, 2_000)).unwrap();
        assert_eq!(
            (machine.foreign_disk_bytes_per_s, machine.foreign_network_bytes_per_s),
            (None, None)
        );
        assert_eq!(
            (machine.foreign_io_pressure, machine.foreign_memory_pressure),
            (None, None)
        );
        assert!(machine.disk_bytes_per_s > 0.0);
        let kinds = ["disk traffic", "network traffic", "I/O pressure", "memory pressure"];
        assert_eq!(machine.unseen, kinds);
    }

    #[test]
    fn a_window_between_two_looks_is_told_by_those_around_it() {
        let began = Instant::now();
        let samples = samples(began, 31, |_| 4, |_| 5);
        let machine = machine_use(&samples, &window(began, 1_530, 1_560)).unwrap();
        assert_eq!(machine.samples, 2);
        assert!((machine.foreign_cpu_share - 0.25).abs() < 1e-9);
        // Half before the first sample, half after the last.
        assert_eq!(machine_use(&samples, &window(began, 0, 9_000)).unwrap().samples, 31);
    }

    #[test]
    fn more_own_than_was_busy_is_no_foreign_time_below_zero() {
        let began = Instant::now();
        let mut all = samples(began, 21, |_| 10, |_| 0);
        for sample in &mut all {
            sample.own = sample.own * 11 / 10;
        }
        let machine = machine_use(&all, &window(began, 0, 2_000)).unwrap();
        assert_eq!((machine.foreign_cpu_share, machine.foreign_cpu_share_max), (0.0, 0.0));
    }

    #[test]
    fn nothing_is_told_by_fewer_than_two_looks() {
        let began = Instant::now();
        let samples = samples(began, 2, |_| 1, |_| 1);
        assert_eq!(machine_use(&[], &window(began, 0, 100)), None);
        assert_eq!(machine_use(&samples[..1], &window(began, 0, 100)), None);
        // The second sample was not a detailed one.
        assert_eq!(machine_use(&samples, &window(began, 0, 100)), None);
    }
}
