//! Shares of a mix's parts in the cost of the server and tier that they share.
//!
//! In: the parts' repeats of one step. Out: each part's [`MixShare`]. Knows nothing of prices.
//!
//! Hourly cost is divided by inference time (the `infer` stage of the replies' `Server-Timing`): a batch that keeps a
//! session busy for ten times as long as a single row pays ten times as much, however many rows it carries. The tier's
//! requests and bytes are divided by the tier requests that the replies report. If replies report neither, the number
//! of inferences divides instead.

use crate::latency::bands::{band_total, reads_total};
use crate::record::{HourBy, MixShare, Repeat, SentRequests};
use tierlab_protocol::timing::Stage;

/// Returns the shares of the parts of one step, in their order; each part comes with its batch size, the rows of its
/// requests if their bodies have no number of rows of their own.
pub fn mix_shares(parts: &[(u32, &Repeat)]) -> Vec<MixShare> {
    let rows = |&(batch_size, repeat): &(u32, &Repeat)| {
        let own = |sent: &SentRequests| sent.mean_rows.unwrap_or(sent.inferences_per_request);
        repeat.sent.as_ref().map_or_else(|| f64::from(batch_size), own) * repeat.completed as f64
    };
    let rows: Vec<f64> = parts.iter().map(rows).collect();
    let of_all = |total: fn(&Repeat) -> f64| -> Vec<f64> { parts.iter().map(|(_, repeat)| total(repeat)).collect() };
    let busy = of_all(|repeat| band_total(&repeat.bands, Stage::Infer.as_str()));
    let read = of_all(|repeat| reads_total(&repeat.bands, |reads| reads.tier_requests));
    // A part with replies but without reported times would pay nothing.
    let all_report = busy.iter().zip(&rows).all(|(busy, rows)| *busy > 0.0 || *rows == 0.0);
    let (hour, hour_by) = match all_report {
        true => (shares(&busy, &rows), HourBy::InferenceTime),
        false => (shares(&rows, &rows), HourBy::Inferences),
    };
    let (tier, inferences) = (shares(&read, &rows), shares(&rows, &rows));
    let of_part = |part: usize| MixShare {
        inferences: inferences[part],
        hour: hour[part],
        tier: tier[part],
        hour_by,
    };
    (0..parts.len()).map(of_part).collect()
}

/// Returns the mean shares of one part over its repeats; `None` if there were no other parts.
pub fn mean(repeats: &[Repeat]) -> Option<MixShare> {
    let shares: Vec<MixShare> = repeats.iter().filter_map(|repeat| repeat.driver.mix_share()).collect();
    let hour_by = shares.iter().map(|share| share.hour_by).max()?;
    let mean = |of: fn(&MixShare) -> f64| shares.iter().map(of).sum::<f64>() / shares.len() as f64;
    Some(MixShare {
        inferences: mean(|share| share.inferences),
        hour: mean(|share| share.hour),
        tier: mean(|share| share.tier),
        hour_by,
    })
}

/// Returns each amount's share of their sum; if the sum is 0, the shares of `fallback`; if that is 0 too, zeros.
fn shares(amounts: &[f64], fallback: &[f64]) -> Vec<f64> {
    let of = [amounts, fallback].into_iter().find(|of| of.iter().sum::<f64>() > 0.0);
    let Some(of) = of else { return vec![0.0; amounts.len()] };
    let all: f64 = of.iter().sum();
    of.iter().map(|amount| amount / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Band, Reads};
    use proptest::prelude::*;

    /// Creates a repeat of `requests` requests, each with microseconds of inference and requests to the tier.
    fn part(requests: u64, infer_us: f64, tier_requests: f64) -> Repeat {
        let reads = Reads {
            tier_requests,
            ..Reads::default()
        };
        Repeat {
            completed: requests,
            scheduled: requests,
            bands: vec![Band {
                name: "p0-50".into(),
                count: requests,
                mean_us: 10.0 + infer_us,
                over_repeats_us: None,
                parts_us: vec![("network".into(), 10.0), ("infer".into(), infer_us)],
                reads,
            }],
            ..Repeat::empty()
        }
    }

    #[test]
    fn the_hour_goes_by_time_and_the_tier_by_its_requests() {
        // 80 single rows of 10 us, and 10 batches of 16 rows of 40 us.
        let (single, batch) = (part(80, 10.0, 1.0), part(10, 40.0, 16.0));
        let shares = mix_shares(&[(1, &single), (16, &batch)]);
        assert_eq!(shares[0].hour_by, HourBy::InferenceTime);
        assert!((shares[0].hour - 2.0 / 3.0).abs() < 1e-12 && (shares[1].hour - 1.0 / 3.0).abs() < 1e-12);
        assert!((shares[0].inferences - 1.0 / 3.0).abs() < 1e-12);
        assert!((shares[1].tier - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn recorded_bodies_count_by_their_own_rows() {
        // Bodies of 6 rows on average, which the plan counts as one inference each.
        let sent = SentRequests {
            inferences_per_request: 1.0,
            mean_rows: Some(6.0),
            ..SentRequests::default()
        };
        let recorded = Repeat {
            sent: Some(sent),
            ..part(10, 0.0, 0.0)
        };
        let shares = mix_shares(&[(1, &recorded), (2, &part(10, 0.0, 0.0))]);
        assert_eq!((shares[0].inferences, shares[1].hour), (0.75, 0.25));
    }

    #[test]
    fn replies_without_timing_are_divided_by_inferences() {
        let (timed, silent) = (part(10, 10.0, 0.0), part(10, 0.0, 0.0));
        let shares = mix_shares(&[(1, &timed), (3, &silent)]);
        assert_eq!((shares[0].hour_by, shares[0].hour), (HourBy::Inferences, 0.25));
        assert_eq!((shares[0].tier, shares[1].tier), (0.25, 0.75));
        // A part without replies has no share, and does not hide the others' times.
        let shares = mix_shares(&[(1, &timed), (3, &part(0, 0.0, 0.0))]);
        assert_eq!((shares[0].hour_by, shares[1].hour), (HourBy::InferenceTime, 0.0));
        assert!(
            mix_shares(&[(1, &part(0, 0.0, 0.0))])
                .iter()
                .all(|share| share.hour == 0.0)
        );
    }

    proptest! {
        #[test]
        fn shares_sum_to_one(parts in prop::collection::vec((1_u32..64, 1_u64..500, 0.0_f64..900.0, 0.0_f64..9.0), 2..6)) {
            let repeats: Vec<(u32, Repeat)> =
                parts.iter().map(|&(rows, requests, us, reads)| (rows, part(requests, us, reads))).collect();
            let parts: Vec<(u32, &Repeat)> = repeats.iter().map(|(rows, repeat)| (*rows, repeat)).collect();
            let shares = mix_shares(&parts);
            let of: [fn(&MixShare) -> f64; 3] = [|share| share.hour, |share| share.tier, |share| share.inferences];
            for of in of {
                prop_assert!((shares.iter().map(of).sum::<f64>() - 1.0).abs() < 1e-9);
            }
        }
    }
}
