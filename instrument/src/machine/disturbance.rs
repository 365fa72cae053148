//! Disturbances of a step by the machine.
//!
//! In: [`MachineUse`] and the plan's limits. Out: foreign load above a limit, in words. Pure. The runner handles
//! disturbed steps.

use tierlab_analysis::record::{Limits, MachineUse};

/// Minimum samples for a verdict: about a second. The kernel counts CPU time in hundredths of a second, so shares of
/// fewer samples are noise.
pub(super) const MIN_SAMPLES: u32 = 11;

/// Returns the foreign load that disturbed a step; `None` without any, or if the step was too short to tell. Without `server_is_known`,
/// foreign load may be the server's, and is ignored. Load that the kernel does not count is also ignored.
pub fn disturbance(machine: &MachineUse, limits: &Limits, server_is_known: bool) -> Option<String> {
    if machine.samples < MIN_SAMPLES {
        return None;
    }
    let foreign_cpu_share = server_is_known.then_some(machine.foreign_cpu_share);
    let mut found = cpu_disturbances(foreign_cpu_share, Some(machine.steal_share), limits);
    let (disk, network) = (machine.foreign_disk_bytes_per_s, machine.foreign_network_bytes_per_s);
    let (io, memory) = (machine.foreign_io_pressure, machine.foreign_memory_pressure);
    let (rate, share) = ((1e6, "MB/s"), (0.01, "%"));
    for (what, value, limit, (one, unit)) in [
        ("disk traffic", disk, limits.foreign_disk_bytes_per_s, rate),
        ("network traffic", network, limits.foreign_network_bytes_per_s, rate),
        ("I/O pressure", io, limits.foreign_io_pressure, share),
        ("memory pressure", memory, limits.foreign_memory_pressure, share),
    ] {
        let Some(value) = value.filter(|value| server_is_known && *value > limit) else {
            continue;
        };
        let (value, limit) = format_distinct(value / one, limit / one, unit);
        found.push(format!("foreign {what} was {value} (limit {limit})"));
    }
    (!found.is_empty()).then(|| found.join(", "))
}

/// Describes foreign CPU time and steal time above their limits. A limit of 1 is disabled.
pub fn cpu_disturbances(foreign_share: Option<f64>, steal_share: Option<f64>, limits: &Limits) -> Vec<String> {
    let exceeded = |share: Option<f64>, limit: f64, what: &str, suffix: &str| {
        let share = share.filter(|share| limit < 1.0 && *share > limit)?;
        let (formatted, limit) = format_distinct(100.0 * share, 100.0 * limit, "%");
        Some(format!("{what} {formatted} of the CPUs{suffix} (limit {limit})"))
    };
    let foreign = exceeded(foreign_share, limits.foreign_cpu_share, "foreign processes used", "");
    let stolen = exceeded(
        steal_share,
        limits.steal_share,
        "the hypervisor gave",
        "' time to others",
    );
    foreign.into_iter().chain(stolen).collect()
}

/// Formats two different numbers with their unit, with the fewest decimals that show a difference.
fn format_distinct(value: f64, limit: f64, unit: &str) -> (String, String) {
    let formatted = |decimals: i32| {
        let scale = 10_f64.powi(decimals);
        [value, limit].map(|number| format!("{} {unit}", (number * scale).round() / scale))
    };
    let is_distinct = |[value, limit]: &[String; 2]| value != limit;
    let [value, limit] = (0..9).map(formatted).find(is_distinct).unwrap_or_else(|| formatted(9));
    (value, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(change: impl FnOnce(&mut MachineUse), limits: &Limits, server_is_known: bool) -> Option<String> {
        let mut machine = MachineUse {
            samples: 50,
            foreign_cpu_share: 0.02,
            steal_share: 0.01,
            own_cpu_share: 0.9,
            ..MachineUse::default()
        };
        change(&mut machine);
        disturbance(&machine, limits, server_is_known)
    }

    #[test]
    fn what_is_above_its_limit_is_named_with_it() {
        let limits = Limits::default();
        assert_eq!(found(|_| (), &limits, true), None);
        let foreign = found(|machine| machine.foreign_cpu_share = 0.457, &limits, true).unwrap();
        assert_eq!(foreign, "foreign processes used 46 % of the CPUs (limit 10 %)");
        let both = |machine: &mut MachineUse| (machine.foreign_cpu_share, machine.steal_share) = (0.2, 0.07);
        let both = found(both, &limits, true).unwrap();
        assert!(
            both.contains("foreign processes")
                && both.contains("hypervisor gave 7 % of the CPUs' time to others (limit 5 %)")
        );
    }

    #[test]
    fn traffic_and_pressure_of_others_disturb_and_what_is_not_counted_does_not() {
        let limits = Limits::default();
        let busy = |machine: &mut MachineUse| {
            machine.foreign_disk_bytes_per_s = Some(484e6);
            machine.foreign_network_bytes_per_s = Some(112e6);
            machine.foreign_io_pressure = Some(0.34);
            machine.foreign_memory_pressure = Some(0.12);
        };
        assert_eq!(
            found(busy, &limits, true).unwrap(),
            "foreign disk traffic was 484 MB/s (limit 50 MB/s), foreign network traffic was 112 MB/s (limit 50 MB/s), \
             foreign I/O pressure was 34 % (limit 20 %), foreign memory pressure was 12 % (limit 10 %)"
        );
        assert_eq!(found(busy, &limits, false), None, "it may be the server");
        let close = |machine: &mut MachineUse| {
            machine.foreign_disk_bytes_per_s = Some(300.0);
            machine.foreign_io_pressure = Some(0.0504);
            machine.foreign_cpu_share = 0.1004;
        };
        let strict = Limits {
            foreign_disk_bytes_per_s: 0.0,
            foreign_io_pressure: 0.05,
            ..Limits::default()
        };
        assert_eq!(
            found(close, &strict, true).unwrap(),
            "foreign processes used 10.04 % of the CPUs (limit 10 %), foreign disk traffic was 0.0003 MB/s (limit 0 MB/s), \
             foreign I/O pressure was 5.04 % (limit 5 %)"
        );
        let idle = |machine: &mut MachineUse| {
            machine.foreign_disk_bytes_per_s = Some(5e6);
            machine.foreign_io_pressure = Some(0.08);
        };
        assert_eq!(found(idle, &limits, true), None);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known_or_asked() {
        let (none, limits) = (
            Limits {
                foreign_cpu_share: 1.0,
                ..Limits::default()
            },
            Limits::default(),
        );
        let all = |machine: &mut MachineUse| machine.foreign_cpu_share = 1.0;
        assert_eq!(found(all, &none, true), None, "no limit");
        assert_eq!(found(all, &limits, false), None, "it may be the server");
        let short = |machine: &mut MachineUse| (machine.foreign_cpu_share, machine.samples) = (1.0, 10);
        assert_eq!(found(short, &limits, true), None, "a few ticks");
    }
}
