use super::*;
use proptest::prelude::*;
use tierlab_analysis::record::Mode;
use tierlab_load::arrivals::{Process, Shape};

const HEAD: &str = "name = \"t\"\nmodel = \"ctr\"\nseed = 1\nwarmup_s = 0.5\nstep_s = 2.0\ndrain_s = 1.0\n";
const LOAD: &str = "[[load]]\nmode = \"realtime\"\nrates = [50, 100]\n";
const LAB: &str = "[lab]\ntiers = [\"nvme\", \"s3\"]\nwork = \"w\"\nserver_config = \"server.toml\"\n\
    [[lab.cache]]\nname = \"cold\"\nshare = 0.0\n[lab.data]\nrows = 10\n";

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse(Path::new("plans/t.toml"), text).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    let message = parse(text).expect_err(text);
    assert!(message.starts_with("plans/t.toml:"), "{message}");
    message
}

#[test]
fn loads_are_the_product_of_batch_sizes_and_rates() {
    let plan = parse(&format!(
        "{HEAD}{LOAD}[[load]]\nmode = \"batch\"\nbatch_sizes = [8, 32]\nrates = [5, 10.5]\n"
    ))
    .unwrap();
    let loads: Vec<_> = plan.loads.iter().map(|load| (load.batch_size, load.rate)).collect();
    assert_eq!(
        loads,
        [(1, 50.0), (1, 100.0), (8, 5.0), (8, 10.5), (32, 5.0), (32, 10.5)]
    );
    assert_eq!(plan.repeats, 10);
    assert!(plan.lab.is_none());
}

