//! `caching.csv`: a row for each strategy that was measured, and for each policy and size that was computed.

use super::super::kept::Kept;
use anyhow::Result;
use tierlab_analysis::record::Interval;

/// All of it.
pub(in crate::tables::caching) fn csv(kept: &Kept) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "kind",
        "tier",
        "law",
        "strategy",
        "memory_share",
        "hit_ratio",
        "hit_ratio_lo",
        "hit_ratio_hi",
        "best_hit_ratio",
        "p50_us",
        "p50_us_lo",
        "p50_us_hi",
        "p99_us",
        "p99_us_lo",
        "p99_us_hi",
        "origin_requests_per_lookup",
        "origin_bytes_per_lookup",
        "origin_bytes_per_byte",
        "warm_after_lookups",
        "warm_after_s",
        "seconds",
        "saved_usd_per_gb_month",
    ])?;
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let ends = |of: Option<Interval>| {
        [
            some(of.map(|of| of.value)),
            some(of.map(|of| of.lo)),
            some(of.map(|of| of.hi)),
        ]
    };
    for one in &kept.measured {
        let mut row = vec![
            "measured".to_owned(),
            one.tier.clone(),
            one.law.to_string(),
            one.name.clone(),
            some(one.strategy.ram().map(|ram| ram.share)),
        ];
        row.extend(ends(Some(one.hit_ratio)));
        row.push(some(one.best_hit_ratio.map(|best| best.value)));
        row.extend(ends(one.p50_us));
        row.extend(ends(one.p99_us));
        row.extend([
            one.origin_requests_per_lookup.value.to_string(),
            one.origin_bytes_per_lookup.value.to_string(),
            one.origin_bytes_per_byte.value.to_string(),
            some(one.warm_after_lookups),
            some(one.warm_after_s),
            one.seconds.value.to_string(),
            some(one.saved_usd_per_gb_month),
        ]);
        out.write_record(&row)?;
    }
    for one in &kept.computed {
        for (policy, ratio) in [("lru", one.lru), ("tiny-lfu", one.tiny_lfu), ("min", one.min)] {
            let mut row = vec![
                "computed".to_owned(),
                String::new(),
                one.law.to_string(),
                format!("{policy}, {}", one.unit),
                one.ram.share.to_string(),
            ];
            row.extend(ends(Some(ratio)));
            row.push(one.min.value.to_string());
            row.resize(22, String::new());
            out.write_record(&row)?;
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}
