use super::*;
use proptest::prelude::*;

const TEXT: &str = r#"schema = 1
shares = [0.0, 0.5, 1.0]
[origin]
date = "2026-11-23T10:00:00Z"
place = "office, 10 GbE"
tier = "nfs"
notes = ["user space, NFSv3"]
[origin.environment]
kernel = "6.1"
cpu = "x"
cpus = 2
memory_bytes = 1
client = "tierlab-storage-bench 0.1.0"
[limits]
total_bytes_per_s = 1000
total_is_limit = false
requests_per_s = 10
requests_is_limit = true
[[errors]]
kind = "unavailable"
rate = 0.01
[[rounds]]
at_s = 0.0
p50_ratio = 1.0
p99_ratio = 1.1
[[points]]
bytes = 4096
depth = 1
calls = 100
calls_per_s = 50.0
latency_us = [1.0, 2.0, 3.0]
[[points]]
bytes = 4096
depth = 8
calls = 100
calls_per_s = 50.0
latency_us = [2.0, 4.0, 6.0]
"#;

fn refused(text: &str) -> String {
    let error = Recorded::parse("there.toml", text).unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, "there.toml"));
    error.detail().to_owned()
}

#[test]
fn a_profile_reads_back_and_says_where_it_comes_from() {
    let profile = Recorded::parse("x", TEXT).unwrap();
    assert_eq!(profile.label(), "recorded nfs of \"office, 10 GbE\", 2026-11-23");
    assert_eq!(Recorded::parse("x", &profile.to_text().unwrap()).unwrap(), profile);
    assert_eq!(profile.law().latency_us(0.5, 4096, 8), 4.0);
    let mut unreal = profile;
    unreal.origin.notes.push("emulated: s3-standard".to_owned());
    assert!(
        unreal.label().ends_with(", itself emulated: s3-standard"),
        "{}",
        unreal.label()
    );
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (from, to, named) in [
        ("schema = 1", "schema = 2", "schema"),
        ("schema = 1\n", "", "schema"),
        ("[0.0, 0.5, 1.0]", "[0.0, 0.5]", "shares"),
        ("[0.0, 0.5, 1.0]", "[0.0, 0.5, 0.5, 1.0]", "shares"),
        ("[0.0, 0.5, 1.0]", "[0.0, nan, 1.0]", "shares"),
        ("depth = 8", "depth = 1", "points[1]"),
        ("depth = 8", "depth = 0", "points[1].depth"),
        ("depth = 8", "depth = 70000", "points[1].depth"),
        ("depth = 8", "depth = -1", "line 34"),
        ("bytes = 4096\ndepth = 8", "bytes = 512\ndepth = 8", "missing entry"),
        ("bytes = 4096\ndepth = 8", "bytes = 0\ndepth = 8", "points[1].bytes"),
        ("[2.0, 4.0, 6.0]", "[2.0, 4.0]", "points[1].latency_us"),
        ("[2.0, 4.0, 6.0]", "[2.0, 4.0, 3.0]", "points[1].latency_us[2]"),
        ("[2.0, 4.0, 6.0]", "[2.0, 4.0, inf]", "points[1].latency_us[2]"),
        ("[2.0, 4.0, 6.0]", "[nan, 4.0, 6.0]", "points[1].latency_us[0]"),
        ("[2.0, 4.0, 6.0]", "[-1.0, 4.0, 6.0]", "points[1].latency_us[0]"),
        ("[2.0, 4.0, 6.0]", "[2.0, 4.0, 6e9]", "points[1].latency_us[2]"),
        ("calls = 100\n", "calls = 0\n", "points[0].calls"),
        ("calls_per_s = 50.0", "calls_per_s = nan", "points[0].calls_per_s"),
        ("rate = 0.01", "rate = 2.0", "errors.rate"),
        (
            "rate = 0.01",
            "rate = 0.01\nafter_ms = 18446744073709551",
            "errors.after_ms",
        ),
        ("p99_ratio = 1.1", "p99_ratio = -1.0", "rounds[0]"),
        ("office, 10 GbE", "office\\u001b[31m", "origin.place"),
        ("office, 10 GbE", " ", "origin.place"),
        ("kernel = \"6.1\"", "kernel = \"6.1\"\nsecret = 1", "secret"),
        ("[[points]]", "[[point]]", "point"),
    ] {
        let text = TEXT.replacen(from, to, 1);
        assert_ne!(text, TEXT, "{from}");
        let why = refused(&text);
        assert!(why.contains(named), "{from} -> {to}: {why}");
    }
    assert!(refused(&TEXT.replace("office, 10 GbE", &"x".repeat(401))).contains("origin.place"));
    assert!(refused("").contains("schema"));
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, TEXT).unwrap();
    assert!(Recorded::read(&file).is_ok());
    std::fs::write(&file, b"schema = 1 # \xff").unwrap();
    assert!(Recorded::read(&file).unwrap_err().detail().contains("byte 13"));
    std::fs::File::create(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(Recorded::read(&file).unwrap_err().detail().contains("longer"));
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, named) in [
        (folder.path(), "not a regular file"),
        (&pipe, "not a regular file"),
        (&folder.path().join("none"), "cannot read"),
    ] {
        let error = Recorded::read(path).unwrap_err();
        assert_eq!(error.object(), path.display().to_string());
        assert!(error.detail().contains(named), "{error}");
    }
}