#[test]
fn nonsense_is_refused_by_file_and_key() {
    let with = |more: &str| format!("{HEAD}{more}\n{LOAD}");
    for (text, named) in [
        (with("rate = 3"), "rate"),
        (
            with("repeats = 0"),
            "plans/t.toml:7: `repeats`: 0 is not between 1 and 100",
        ),
        (
            with("[limits]\nerrors = 1"),
            "plans/t.toml:8: `limits.errors`: unknown field",
        ),
        (
            with("[keys]\ndistribution = \"zipff\""),
            "plans/t.toml:8: `keys.distribution`: unknown variant `zipff`",
        ),
        (with("max_in_flight = 0"), "`max_in_flight`"),
        (with("timeout_ms = 0"), "`timeout_ms`"),
        (with("instance = \"a\""), "`prices`"),
        (with("prices = \"p.toml\""), "`instance`"),
        (with("encoding = \"xml\""), "encoding"),
        (with("protocol = \"smtp\""), "protocol"),
        (with("protocol = \"grpc\"\nencoding = \"json\""), "`encoding`"),
        (with("[keys]\ndistribution = \"zipf\""), "`keys.exponent`"),
        (with("[keys]\nexponent = 1.0"), "`keys.exponent`"),
        (with("[limits]\nerror_share = 2.0"), "`limits.error_share`"),
        (with("arrivals = \"gamma\""), "`arrival.cv`"),
        (with("[arrival]\ncv = 2.0"), "`arrival.cv`"),
        (with("arrivals = \"trace\""), "`arrival.file`"),
        (with("arrivals = \"trace\"\n[arrival]\nfile = \"no.csv\""), "no.csv"),
        (with("[arrival]\nunit = \"ms\""), "`arrival.unit`"),
        (with("[shape]\nkind = \"steps\"\nshares = [0.0, 0.0]"), "`shape.shares`"),
        (with("[shape]\nkind = \"steps\"\nshares = [1.0]"), "`shape.shares"),
        (with("[shape]\nkind = \"ramp\"\nfrom = -1.0\nto = 1.0"), "`shape.from`"),
        (with("[keys]\ndistribution = \"file\""), "`keys.file`"),
        (with("[keys]\nfile = \"ids.csv\""), "`keys.file`"),
        (with("[search]\nslo = \"fast\""), "`search.slo`: `fast`"),
        (
            with("[search]\nslo = \"p50 < 1 ms\"\nmax_rate = -1"),
            "`search.max_rate`",
        ),
        (
            with("[search]\nslo = \"p50 < 1 ms\"\nresolution = 0"),
            "`search.resolution`",
        ),
        (
            with("[search]\nslo = \"p99 < 1 ms\"\nmin_rate = 1"),
            "`search.min_rate`: 1 is too low: a p99 needs 1000",
        ),
        (
            with("[search]\nslo = \"p99 < 1 ms\"\nmax_rate = 10"),
            "is not below the highest",
        ),
        (
            with("[search]\nslo = \"p50 < 1 ms\"\nmodes = [\"batch\"]"),
            "`search.modes`: no `[[load]]`",
        ),
        (
            with("[search]\nslo = \"p50 < 1 ms\"\nerror_share = 0.5"),
            "`search.error_share`: 0.5",
        ),
        (with("[search]\nslo = \"p50 < 1 ms\"\nhow = 1"), "how"),
        (
            with("[[mix]]\nrates = [100]\npart = [{ weight = 1, mode = \"realtime\" }]"),
            "`mix[0].part",
        ),
        (
            with("[[mix]]\nrates = [100]\npart = [{ weight = 0, mode = \"realtime\" }]"),
            "`mix[0].part[0].weight`",
        ),
        (
            with("[[mix]]\nrates = [100]\npart = [{ weight = 1, mode = \"batch\" }]"),
            "`mix[0].part[0].batch_size` is missing",
        ),
        (
            with(
                "[[mix]]\nrates = [9]\npart = [{ weight = 1, mode = \"realtime\" }, { weight = 99, mode = \"batch\", batch_size = 4 }]",
            ),
            "sends nothing",
        ),
        (HEAD.to_owned(), "`[[load]]`"),
        (
            format!("{HEAD}[[load]]\nmode = \"realtime\"\nrates = [-5]\n"),
            "`load[0].rates`: -5",
        ),
        (
            format!("{HEAD}[[load]]\nmode = \"realtime\"\nrates = [nan]\n"),
            "`load[0].rates`",
        ),
        (
            format!("{HEAD}[[load]]\nmode = \"realtime\"\nrates = []\n"),
            "`load[0].rates`",
        ),
        (
            format!("{HEAD}[[load]]\nmode = \"realtime\"\nrates = [5, 5]\n"),
            "duplicate entry",
        ),
        (
            format!("{HEAD}[[load]]\nmode = \"batch\"\nrates = [5]\n"),
            "`load[0].batch_sizes`",
        ),
        (
            format!("{HEAD}[[load]]\nmode = \"realtime\"\nbatch_sizes = [2]\nrates = [5]\n"),
            "`load[0].batch_sizes`",
        ),
        (HEAD.replace("\"t\"", "\"../t\"") + LOAD, "`name`"),
        (HEAD.replace("step_s = 2.0", "step_s = -2.0") + LOAD, "`step_s`"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(named), "{named}: {message}");
    }
}

#[test]
fn a_search_has_a_range_that_its_percentile_can_be_had_in() {
    let plan = parse(&format!("{HEAD}[search]\nslo = \"p99 < 20 ms\"\n{LOAD}")).unwrap();
    let search = plan.search.unwrap();
    // 1,000 samples from ten windows of two seconds.
    assert_eq!(search.slo.lowest_rps, 50.0);
    assert_eq!(search.slo.highest_rps, 20_000.0);
    assert_eq!(search.slo.error_share, plan.limits.error_share);
    assert_eq!((search.only, search.modes), (false, vec![Mode::Realtime]));
}

#[test]
fn the_parts_of_a_mix_share_its_rate_by_weight() {
    let plan = parse(&format!(
        "{HEAD}[[mix]]\nrates = [90]\n[[mix.part]]\nweight = 8\nmode = \"realtime\"\n[[mix.part]]\nweight = 1\nmode = \"batch\"\n\
         batch_size = 16\nmodel = \"mlp\"\n"
    ))
    .unwrap();
    let mix = &plan.mixes[0];
    assert_eq!(mix.to_string(), "8 realtime×1, 1 batch×16 of mlp");
    let rates: Vec<f64> = mix.parts.iter().map(|part| mix.load(part, 90.0).rate).collect();
    assert_eq!(rates, [80.0, 10.0]);
    assert!(plan.loads.is_empty());
    assert_eq!(plan.other_models().into_iter().collect::<Vec<_>>(), ["mlp"]);
}

