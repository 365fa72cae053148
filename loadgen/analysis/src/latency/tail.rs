//! Dominant parts of a point's slowest requests, and their certainty.
//!
//! In: the repeats of a point with their bands. Out: a [`Tail`]. Knows nothing of wording.

use super::bands;
use crate::record::{Band, Interval, Repeat, Tail};
use crate::statistics::sections::mean_interval;

/// Ratio of the sum of parts to the latency above which the parts are inconsistent. Clocks of two machines and rounding
/// explain less.
const MAX_EXCESS: f64 = 1.1;

/// Returns the parts of the slowest band by falling share. The share is that of the merged band; its interval is
/// Student's over the repeats. The first part is clear if it leads the second in every repeat (within a repeat, so that
/// a slow repeat does not blur it), and either that lead has a 95 % interval above zero or the part is more than half
/// of the time.
pub fn tail(repeats: &[Repeat]) -> Option<Tail> {
    let merged = bands::merge(repeats.iter().map(|repeat| repeat.bands.as_slice()));
    let slowest = merged.last().filter(|band| band.mean_us > 0.0)?;
    let is_same = |band: &&Band| band.name == slowest.name && band.mean_us > 0.0;
    let all = repeats.iter().flat_map(|repeat| &repeat.bands);
    let same: Vec<&Band> = all.filter(is_same).collect();
    let parts = slowest.parts_us.iter().filter(|(_, us)| *us > 0.0);
    let mut parts: Vec<(String, Interval)> = parts
        .map(|(name, us)| (name.clone(), share(us / total_us(slowest), &shares(&same, name))))
        .collect();
    parts.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let first = parts.first()?;
    let second = parts.get(1).map(|(name, _)| shares(&same, name));
    let second = second.unwrap_or_else(|| vec![0.0; same.len()]);
    let pairs = shares(&same, &first.0).into_iter().zip(second);
    let leads: Vec<f64> = pairs.map(|(first, second)| first - second).collect();
    let certain = mean_interval(&leads).is_some_and(|lead| lead.lo > 0.0);
    let exceeds = Some(total_us(slowest) / slowest.mean_us).filter(|times| *times > MAX_EXCESS);
    let clear = exceeds.is_none() && leads.iter().all(|lead| *lead > 0.0) && (certain || first.1.value > 0.5);
    Some(Tail {
        band: slowest.name.clone(),
        parts,
        clear,
        exceeds,
    })
}

/// Returns the denominator of shares: the mean latency, or the sum of the parts if a server reports more than that. A
/// negative part (the network, if the server's stages take longer than the request) does not reduce the sum.
pub fn total_us(band: &Band) -> f64 {
    let parts: f64 = band.parts_us.iter().map(|(_, us)| us.max(0.0)).sum();
    parts.max(band.mean_us)
}

fn shares(bands: &[&Band], part: &str) -> Vec<f64> {
    bands.iter().map(|band| band.part_us(part) / total_us(band)).collect()
}

fn share(value: f64, repeats: &[f64]) -> Interval {
    let interval = mean_interval(repeats).unwrap_or(Interval::exact(value));
    let (lo, hi) = (
        interval.lo.clamp(0.0, value.max(0.0)),
        interval.hi.clamp(value, value.max(1.0)),
    );
    Interval::new(value, lo, hi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Reads;

    fn repeat(parts: &[(&str, f64)]) -> Repeat {
        let band = |name: &str, factor: f64| Band {
            name: name.to_owned(),
            count: 10,
            mean_us: factor * parts.iter().map(|(_, us)| us).sum::<f64>(),
            over_repeats_us: None,
            parts_us: parts
                .iter()
                .map(|(name, us)| ((*name).to_owned(), factor * us))
                .collect(),
            reads: Reads::default(),
        };
        Repeat {
            scheduled: 20,
            completed: 20,
            achieved_rps: 20.0,
            bands: vec![band("p0-50", 0.1), band("p99-100", 1.0)],
            ..Repeat::empty()
        }
    }

    #[test]
    fn ninety_two_percent_tier_wait_is_said_to_be_that() {
        let of = |tier: f64| repeat(&[("network", 100.0 - tier - 3.0), ("tier", tier), ("infer", 3.0)]);
        let tail = tail(&[of(91.0), of(92.0), of(93.0)]).unwrap();
        assert_eq!(tail.band, "p99-100");
        let (name, share) = &tail.parts[0];
        assert_eq!(name, "tier");
        assert!((share.value - 0.92).abs() < 1e-12);
        // Student: 0.92 ± 4.303 × 0.01 / √3.
        assert!((share.lo - (0.92 - 0.024_84)).abs() < 1e-4 && (share.hi - (0.92 + 0.024_84)).abs() < 1e-4);
        assert!(tail.clear);
        assert_eq!(
            tail.parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["tier", "network", "infer"]
        );
    }

    #[test]
    fn parts_that_take_turns_are_not_clear_and_a_steady_lead_is() {
        let of = |a: f64, b: f64| repeat(&[("tier", a), ("infer", b), ("network", 100.0 - a - b)]);
        assert!(!tail(&[of(60.0, 20.0), of(20.0, 50.0), of(45.0, 35.0)]).unwrap().clear);
        // Less than half, but a tenth ahead in every repeat.
        assert!(tail(&[of(45.0, 35.0), of(44.0, 35.0), of(46.0, 35.0)]).unwrap().clear);
        // More than half, and always ahead, by varying amounts.
        assert!(tail(&[of(90.0, 5.0), of(55.0, 40.0), of(60.0, 30.0)]).unwrap().clear);
        assert!(tail(&[of(60.0, 20.0)]).unwrap().clear && !tail(&[of(40.0, 35.0)]).unwrap().clear);
    }

    #[test]
    fn stages_that_take_longer_than_the_request_are_said_to_be_wrong_and_no_share_is_above_the_whole() {
        let lies = |_| {
            let mut repeat = repeat(&[("network", -21.49e3), ("tier", 10.0), ("infer", 22.48e3)]);
            repeat.bands.iter_mut().for_each(|band| band.mean_us = 1_000.0);
            repeat
        };
        let tail = tail(&[0, 1, 2].map(lies)).unwrap();
        assert!((tail.exceeds.unwrap() - 22.49).abs() < 1e-9 && !tail.clear, "{tail:?}");
        assert!(tail.parts.iter().all(|(_, share)| share.hi <= 1.0), "{tail:?}");
        // A slightly different clock does not count.
        let near = repeat(&[("network", -40.0), ("infer", 1_040.0)]);
        assert_eq!(super::tail(&[near]).unwrap().exceeds, None);
    }

    #[test]
    fn without_requests_there_is_no_tail() {
        assert_eq!(tail(&[]), None);
        assert_eq!(tail(&[repeat(&[])]), None);
    }
}
