//! `offline.csv`: a row for each workload in each layout on each tier.

use super::kept::Kept;
use super::statements::Statement;
use anyhow::Result;

/// Every figure of a statement by its name.
fn cells(one: &Statement) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, interval) in [
        ("loader_per_s", one.loader_per_s),
        ("inference_per_s", one.inference_per_s),
        ("both_per_s", one.both_per_s),
        ("naive_per_s", one.naive_per_s),
        ("of_slower", one.of_slower),
        ("of_naive", one.of_naive),
    ] {
        out.push((name.to_owned(), interval.value.to_string()));
        out.push((format!("{name}_lo"), interval.lo.to_string()));
        out.push((format!("{name}_hi"), interval.hi.to_string()));
    }
    for (name, value) in [
        ("idle_share", Some(one.idle_share)),
        ("idle_reading_share", Some(one.idle_reading_share)),
        ("idle_decoding_share", Some(one.idle_decoding_share)),
        ("idle_batching_share", Some(one.idle_batching_share)),
        ("naive_idle_share", Some(one.naive_idle_share)),
        ("requests_per_row", Some(one.requests_per_row)),
        ("bytes_per_row", Some(one.bytes_per_row)),
        ("loader_cpu_us", Some(one.loader_cpu_us)),
        ("inference_cpu_us", Some(one.inference_cpu_us)),
        ("both_cpu_us", Some(one.both_cpu_us)),
        ("taken_share", Some(one.taken_share)),
        ("peak_bytes", Some(one.peak_bytes as f64)),
        ("usd_per_million", one.usd_per_million),
        ("naive_usd_per_million", one.naive_usd_per_million),
    ] {
        out.push((
            name.to_owned(),
            value.map_or_else(String::new, |value| value.to_string()),
        ));
    }
    out
}

/// All of it.
pub(super) fn csv(kept: &Kept) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for (at, one) in kept.statements.iter().enumerate() {
        let cells = cells(one);
        let of_place = |names: [&str; 3]| names.map(str::to_owned).into_iter();
        if at == 0 {
            out.write_record(
                of_place(["tier", "layout", "workload"]).chain(cells.iter().map(|(name, _)| name.clone())),
            )?;
        }
        let place = of_place([&one.tier, one.layout.as_str(), &one.workload]);
        out.write_record(place.chain(cells.into_iter().map(|(_, value)| value)))?;
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}