proptest! {
    /// Cut anywhere, or with any byte changed, a file gives an error or a profile, never a panic. An accepted profile
    /// can be drawn from.
    #[test]
    fn damage_is_refused_or_harmless(at in 0..TEXT.len(), byte: u8, cut: bool, share in 0.0f64..=1.0) {
        let mut bytes = TEXT.as_bytes().to_vec();
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        if let Ok(profile) = Recorded::parse("x", &text) {
            let us = profile.law().latency_us(share, u64::MAX, u32::MAX);
            prop_assert!((0.0..=MAX_LATENCY_US).contains(&us));
        }
    }
}

/// A tier whose median is `first_us + bytes / rate`, ten times that in the tail, and twice that with 8 in flight.
fn law() -> Law {
    let one = |bytes: f64, factor: f64| {
        let median = (100.0 + bytes / 1000.0) * factor;
        vec![median / 2.0, median, 10.0 * median]
    };
    let sizes = vec![4000.0, 64_000.0, 1_000_000.0];
    Law {
        shares: vec![0.0, 0.5, 1.0],
        us: sizes
            .iter()
            .map(|bytes| [1.0, 2.0, 8.0].map(|factor| one(*bytes, factor)).to_vec())
            .collect(),
        sizes,
        depths: vec![1.0, 8.0, 32.0],
    }
}

#[test]
fn what_was_measured_is_what_comes() {
    let law = law();
    for (size, bytes) in law.sizes.clone().into_iter().enumerate() {
        for (depth, in_flight) in law.depths.clone().into_iter().enumerate() {
            for (at, share) in law.shares.clone().into_iter().enumerate() {
                let got = law.latency_us(share, bytes as u64, in_flight as u32);
                let want = law.us[size][depth][at];
                assert!(
                    (got - want).abs() < 1e-9 * want,
                    "{bytes} {in_flight} {share}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn between_and_above_lines_go_on() {
    let law = law();
    let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-6 * want, "{got}, not {want}");
    // Half way from 4,000 to 64,000 bytes, and above the largest.
    close(law.latency_us(0.5, 34_000, 1), 134.0);
    close(law.latency_us(0.5, 2_000_000, 1), 2100.0);
    // Between the quantiles.
    close(law.latency_us(0.25, 4000, 1), 78.0);
    // Half way from 8 to 32 in flight: between twice and eight times.
    close(law.latency_us(0.5, 4000, 20), 104.0 * 5.0);
    // Beyond the last depth, at the tier's limit, the latency follows the last line.
    close(law.latency_us(0.5, 4000, 56), 104.0 * 14.0);
    // Below the smallest the first holds.
    close(law.latency_us(0.5, 0, 1), 104.0);
    close(law.latency_us(0.5, 0, 0), 104.0);
}

#[test]
fn a_line_that_falls_is_not_drawn_on() {
    let law = Law {
        shares: vec![0.0, 1.0],
        sizes: vec![10.0, 20.0],
        depths: vec![1.0],
        us: vec![vec![vec![50.0, 50.0]], vec![vec![30.0, 30.0]]],
    };
    assert_eq!(law.latency_us(0.5, 15, 9), 40.0);
    assert_eq!(law.latency_us(0.5, 4000, 9), 30.0);
}

proptest! {
    #[test]
    fn every_draw_is_a_time_and_more_share_is_no_shorter(
        a in 0.0f64..=1.0, b in 0.0f64..=1.0, bytes: u64, in_flight: u32
    ) {
        let law = law();
        let (low, high) = (law.latency_us(a.min(b), bytes, in_flight), law.latency_us(a.max(b), bytes, in_flight));
        prop_assert!((0.0..=MAX_LATENCY_US).contains(&low) && low <= high + 1e-9 * high, "{low} {high}");
    }
}
