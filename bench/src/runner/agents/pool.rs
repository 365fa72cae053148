//! Repeats of several agents, combined into one. In: their figures. Out: sums over the common window, and latencies of all calls. Pure.

use crate::machine::{MachineUse, Traffic};
use crate::runner::record::{AgentShare, MeasuredRepeat, SecondFigures, encode};
use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use std::collections::BTreeSet;
use tierlab_analysis::record::{AgentStart, Limits};

/// Combines the figures of agents.
///
/// # Errors
/// An agent's latencies cannot be read.
pub(super) fn pooled(shares: &[(AgentStart, MeasuredRepeat)], limits: &Limits) -> Result<MeasuredRepeat> {
    let all = || shares.iter().map(|(_, measured)| measured);
    let mut latencies = Histogram::<u64>::new(3)?;
    latencies.auto(true);
    for (start, measured) in shares {
        let own = measured.latencies().with_context(|| start.agent.clone())?;
        latencies.add(own).with_context(|| start.agent.clone())?;
    }
    let mut pooled = MeasuredRepeat {
        latency_hdr: encode(&latencies)?,
        late_p99_us: all().filter_map(|one| one.late_p99_us).reduce(f64::max),
        // Agents start together: if data or calls run out, the last agent ends the repeat.
        window_s: all().map(|one| one.window_s).fold(0.0, f64::max),
        seconds: seconds(shares),
        sums: Default::default(),
        via: all()
            .map(|one| one.via.as_str())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(", "),
        machine: MachineUse {
            own_cpu_s: all().map(|one| one.machine.own_cpu_s).sum(),
            foreign_cpu_share: all().filter_map(|one| one.machine.foreign_cpu_share).reduce(f64::max),
            steal_share: all().filter_map(|one| one.machine.steal_share).reduce(f64::max),
            fetched_bytes: all().map(|one| one.machine.fetched_bytes).sum(),
            disk: all().filter_map(|one| one.machine.disk).reduce(Traffic::plus),
            nfs: all().filter_map(|one| one.machine.nfs).reduce(Traffic::plus),
        },
        disturbed: None,
        agents: Vec::new(),
    };
    let mut disturbed = Vec::new();
    for (start, measured) in shares {
        pooled.sums.add(&measured.sums);
        if let Some(why) = &measured.disturbed {
            disturbed.push(format!("{}: {why}", start.agent));
        }
        if start.skew_us() > limits.start_skew_us as f64 {
            let (skew, most) = (start.skew_us() / 1e3, limits.start_skew_us as f64 / 1e3);
            disturbed.push(format!(
                "{}: start skew of up to {skew:.1} ms, more than {most} ms",
                start.agent
            ));
        }
        pooled.agents.push(AgentShare {
            start: start.clone(),
            mb_per_s: measured.sums.ended_bytes as f64 / 1e6 / measured.window_s,
        });
    }
    pooled.disturbed = (!disturbed.is_empty()).then(|| disturbed.join(", "));
    Ok(pooled)
}

/// Sums of each second, without a p99: it does not follow from the agents' p99s.
fn seconds(shares: &[(AgentStart, MeasuredRepeat)]) -> Vec<SecondFigures> {
    let longest = shares.iter().map(|(_, one)| one.seconds.len()).max().unwrap_or(0);
    let second = |number: usize| {
        let own = || shares.iter().filter_map(|(_, one)| one.seconds.get(number));
        SecondFigures {
            calls: own().map(|second| second.calls).sum(),
            mb_per_s: own().map(|second| second.mb_per_s).sum(),
            p99_us: None,
        }
    };
    (0..longest).map(second).collect()
}
