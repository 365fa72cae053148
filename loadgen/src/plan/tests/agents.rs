//! Plans that agents and several processes measure.

use super::*;

/// Writes files beside a plan, and checks that those named are known and enough for an agent.
fn is_valid_elsewhere(files: &[(&str, &str)], text: &str, named: &[&str]) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(here.path().join("plans/data")).unwrap();
    for (file, content) in files {
        std::fs::write(here.path().join(file), content).unwrap();
    }
    let plan = Plan::parse(&here.path().join("plans/t.toml"), text).unwrap();
    let sent = plan.remote_text().unwrap();
    let own: Vec<PathBuf> = named.iter().map(|file| here.path().join(file)).collect();
    assert_eq!(sent.files, own);
    assert_eq!(plan.request_files().unwrap(), own);
    let at = |file: &Path| there.path().join(file.strip_prefix("/").unwrap());
    for file in &sent.files {
        std::fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        std::fs::copy(file, at(file)).unwrap();
    }
    Plan::parse_sent(there.path(), &at(&sent.file), &sent.text).unwrap();
}

#[test]
fn an_agent_gets_every_file_that_decides_what_is_sent() {
    const CALLS: &str = "{\"timestamp\":0,\"a\":1}\n{\"timestamp\":1,\"a\":2}\n{\"timestamp\":3,\"a\":3}\n";
    is_valid_elsewhere(
        &[
            ("calls.jsonl", CALLS),
            ("plans/body.json", "{\"a\": {a}}"),
            ("plans/other.json", "{}"),
        ],
        &format!(
            "arrivals = \"replay\"\n{HEAD}[arrival]\nfile = \"../calls.jsonl\"\n[target]\nkind = \"http\"\nbody_file = \"body.json\"\n"
        ),
        &["calls.jsonl", "plans/body.json"],
    );
    is_valid_elsewhere(
        &[
            ("plans/keys.csv", "entity_id\n7\n"),
            ("plans/lengths.txt", "1\n2\n"),
            ("plans/calls.csv", "timestamp\n0\n1\n"),
            ("plans/data/input.json", "{\"data\": [{\"y\": [1]}]}"),
        ],
        &format!(
            "arrivals = \"trace\"\n{HEAD}[arrival]\nfile = \"calls.csv\"\n[keys]\ndistribution = \"file\"\nfile = \"keys.csv\"\n\
             [inputs]\ndata = \"data\"\n[inputs.tensor.x]\nshape = [{{ file = \"lengths.txt\" }}]\n{LOAD}"
        ),
        &[
            "plans/calls.csv",
            "plans/data/input.json",
            "plans/keys.csv",
            "plans/lengths.txt",
        ],
    );
    is_valid_elsewhere(
        &[
            ("demand.csv", "timestamp\n0\n0.1\n"),
            ("plans/a.jsonl", "{}\n"),
            ("plans/b.txt", "{\"n\": {n}}"),
            ("plans/rows.csv", "n\n1\n"),
        ],
        &format!(
            "{HEAD}[lab]\nwork = \"w\"\n[question]\nslo = [\"p99 < 50 ms\"]\nbudget = \"10m\"\n\
             demand_rps = {{ trace = \"../demand.csv\" }}\n\
             [[variant]]\nname = \"a\"\nurl = \"http://h:1\"\ntarget = {{ kind = \"http\", path = \"/\", bodies = \"a.jsonl\" }}\n\
             [[variant]]\nname = \"b\"\nurl = \"http://h:1\"\n[variant.target]\nkind = \"http\"\npath = \"/\"\nbody_file = \"b.txt\"\n\
             rows_file = \"rows.csv\"\n"
        ),
        &["demand.csv", "plans/a.jsonl", "plans/b.txt", "plans/rows.csv"],
    );
}