#[test]
fn a_lab_names_origins_caches_and_data() {
    let plan = parse(&format!(
        "{HEAD}{LOAD}{LAB}[lab.server]\nadmission.max_in_flight = 64\n[lab.tier.s3]\norigin = \"real\"\n\
         publish = false\nset = {{ endpoint = \"https://s3.example\", concurrency = 8 }}\n"
    ))
    .unwrap();
    let lab = plan.lab.unwrap();
    assert_eq!(lab.work, Path::new("plans/w"));
    assert_eq!(pairs(&lab.server_set), ["admission.max_in_flight=64"]);
    assert_eq!(lab.tiers[0].origin, Origin::Real);
    assert_eq!(
        pairs(&lab.tiers[1].set),
        ["concurrency=8", "endpoint=https://s3.example"]
    );
    assert!(!lab.tiers[1].publish);
}

#[test]
fn paths_are_relative_to_the_plan_and_short() {
    let at = |base: &str, path: &str| Base::local(Path::new(base)).path(Path::new(path)).display().to_string();
    assert_eq!(at("configs/labs", "../prices.toml"), "configs/prices.toml");
    assert_eq!(at("configs/labs", "../../data/./quick"), "data/quick");
    assert_eq!(at("labs", "../../data"), "../data");
    assert_eq!(at("", "prices.toml"), "prices.toml");
    assert_eq!(at("labs", "/etc/prices.toml"), "/etc/prices.toml");
}

#[test]
fn nonsense_labs_are_refused_by_key() {
    let with = |from: &str, to: &str| format!("{HEAD}{LOAD}{}", LAB.replace(from, to));
    for (text, named) in [
        (with("\"nvme\", ", "\"s3\", "), "duplicate entry"),
        (with("\"nvme\", ", "\"flight\", "), "--feature-tier flight"),
        (with("share = 0.0", "share = -0.1"), "`lab.cache[0].share`"),
        (
            with("share = 0.0", "share = 0.0\nprefill = true"),
            "`lab.cache[0].prefill`",
        ),
        (with("rows = 10", ""), "`lab.data.rows`"),
        (
            with("rows = 10", "rows = 10\nrepository = \"r\"\nfeatures = \"f\""),
            "`lab.data`",
        ),
        (
            with("rows = 10", "model_size = \"huge\"\nrows = 3"),
            "`lab.data.model_size`",
        ),
        (with("rows = 10", "rows = 10\n[lab.tier.nfs]"), "`lab.tier.nfs`"),
        (
            with("rows = 10", "rows = 10\n[lab.tier.nvme]\norigin = \"embedded\""),
            "`lab.tier.nvme.origin`",
        ),
        (
            with(
                "rows = 10",
                "rows = 10\n[lab.tier.nvme]\nset = { cache = { capacity_bytes = 1 } }",
            ),
            "`lab.tier.nvme.set.cache.capacity_bytes`",
        ),
        (
            with(
                "rows = 10",
                "rows = 10\n[lab.server]\ntiers.s3.cache.capacity_bytes = 1",
            ),
            "`[[lab.cache]]`",
        ),
        (with("rows = 10", "row = 10"), "row"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(named), "{named}: {message}");
    }
}

#[test]
fn the_shipped_plans_are_valid_and_the_quick_lab_is_quick() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    for file in [
        "sweeps/quick.toml",
        "sweeps/realtime.toml",
        "sweeps/batch.toml",
        "sweeps/chat.toml",
    ] {
        assert!(Plan::load(&configs.join(file)).unwrap().lab.is_none(), "{file}");
    }
    for file in [
        "labs/quick.toml",
        "labs/full.toml",
        "labs/cache.toml",
        "labs/cold-start.toml",
    ] {
        let plan = Plan::load(&configs.join(file)).unwrap();
        let lab = plan.lab.as_ref().unwrap();
        let configurations = (lab.variants.len() * plan.loads.len()) as u32;
        let of_loads = plan.step_limit() * configurations * plan.repeats;
        let measuring = plan
            .question
            .as_ref()
            .map_or(of_loads, |question| Duration::from_secs_f64(question.budget_s));
        if file != "labs/full.toml" {
            assert!(measuring <= Duration::from_secs(600), "{file}: {measuring:?}");
        }
        // Every point has the samples that a p95 asks for.
        for load in &plan.loads {
            let samples = load.rate * plan.window.as_secs_f64() * f64::from(plan.repeats);
            assert!(samples >= 200.0, "{file}: {load:?} has {samples}");
        }
    }
}

