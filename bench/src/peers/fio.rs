//! Job of fio for a point, and its JSON. Sources: fio's HOWTO (fio.readthedocs.io).

use super::PeerFigures;
use crate::plan::{Access, CacheState, Operation, Pattern, Point, Way};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Returns its arguments; `None` if it has no such job.
pub(super) fn arguments(point: &Point, access: &Access, file: &Path) -> Option<Vec<String>> {
    // fio writes other bytes, which our checks would take for damage. Its open loop counts from the issue instead of the
    // due time. Its jobs of blocking calls each read the file from the beginning.
    let in_order = matches!(point.pattern, Pattern::Sequential | Pattern::Strided);
    let is_same = point.operation == Operation::Read && point.rate == 0 && point.files == 1;
    if !is_same || (point.way.is_peer() && in_order && point.depth > 1) {
        return None;
    }
    let (engine, direct) = match point.way {
        Way::Direct => ("io_uring", 1),
        Way::Buffered => ("io_uring", 0),
        Way::Pread => ("psync", 0),
        Way::PreadDirect => ("psync", 1),
        Way::Mmap => ("mmap", 0),
        Way::Tier => return None,
    };
    let mut words = vec![
        "--name=tierlab".to_owned(),
        format!("--filename={}", file.display()),
        format!("--bs={}", point.block_bytes),
        format!("--ioengine={engine}"),
        format!("--direct={direct}"),
        format!("--randseed={}", access.seed),
        format!("--runtime={}ms", access.window.as_millis()),
        format!("--ramp_time={}ms", access.warmup.as_millis()),
        // Our callers give the kernel no hints either.
        "--fadvise_hint=0".to_owned(),
        format!("--invalidate={}", u8::from(point.cache != CacheState::Warm)),
    ];
    words.push(match point.pattern {
        Pattern::Sequential => "--rw=read".to_owned(),
        Pattern::Strided => format!("--rw=read:{}", point.block_bytes * u64::from(access.stride - 1)),
        Pattern::Random | Pattern::Zipf => "--rw=randread".to_owned(),
    });
    if point.pattern == Pattern::Zipf {
        // fio does not accept an exponent of exactly 1.
        let exponent = if (access.exponent - 1.0).abs() < 1e-3 {
            1.001
        } else {
            access.exponent
        };
        words.push(format!("--random_distribution=zipf:{exponent}"));
    }
    if point.way.is_peer() {
        words.push(format!("--numjobs={}", point.depth));
        words.extend(["--thread", "--group_reporting"].map(str::to_owned));
    } else {
        words.push(format!("--iodepth={}", point.depth));
    }
    let rest = [
        "--readonly",
        "--norandommap",
        "--time_based",
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--percentile_list=50:95:99",
        "--output-format=json",
    ];
    words.extend(rest.map(str::to_owned));
    Some(words)
}

/// Returns its figures. Warnings may precede the JSON.
pub(super) fn figures(output: &str) -> Result<PeerFigures> {
    let json = output.find('{').map_or("", |at| &output[at..]);
    let report: Value = serde_json::from_str(json).context("no JSON")?;
    let read = &report["jobs"][0]["read"];
    let number = |key: &str| read[key].as_f64().with_context(|| format!("no `{key}`"));
    let percentile = |name: &str| read["lat_ns"]["percentile"][name].as_f64().map(|ns| ns / 1e3);
    Ok(PeerFigures {
        iops: number("iops")?,
        mb_per_s: number("bw_bytes")? / 1e6,
        p50_us: percentile("50.000000"),
        p95_us: percentile("95.000000"),
        p99_us: percentile("99.000000"),
        command: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_json_is_read_and_anything_else_is_an_error() {
        let text = "note: x\n{\"jobs\": [{\"read\": {\"iops\": 1000.5, \"bw_bytes\": 4098048, \"lat_ns\": {\"percentile\": {\"50.000000\": 57000, \"99.000000\": 99000}}}}]}";
        let figures = figures(text).unwrap();
        assert_eq!((figures.iops, figures.mb_per_s), (1000.5, 4.098_048));
        assert_eq!(
            (figures.p50_us, figures.p95_us, figures.p99_us),
            (Some(57.0), None, Some(99.0))
        );
        for bad in ["", "{", "{}", "fio: io_uring is not there"] {
            assert!(super::figures(bad).is_err(), "{bad}");
        }
    }
}
