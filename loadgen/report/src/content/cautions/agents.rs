//! What is said of the agents that sent a run's requests. In: points. Out: sentences. Knows nothing of markup.

use crate::units::latency;
use std::collections::BTreeSet;
use tierlab_analysis::record::{AgentStart, Limits, Point, Repeat, worst_start};

/// Who sent, how far from together they began at worst, and which were lost.
pub(super) fn sentences(points: &[Point], limits: &Limits) -> Vec<String> {
    let repeats = || points.iter().flat_map(|point| &point.repeats);
    let starts: Vec<AgentStart> = repeats().flat_map(|repeat| repeat.agents.clone()).collect();
    let mut sentences = Vec::new();
    if let Some(worst) = worst_start(&starts) {
        let names: BTreeSet<&str> = starts.iter().map(|start| start.agent.as_str()).collect();
        let late = if worst.late_us > 0.0 {
            format!(", of which it was {} late", latency(worst.late_us))
        } else {
            String::new()
        };
        sentences.push(format!(
            "Sent by {} agents, each its share of one schedule: at worst {} began within {} of the common start{late} (limit {}).",
            names.len(),
            worst.agent,
            latency(worst.skew_us()),
            latency(limits.start_skew_us as f64),
        ));
    }
    let lost: Vec<&Repeat> = repeats().filter(|repeat| !repeat.lost_before.is_empty()).collect();
    if let Some(example) = lost.iter().find_map(|repeat| repeat.lost_before.first()) {
        sentences.push(format!(
            "An agent was lost in the middle of {} of {} steps, as: {example}. What they had sent is not counted; they were made anew with \
             other arrivals.",
            lost.len(),
            repeats().count()
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::{Factors, Mode};

    fn point(repeats: Vec<Repeat>) -> Point {
        Point {
            factors: Factors {
                variant: String::new(),
                tier: "nvme".to_owned(),
                cache: "off".to_owned(),
                cache_share: 0.0,
                model: "m".to_owned(),
                mode: Mode::Realtime,
                batch_size: 1,
                offered_rps: 1.0,
                arrivals: "poisson".to_owned(),
                keys: "uniform".to_owned(),
                mix: None,
                driven: None,
            },
            repeats,
            summary: None,
        }
    }

    fn start(agent: &str, uncertainty_us: f64, late_us: f64) -> AgentStart {
        AgentStart {
            agent: agent.to_owned(),
            offset_us: 9e9,
            uncertainty_us,
            late_us,
            requests: 5,
        }
    }

    #[test]
    fn the_worst_start_and_lost_agents_are_said() {
        let limits = Limits::default();
        assert_eq!(sentences(&[point(vec![Repeat::empty()])], &limits), [""; 0]);
        let sent = Repeat {
            agents: vec![start("agent a:1", 200.0, 0.0), start("agent b:1", 300.0, 1_200.0)],
            ..Repeat::empty()
        };
        let anew = Repeat {
            agents: vec![start("agent a:1", 400.0, 0.0), start("agent b:1", 100.0, 0.0)],
            lost_before: vec!["agent b:1 is lost: the connection ended".to_owned()],
            ..Repeat::empty()
        };
        let said = sentences(&[point(vec![sent, anew])], &limits).join("\n");
        for part in [
            "2 agents",
            "agent b:1 began within 1.50 ms",
            "it was 1.20 ms late",
            "limit 2.00 ms",
            "1 of 2 steps, as: agent b:1 is lost",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}