#[test]
fn an_agent_needs_no_tiers() {
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(here.path().join("tiers")).unwrap();
    for (tier, kind) in [("bucket", "s3"), ("disk", "nvme")] {
        std::fs::write(
            here.path().join(format!("tiers/{tier}.toml")),
            format!("kind = \"{kind}\"\n"),
        )
        .unwrap();
    }
    let lab = LAB
        .replace("\"nvme\", \"s3\"", "\"disk\", \"bucket\"")
        .replace("share = 0.0", "share = 0.0\npage_cache = \"dropped\"");
    let text = format!("{HEAD}{LOAD}{lab}[lab.tier.bucket]\norigin = \"embedded\"\n");
    Plan::parse(&here.path().join("t.toml"), &text).unwrap();
    Plan::parse_sent(Path::new("/none"), Path::new("/none/t.toml"), &text).unwrap();
}

#[test]
fn a_real_service_is_known_by_the_kind_of_its_tier() {
    let here = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(here.path().join("tiers")).unwrap();
    std::fs::write(here.path().join("tiers/bucket.toml"), "kind = \"s3\"\n").unwrap();
    let text = format!(
        "{HEAD}{LOAD}[lab]\ntiers = [\"bucket\"]\nwork = \"w\"\nserver_config = \"server.toml\"\n[lab.data]\nrows = 10\n\
         [lab.tier.bucket]\norigin = \"real\"\n[[variant]]\nname = \"v\"\ntier = \"bucket\"\nemulated = \"gp3\"\n"
    );
    let error = Plan::parse(&here.path().join("t.toml"), &text).unwrap_err().to_string();
    assert!(error.contains("over the real tier `bucket`"), "{error}");
}

#[test]
fn requests_of_one_process_are_refused_with_several() {
    const STREAMS: &str = "[target]\nkind = \"http\"\npath = \"/\"\nreply = \"sse\"\n";
    const SEARCH: &str = "[search]\nonly = true\nslo = \"p99 < 50 ms\"\nmax_rate = 400\n";
    let lab = "[lab]\nwork = \"w\"\n[question]\nslo = [\"ttft p99 < 300 ms\"]\nbudget = \"10m\"\n\
               [[variant]]\nname = \"a\"\nurl = \"http://h:1\"\ntarget = { kind = \"http\", path = \"/\", reply = \"sse\" }\n";
    for (text, key) in [
        (format!("{HEAD}{lab}"), "`target.reply`"),
        (format!("{HEAD}{LOAD}{STREAMS}{SEARCH}"), "`target.reply`"),
        (format!("keep_requests = true\n{HEAD}{LOAD}{SEARCH}"), "`keep_requests`"),
        (format!("connections = 4\n{HEAD}{LOAD}"), "`connections`"),
        (format!("connections = 4\nhttp2 = true\n{HEAD}{LOAD}"), "`connections`"),
        (
            format!("connections = 4\nprotocol = \"grpc\"\n{HEAD}{LOAD}"),
            "`connections`",
        ),
    ] {
        let plan = parse(&text).unwrap();
        plan.clone().with_options(None, false, None).unwrap();
        let refused = plan
            .with_options(None, false, Some("--workers"))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains(key) && refused.contains("leave out --workers"),
            "{refused}"
        );
    }
    let plain = parse(&format!("{HEAD}{LOAD}")).unwrap();
    plain.clone().with_options(None, false, Some("--agents")).unwrap();
    assert!(plain.with_options(None, true, Some("--agents")).is_err());
}

/// Arrivals are computed before a step, so an order for too many would end the process.
#[test]
fn the_load_of_an_order_is_checked_like_that_of_a_plan() {
    let plan = parse(&format!("{HEAD}{LOAD}")).unwrap();
    let load = plan.loads[0];
    for rate in [50.0, 1.0, 0.001, 0.0] {
        // A part of a mix may send nothing in a step.
        assert!(plan.check_load(&load.at(rate)).is_ok(), "{rate}");
    }
    for rate in [1e12, 1e308, f64::INFINITY, f64::NAN] {
        let refused = plan.check_load(&load.at(rate)).unwrap_err().to_string();
        assert!(refused.contains("`order.rates`"), "{rate}: {refused}");
    }
    let batch = Load {
        batch_size: u32::MAX,
        ..load
    };
    let refused = plan.check_load(&batch).unwrap_err().to_string();
    assert!(refused.contains("`order.batch_sizes`"), "{refused}");
}
