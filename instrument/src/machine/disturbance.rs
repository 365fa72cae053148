//! Disturbances of a step by the machine.
//!
//! In: [`MachineUse`] and the plan's limits. Out: foreign load above a limit, in words. Pure. The runner decides what becomes of a
//! disturbed step.

use tierlab_analysis::record::{Limits, MachineUse};

/// Minimum looks for a judgement: about a second. The kernel counts CPU time in hundredths of a second, so a share of fewer is noise.
pub(super) const LEAST_LOOKS: u32 = 11;

/// Foreign load that disturbed a step; `None` without any, or if the step was too short to tell. Without `server_is_known` foreign
/// load may be the server's, and is ignored. Load that the kernel does not count disturbs nothing.
#[must_use]
pub fn disturbance(machine: &MachineUse, limits: &Limits, server_is_known: bool) -> Option<String> {
    if machine.samples < LEAST_LOOKS {
        return None;
    }
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mb_per_s = |bytes: f64| format!("{:.0} MB/s", bytes / 1e6);
    let is_over = |share: f64, limit: f64| limit < 1.0 && share > limit;
    let mut found = Vec::new();
    if server_is_known && is_over(machine.foreign_cpu_share, limits.foreign_cpu_share) {
        found.push(format!(
            "foreign processes used {} of the CPUs (limit {})",
            percent(machine.foreign_cpu_share),
            percent(limits.foreign_cpu_share)
        ));
    }
    if is_over(machine.steal_share, limits.steal_share) {
        found.push(format!(
            "the hypervisor gave {} of the CPUs' time to others (limit {})",
            percent(machine.steal_share),
            percent(limits.steal_share)
        ));
    }
    let (disk, network) = (machine.foreign_disk_bytes_per_s, machine.foreign_network_bytes_per_s);
    let (io, memory) = (machine.foreign_io_pressure, machine.foreign_memory_pressure);
    for (what, value, limit) in [
        ("disk traffic", disk, limits.foreign_disk_bytes_per_s),
        ("network traffic", network, limits.foreign_network_bytes_per_s),
        ("I/O pressure", io, limits.foreign_io_pressure),
        ("memory pressure", memory, limits.foreign_memory_pressure),
    ] {
        let Some(value) = value.filter(|value| server_is_known && *value > limit) else {
            continue;
        };
        let words = |value| {
            if what.ends_with("traffic") {
                mb_per_s(value)
            } else {
                percent(value)
            }
        };
        found.push(format!("foreign {what} was {} (limit {})", words(value), words(limit)));
    }
    (!found.is_empty()).then(|| found.join(", "))
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
