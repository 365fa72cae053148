//! `layouts.csv`: a row for each layout and kind of access.

use super::kept::Kept;
use anyhow::Result;

/// All of it.
pub(super) fn csv(kept: &Kept) -> Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record([
        "tier",
        "layout",
        "access",
        "stored_bytes",
        "objects",
        "open_ms",
        "samples_per_s",
        "samples_per_s_lo",
        "samples_per_s_hi",
        "p50_us",
        "p95_us",
        "requests_per_sample",
        "bytes_per_sample",
        "decode_us_per_sample",
        "cpu_us_per_sample",
        "of_files",
        "of_files_lo",
        "of_files_hi",
    ])?;
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for one in &kept.statements {
        for (name, access) in one.accesses() {
            out.write_record([
                one.tier.clone(),
                one.layout.to_string(),
                name.to_owned(),
                one.stored_bytes.to_string(),
                one.objects.to_string(),
                one.open_ms.to_string(),
                access.samples_per_s.value.to_string(),
                access.samples_per_s.lo.to_string(),
                access.samples_per_s.hi.to_string(),
                some(access.p50_us),
                some(access.p95_us),
                access.requests_per_sample.to_string(),
                access.bytes_per_sample.to_string(),
                access.decode_us_per_sample.to_string(),
                access.cpu_us_per_sample.to_string(),
                some(access.of_files.map(|of| of.value)),
                some(access.of_files.map(|of| of.lo)),
                some(access.of_files.map(|of| of.hi)),
            ])?;
        }
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}