#[test]
fn streams_and_their_objectives_need_each_other_and_open_loops() {
    let target = "[target]\nkind = \"http\"\npath = \"/x\"\nbody = '{}'\n";
    let search = "[search]\nslo = \"ttft p99 < 300 ms\"\nmin_rate = 200\n";
    let sse = target.replace("path", "reply = \"sse\"\npath");
    let plan = parse(&format!("{HEAD}{LOAD}{search}{sse}")).unwrap();
    // The time to the first event includes the send lag, a gap does not.
    assert_eq!(plan.limits.objective_us, Some(300_000.0));
    let of_gaps = search.replace("ttft", "gap");
    assert_eq!(
        parse(&format!("{HEAD}{LOAD}{of_gaps}{sse}"))
            .unwrap()
            .limits
            .objective_us,
        None
    );
    let closed = "[[load]]\nmode = \"concurrency\"\nusers = [2]\n";
    for (text, says) in [
        (
            format!("{HEAD}{LOAD}{search}{target}"),
            "`target.reply` is missing: `ttft p99 < 300 ms`",
        ),
        (format!("{HEAD}{LOAD}{search}"), "`target.reply` is missing"),
        (format!("{HEAD}{closed}{sse}"), "events are timed in open loops"),
        (
            format!("connections = \"new\"\n{HEAD}{closed}"),
            "only HTTP requests in open loops",
        ),
        (
            format!("connections = \"new\"\nprotocol = \"grpc\"\n{HEAD}{LOAD}"),
            "only HTTP requests in open loops",
        ),
    ] {
        let message = refusal(&text);
        assert!(message.contains(says), "{says}: {message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_number_is_read_or_refused(rate in prop::num::f64::ANY, step in prop::num::f64::ANY) {
        let head = HEAD.replace("step_s = 2.0", &format!("step_s = {step:?}"));
        if let Ok(plan) = parse(&format!("{head}[[load]]\nmode = \"realtime\"\nrates = [{rate:?}]\n")) {
            prop_assert!(plan.loads[0].rate > 0.0);
            prop_assert!(plan.loads[0].rate * plan.window.as_secs_f64() >= 1.0);
        }
    }
}

#[test]
fn processes_shapes_and_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("log.csv"), "ts,user\n1000,5\n1250,6 7\n2000,5\n").unwrap();
    let plan = Plan::parse(
        &folder.path().join("t.toml"),
        &format!(
            "arrivals = \"trace\"\n{HEAD}[arrival]\nfile = \"log.csv\"\ncolumn = \"ts\"\nunit = \"ms\"\n\
             [shape]\nkind = \"ramp\"\nfrom = 1\nto = 3\n\
             [keys]\ndistribution = \"file\"\nfile = \"log.csv\"\ncolumn = \"user\"\n{LOAD}"
        ),
    )
    .unwrap();
    let Process::Trace { trace, .. } = &plan.arrivals.process else {
        panic!("{:?}", plan.arrivals);
    };
    assert_eq!(trace.at_s, [0.0, 0.25, 1.0]);
    assert_eq!(plan.arrivals.shape, Shape::Ramp { from: 0.5, to: 1.5 });
    assert_eq!(plan.arrivals.to_string(), "trace(log.csv) on a ramp(0.50 to 1.50)");
    assert_eq!(plan.keys.to_string(), "file(log.csv)");
    let KeyDistribution::File { ids, .. } = &plan.keys else {
        panic!("{:?}", plan.keys);
    };
    assert_eq!(ids[..], [5, 6, 7, 5]);
    let gamma = parse(&format!("arrivals = \"gamma\"\n{HEAD}[arrival]\ncv = 2\n{LOAD}")).unwrap();
    assert_eq!(gamma.arrivals.to_string(), "gamma(cv 2.00)");
}

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
fn failures_that_a_question_allows_are_no_saturation() {
    let variant = |name: &str| {
        let target = "[variant.target]\nkind = \"http\"\npath = \"/\"\nbody = '1'\n";
        format!("[[variant]]\nname = \"{name}\"\nurl = \"http://{name}:1\"\n{target}")
    };
    let error_share = |errors: &str| {
        let asked = format!("[question]\nslo = [\"p99 < 50 ms\", \"errors < {errors}\"]\nbudget = \"10m\"\n");
        let plan = format!("{HEAD}[lab]\nwork = \"w\"\n{asked}{}{}", variant("a"), variant("b"));
        parse(&plan).unwrap().limits.error_share
    };
    assert_eq!(["2 %", "0.01 %"].map(error_share), [0.02, 0.001]);
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

#[test]
fn a_replay_has_what_it_needs_in_all_of_its_requests_or_in_none() {
    const BARE: &str = "\"timestamp\":1";
    let folder = tempfile::tempdir().unwrap();
    let replay = |lines: [&str; 3], more: &str| {
        let lines = lines.map(|line| format!("{{{line}}}\n")).concat();
        std::fs::write(folder.path().join("r.jsonl"), lines).unwrap();
        let text = format!("arrivals = \"replay\"\n{HEAD}[arrival]\nfile = \"r.jsonl\"\n{more}");
        Plan::parse(&folder.path().join("t.toml"), &text).map_err(|error| error.to_string())
    };
    let at = |number: u32| f64::from(number) * 1.5;
    let entity = |number: u32| format!("\"timestamp\":{},\"entity_id\":{number}", at(number));
    let body = |number: u32| format!("\"timestamp\":{},\"body\":{{\"inputs\":[]}}", at(number));
    let plan = replay([entity(0).as_str(), entity(1).as_str(), entity(2).as_str()], "").unwrap();
    assert!(matches!(&plan.keys, KeyDistribution::File { ids, .. } if ids[..] == [0, 1, 2]));
    let plan = replay([body(0).as_str(), body(1).as_str(), body(2).as_str()], "").unwrap();
    assert_eq!(plan.inputs.recorded.unwrap().requests.len(), 3);
    replay([BARE, "\"timestamp\":0", "\"timestamp\":3"], "").unwrap();
    for (lines, says) in [
        (
            [entity(0).as_str(), entity(2).as_str(), BARE],
            "`arrival.file`: line 3 has no `entity_id`",
        ),
        (
            [body(0).as_str(), BARE, body(2).as_str()],
            "`arrival.file`: line 2 has no body",
        ),
        (
            ["\"timestamp\":0", "\"timestamp\":1e9", "\"timestamp\":2e9"],
            "check `arrival.unit`",
        ),
    ] {
        let refused = replay(lines, "").unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
    let other = "\"timestamp\":1,\"path\":\"/\"";
    let plan = replay(
        [body(0).as_str(), other, body(2).as_str()],
        "[target]\nkind = \"http\"\n",
    )
    .unwrap();
    assert!(plan.inputs.recorded.is_none());
}

#[test]
fn cold_starts_and_page_caches_make_sense_or_are_refused() {
    let with = |old: &str, new: &str| parse(&format!("{HEAD}{LOAD}{LAB}").replace(old, new));
    let cold = "rows = 10\n[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\npage_cache = \"dropped\"\n";
    let lab = with("rows = 10\n", cold).unwrap().lab.unwrap();
    let cold_start = lab.cold_start.unwrap();
    assert_eq!((cold_start.repeats, cold_start.ways.len()), (2, 1));
    for (new, expected) in [
        (
            cold.replace("[\"restart\"]", "[]"),
            "`lab.cold_start.ways` is an empty list",
        ),
        (cold.replace("[\"restart\"]", "[\"load\", \"load\"]"), "duplicate entry"),
        (cold.replace("repeats = 2", "repeats = 0"), "`lab.cold_start.repeats`"),
        (
            format!("{cold}[lab.tier.s3]\norigin = \"real\"\nset = {{ bucket = \"b\" }}\n"),
            "`lab.cold_start.page_cache`: \"dropped\" is for files on this machine",
        ),
    ] {
        let error = with("rows = 10\n", &new).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = with("share = 0.0\n", "share = 0.0\nset = { capacity_bytes = 1 }\n").unwrap_err();
    assert!(
        error.to_string().contains("`lab.cache[0].set.capacity_bytes`"),
        "{error}"
    );
}

const FLEET: &str = "[fleet]\nservers = [1, 4]\nrequests_per_s = 100\n";
const VARIANT: &str = "[[variant]]\nname = \"a\"\ntier = \"s3\"\nemulated = \"s3-standard\"\n";

#[test]
fn every_variant_is_measured_with_every_number_of_servers() {
    let text = format!("{HEAD}{FLEET}{VARIANT}staged = [\"none\", \"empty\"]\n{LOAD}{LAB}");
    let lab = parse(&text).unwrap().lab.unwrap();
    let fleets: Vec<(&str, u32)> = lab
        .variants
        .iter()
        .map(|variant| (variant.label(), variant.servers))
        .collect();
    let expected = [
        ("a-unstaged-1-server", 1),
        ("a-unstaged-4-servers", 4),
        ("a-stage-empty-1-server", 1),
        ("a-stage-empty-4-servers", 4),
    ];
    assert_eq!(fleets, expected);
    assert!(
        lab.variants
            .iter()
            .all(|variant| variant.shared == ["requests_per_s=100"])
    );
    let cold = "[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\njitter_s = [0, 1.5]\n";
    let lab = parse(&format!("{text}{cold}")).unwrap().lab.unwrap();
    assert_eq!(lab.cold_start.unwrap().jitter_s, [0.0, 1.5]);
}

#[test]
fn a_volume_is_of_each_server_of_a_fleet() {
    let variant = VARIANT.replace(
        "tier = \"s3\"\nemulated = \"s3-standard\"",
        "tier = \"nvme\"\nemulated = \"gp3\"",
    );
    let plan = parse(&format!("{HEAD}{FLEET}{variant}{LOAD}{LAB}")).unwrap();
    for variant in plan.lab.unwrap().variants {
        assert!(!variant.shares_service() && variant.shared.is_empty(), "{variant:?}");
    }
}

#[test]
fn nonsense_fleets_are_refused_by_key() {
    let cold = |more: &str| format!("[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\n{more}\n");
    let variant = |fleet: &str| format!("{HEAD}{fleet}{VARIANT}{LOAD}{LAB}");
    for (text, named) in [
        (variant("[fleet]\nservers = []\n"), "`fleet.servers` is an empty list"),
        (variant("[fleet]\nservers = [0]\n"), "`fleet.servers[0]`"),
        (variant("[fleet]\nservers = [65]\n"), "`fleet.servers[0]`"),
        (variant("[fleet]\nservers = [2, 2]\n"), "duplicate entry: 2"),
        (variant("[fleet]\nserver = [2]\n"), "server"),
        (
            variant("[fleet]\nservers = [1]\nrequests_per_s = 0\n"),
            "`fleet.requests_per_s`",
        ),
        (
            variant("[fleet]\nservers = [1, 2]\n").replace("s3-standard", "s3-express"),
            "variant `a-2-servers` emulates `s3-express`, which has no limit",
        ),
        (
            variant("").replace("tier = \"s3\"", "tier = \"s3\"\nstaged = \"shared\""),
            "`variant[0].staged`",
        ),
        (
            format!("{HEAD}{FLEET}{LOAD}"),
            "only allowed with servers that a lab starts",
        ),
        (format!("{HEAD}{FLEET}{LOAD}{LAB}"), "`[[variant]]`"),
        (
            format!("{HEAD}{FLEET}[[load]]\nmode = \"concurrency\"\nusers = [1]\n{VARIANT}{LAB}"),
            "`fleet`",
        ),
        (
            format!("{}{}", variant(""), cold("jitter_s = [1]")),
            "`lab.cold_start.jitter_s` is only allowed with a `[fleet]`",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = []")),
            "`lab.cold_start.jitter_s` is an empty list",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = [-1]")),
            "`lab.cold_start.jitter_s[0]`",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = [1, 1]")),
            "duplicate entry: 1",
        ),
        (
            format!("{HEAD}{VARIANT}staged = \"empty\"\n{LOAD}{LAB}[lab.cold_start]\nrepeats = 2\nways = [\"load\"]\n"),
            "measure it by `restart`",
        ),
    ] {
        let message = refusal(&text);
        assert!(message.contains(named), "{named}: {message}");
    }
}

const STEP: &str = "[[journey.step]]\nname = \"a\"\nmodel = \"m\"\n";

fn closed(more: &str) -> String {
    format!("{HEAD}[[load]]\nmode = \"concurrency\"\n{more}\n")
}

fn journey(steps: &str) -> String {
    format!("{HEAD}[[journey]]\nname = \"j\"\nrates = [5]\n{steps}")
}

#[test]
fn closed_loops_are_the_product_of_batch_sizes_and_users() {
    use tierlab_load::by_goose::closed_loop::Think;
    let plan = parse(&closed(
        "users = [1, 8]\nbatch_sizes = [1, 16]\nthink_time_ms = [10, 20]",
    ))
    .unwrap();
    let loops: Vec<_> = plan
        .closed_loops
        .iter()
        .map(|one| (one.batch_size, one.users))
        .collect();
    assert_eq!(loops, [(1, 1), (1, 8), (16, 1), (16, 8)]);
    let uniform = Think::Uniform {
        least_ms: 10.0,
        most_ms: 20.0,
    };
    assert_eq!(plan.closed_loops[0].think, uniform);
    assert!(plan.loads.is_empty());
    for (text, think) in [
        ("", Think::Fixed(0.0)),
        ("think_time_ms = 2.5", Think::Fixed(2.5)),
        (
            "think_time_ms = { exponential = 50 }",
            Think::Exponential { mean_ms: 50.0 },
        ),
    ] {
        assert_eq!(
            parse(&closed(&format!("users = [2]\n{text}"))).unwrap().closed_loops[0].think,
            think
        );
    }
}

#[test]
fn nonsense_closed_loops_are_refused_by_key() {
    for (text, named) in [
        (closed(""), "`load[0].users`"),
        (closed("users = [0]"), "`load[0].users`"),
        (closed("users = [2, 2]"), "duplicate entry"),
        (closed("users = [2]\nrates = [5]"), "`load[0].rates`"),
        (closed("users = [2]\nthink_time_ms = -1"), "`load[0].think_time_ms`"),
        (closed("users = [2]\nthink_time_ms = [5, 1]"), "`load[0].think_time_ms`"),
        (closed("users = [2]\nthink_time_ms = { gauss = 1 }"), "think_time_ms"),
        (closed("users = [2]\nbatch_sizes = [0]"), "`load[0].batch_sizes`"),
        (format!("{HEAD}{LOAD}users = [2]\n"), "`load[0].users`"),
        (format!("{HEAD}{LOAD}think_time_ms = 2\n"), "`load[0].think_time_ms`"),
        (format!("{HEAD}[[load]]\nmode = \"realtime\"\n"), "`load[0].rates`"),
        (
            format!("{}[search]\nslo = \"p99 < 20 ms\"\n", closed("users = [2]")),
            "`[search]`",
        ),
        (
            format!(
                "{}[target]\nkind = \"http\"\npath = \"/x\"\nbody = '1'\nrows_per_request = 3\n",
                closed("users = [2]\nbatch_sizes = [1, 3]")
            ),
            "duplicate entry: 2 users",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(named), "{refused}");
    }
    let asked = "[question]\nslo = [\"p99 < 20 ms\"]\ndemand_rps = 100\nminimise = \"p99\"\nbudget = \"5m\"\n";
    for problem in [closed("users = [2]"), journey(STEP)] {
        let refused = refusal(&format!("{problem}{LAB}{asked}"));
        assert!(refused.contains("question"), "{refused}");
    }
}

#[test]
fn journeys_know_which_values_are_there() {
    let plan = parse(&journey(
        "[[journey.step]]\nname = \"a\"\npath = \"/u/{entity_id}\"\ntake = { v = \"/x\", w = \"\" }\n\
         [[journey.step]]\nname = \"b\"\nmodel = \"m\"\nbody = '{\"inputs\":[{\"data\":{v}}],\"id\":\"{w}\"}'\n",
    ))
    .unwrap();
    let journey = &plan.journeys[0];
    assert_eq!(journey.values, ["entity_id", "v", "w"]);
    assert!(journey.takes_entity());
    assert_eq!((journey.steps[0].available, journey.steps[1].available), (1, 3));
    assert_eq!(journey.models().collect::<Vec<_>>(), ["m"]);
    // Of a plan's protocol, and of a step's own.
    let over_grpc = |plan: String| parse(&plan).unwrap().speaks_grpc();
    let of_step = |protocol: &str| self::journey(&format!("{STEP}protocol = \"{protocol}\"\n"));
    assert!(!over_grpc(self::journey(STEP)) && over_grpc(of_step("grpc")));
    let all = parse(&format!("protocol = \"grpc\"\n{}", self::journey(STEP))).unwrap();
    assert!(all.journeys[0].speaks_grpc());
    let none = parse(&format!("protocol = \"grpc\"\n{}", of_step("http"))).unwrap();
    assert!(!none.journeys[0].speaks_grpc());
    // Without inputs a model is asked for the rows of an entity.
    assert!(parse(&self::journey(STEP)).unwrap().journeys[0].takes_entity());
}

#[test]
fn nonsense_journeys_are_refused_by_key() {
    let step = |more: &str| journey(&format!("[[journey.step]]\nname = \"a\"\n{more}\n"));
    for (text, named) in [
        (journey(""), "`journey[0].step"),
        (journey(&STEP.repeat(2)), "`journey[0].step[1].name`"),
        (journey(STEP).replace("[5]", "[]"), "`journey[0].rates`"),
        (journey(STEP).replace("[5]", "[5, 5]"), "duplicate entry"),
        (journey(STEP).replace("[5]", "[0.1]"), "sends nothing"),
        (journey(STEP).replace("\"j\"", "\"a b\""), "`journey[0].name`"),
        (step(""), "`journey[0].step[0].model` is missing"),
        (step("model = \"m\"\npath = \"/x\""), "not both"),
        (step("model = \"m\"\nmethod = \"GET\""), "`journey[0].step[0].method`"),
        (step("model = \"m\"\ninputs = { x = 1 }\nbody = \"{}\""), "not both"),
        (step("model = \"m\"\ninputs = { x = \"{y}\" }"), "unknown value `{y}`"),
        (
            step("model = \"m\"\ninputs = { x = { a = 1 } }"),
            "`journey[0].step[0].inputs.x`",
        ),
        (
            step("model = \"m\"\nbody = \"{later}\"\ntake = { later = \"/x\" }"),
            "unknown value `{later}`",
        ),
        (step("path = \"x\""), "`journey[0].step[0].path`"),
        (step("path = \"//evil/x\""), "`journey[0].step[0].path`"),
        (step("path = \"/x\"\nmethod = \"TRACE\""), "`journey[0].step[0].method`"),
        (
            step("path = \"/x\"\nmethod = \"GET\"\nbody = \"{}\""),
            "`journey[0].step[0].body`",
        ),
        (step("path = \"/x\"\nstatus = 9"), "`journey[0].step[0].status`"),
        (
            step("path = \"/x\"\nheaders = { Authorization = \"s\" }"),
            "credentials are not allowed",
        ),
        (
            step("path = \"/x\"\ntake = { entity_id = \"/x\" }"),
            "another value has this name",
        ),
        (step("path = \"/x\"\ntake = { v = \"x\" }"), "not a JSON pointer"),
        (
            step("path = \"/x\"\ntake = { \"v-w\" = \"/x\" }"),
            "letters, digits and `_`",
        ),
        (step("path = \"/x\"\nwhat = 1"), "what"),
        (
            step("path = \"/x\"\nprotocol = \"grpc\""),
            "`journey[0].step[0].protocol`",
        ),
        (
            step("model = \"m\"\nprotocol = \"grpc\"\nbody = '{\"inputs\":[],\"parameters\":{\"a\":1}}'"),
            "`parameters`",
        ),
        (format!("encoding = \"binary\"\n{}", journey(STEP)), "`encoding`"),
        (
            format!("{}{LOAD}[search]\nslo = \"p99 < 20 ms\"\n", journey(STEP)),
            "`[search]`",
        ),
    ] {
        let refused = refusal(&text);
        assert!(refused.contains(named), "{refused}");
    }
}
