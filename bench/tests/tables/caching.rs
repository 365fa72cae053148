//! `caching`, over an embedded S3 too.

use super::{assert_nothing_is_left, assert_refused, configs, folder, output_file, run, run_json};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An origin that ends with the test; none where the workspace's programs were not built.
struct Origin {
    process: Child,
    s3: String,
}

impl Origin {
    fn start(root: &Path) -> Option<Self> {
        let binary = Path::new(env!("CARGO_BIN_EXE_tierlab-storage-bench")).with_file_name("tierlab-origin");
        if !binary.is_file() {
            return None;
        }
        let mut process = Command::new(binary)
            .args(["--bucket", "tierlab", "--s3-listen", "127.0.0.1:0", "--s3-root"])
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let s3 = ready["s3"].as_str().unwrap().to_owned();
        Some(Self { process, s3 })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn plan(top: &str, tiers: &str) -> String {
    format!(
        "name = \"short\"\nrepeats = 2\nrows = 1024\nlookups = 400\ntrace_lookups = 2500\ndepth = 4\nshares = [0.1, 3.0]\n{top}\n\
         [[laws]]\nlaw = \"zipf\"\nexponent = 1.0\n[[laws]]\nlaw = \"shifting\"\nexponent = 1.0\nevery = 200\n[[laws]]\nlaw = \"scan\"\n\
         [price]\nfile = \"{0}/prices.toml\"\nlookups_per_s = 100\ntable = \"1GiB\"\n\
         [tiers.disk]\nfile = \"{0}/tiers/nvme.toml\"\n{tiers}",
        configs().display()
    )
}

fn origin_tier(origin: &Origin) -> String {
    format!(
        "[tiers.bucket]\nfile = \"{}/tiers/s3.toml\"\nset = [\"endpoint={}\"]\nprice = \"s3-standard\"\n",
        configs().display(),
        origin.s3
    )
}

#[test]
fn every_strategy_is_measured_on_every_tier_and_nothing_of_it_stays() {
    let (place, bucket) = (folder(), folder());
    let origin = Origin::start(bucket.path());
    let tiers = origin.as_ref().map_or_else(String::new, origin_tier);
    let output = run("caching", place.path(), &plan("", &tiers));
    let run = run_json(place.path(), &output);
    let all = run["measured"].as_array().unwrap();
    let tiers = 1 + usize::from(origin.is_some());
    assert_eq!(all.len(), tiers * 3 * 7, "seven strategies under three laws");
    for one in all {
        let (tier, name) = (one["tier"].as_str().unwrap(), one["name"].as_str().unwrap());
        let value = |key: &str| one[key]["value"].as_f64().unwrap();
        assert_eq!(
            (one["lookups"].as_u64(), one["left_out"].as_u64()),
            (Some(800), Some(0)),
            "{one}"
        );
        let (hits, over_read) = (value("hit_ratio"), value("origin_bytes_per_byte"));
        assert!((0.0..=1.0).contains(&hits), "{one}");
        match name {
            "no cache" => {
                assert_eq!((hits, value("origin_requests_per_lookup")), (0.0, 1.0), "{one}");
                assert!(over_read >= 1.0, "{one}");
            }
            // A copy on disk fetches each of its eight blocks once, or again where a look-up comes just as one has been written.
            _ if name.starts_with("staged") => {
                assert!(value("origin_requests_per_lookup") <= 16.0 / 400.0, "{one}");
            }
            // A row by itself from a bucket: no byte too many for a miss.
            _ if tier == "bucket" && name.starts_with("RAM") && name.ends_with("rows") => {
                assert!((over_read - (1.0 - hits)).abs() < 0.05, "{one}");
            }
            _ => {}
        }
        if let Some(best) = one["best_hit_ratio"]["value"].as_f64() {
            // An entry is seen before the cache decides to keep it, which is worth a hit or two.
            assert!(hits <= best + 0.05, "{one}");
        }
        let saved = |end: &str| one["saved_usd_per_gb_month"][end].as_f64();
        assert_eq!(
            saved("value").is_some(),
            tier == "bucket" && name.starts_with("RAM") && !name.contains("over"),
            "{one}"
        );
        assert!(
            saved("lo") <= saved("value") && saved("value") <= saved("hi"),
            "an interval over the two repeats: {one}"
        );
    }
    let computed = run["computed"].as_array().unwrap();
    assert_eq!(computed.len(), 3 * 2 * 2, "three laws, two units, two sizes");
    for one in computed {
        let value = |key: &str| one[key]["value"].as_f64().unwrap();
        assert!(
            value("lru") <= value("min") && value("tiny_lfu") <= value("min") + 0.02,
            "{one}"
        );
        if one["ram"]["share"] == 3.0 {
            let full = 1.0 - one["distinct"].as_f64().unwrap() / 2500.0;
            assert!(
                (value("lru") - full).abs() < 1e-9 && (value("min") - full).abs() < 1e-9,
                "{one}"
            );
        }
    }
    for name in ["report.html", "report.md", "caching.csv"] {
        let text = output_file(place.path(), name);
        assert!(text.contains("RAM 10 % tiny-lfu, rows"), "{name}");
        let embedded = text.contains("embedded origin");
        assert_eq!(embedded, origin.is_some() && name != "caching.csv", "{name}");
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("furthest from the best possible"), "{out}");
    assert_nothing_is_left(place.path());
}

#[test]
fn what_is_wrong_with_a_plan_is_named() {
    let cases = vec![
        (plan("policies = [\"clock\"]", ""), "clock"),
        (plan("policies = [\"lru\", \"lru\"]", ""), "duplicate entry"),
        (plan("rows_bytes = 3", ""), "rows_bytes"),
        (plan("row_bytes = 700", ""), "row_bytes: must be a power of two"),
        (
            plan("units = [\"256B\"]", ""),
            "units: `row`, or bytes of a block: must be a power of two",
        ),
        (plan("units = [\"half\"]", ""), "units: must be `row`"),
        (plan("measured_shares = [0.0002]", ""), "too few for one entry"),
        (plan("strategies = [\"ram\"]", ""), "add it to `strategies`"),
        (plan("staged_block_bytes = 1000", ""), "staged_block_bytes"),
        (plan("seconds = nan", ""), "seconds: from 0.01"),
        (plan("", "price = \"s3-gold\"\n"), "no [storage.s3-gold]"),
        (plan("", "set = [\"staged.root='x'\"]\n"), "tiers.disk"),
        (
            "name = \"x\"\nlaws = []\n[tiers]\n".to_owned(),
            "tiers: plan needs at least one entry",
        ),
    ];
    assert_refused("caching", cases);
}
