mod agents;
mod closed_loops;
mod fleets;
mod labs;

use super::*;
use proptest::prelude::*;
use tierlab_analysis::record::Mode;
use tierlab_load::arrivals::{Process, Shape};

const HEAD: &str = "name = \"t\"\nmodel = \"ctr\"\nseed = 1\nwarmup_s = 0.5\nstep_s = 2.0\ndrain_s = 1.0\n";
const LOAD: &str = "[[load]]\nmode = \"realtime\"\nrates = [50, 100]\n";
const LAB: &str = "[lab]\ntiers = [\"nvme\", \"s3\"]\nwork = \"w\"\nserver_config = \"server.toml\"\n\
    [[lab.cache]]\nname = \"cold\"\nshare = 0.0\n[lab.data]\nrows = 10\n";

fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse(Path::new("plans/t.toml"), text)
}

fn refusal(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
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
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn nonsense_is_refused_by_file_and_key() {
    let with = |more: &str| format!("{HEAD}{more}\n{LOAD}");
    for (text, named) in [
        (with("rate = 3"), "rate"),
        (
            with("repeat = 3"),
            "plans/t.toml:7: `repeat`: unknown field `repeat` (did you mean `repeats`?)",
        ),
        (LOAD.to_owned(), "plans/t.toml:1: missing field `name`"),
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
        (
            with("[limits]\nobjective_us = 2.0"),
            "`limits.objective_us`: an objective",
        ),
        (with("[limits]\ngoodput_us = 2.0"), "`limits.goodput_us`: an objective"),
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
            format!(
                "{HEAD}[search]\nslo = \"p50 < 1 ms\"\n[[mix]]\nrates = [100]\npart = [{{ weight = 1, mode = \"realtime\" }}, \
                 {{ weight = 1, mode = \"batch\", batch_size = 4 }}]\n"
            ),
            "`search` is only allowed with a `[[load]]`",
        ),
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
fn paths_are_relative_to_the_plan_and_short() {
    let at = |base: &str, path: &str| Base::local(Path::new(base)).path(Path::new(path)).display().to_string();
    assert_eq!(at("configs/labs", "../prices.toml"), "configs/prices.toml");
    assert_eq!(at("configs/labs", "../../data/./quick"), "data/quick");
    assert_eq!(at("labs", "../../data"), "../data");
    assert_eq!(at("", "prices.toml"), "prices.toml");
    assert_eq!(at("labs", "/etc/prices.toml"), "/etc/prices.toml");
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
            "`target.reply`: `ttft p99 < 300 ms`",
        ),
        (format!("{HEAD}{LOAD}{search}"), "`target.reply`: `ttft p99 < 300 ms`"),
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
    let objective = super::objective("ttft p99 < 300 ms").unwrap();
    let message = parse(&format!("{HEAD}{LOAD}")).unwrap().with_slo(&[objective]);
    let message = message.unwrap_err().to_string();
    assert!(message.contains("`--slo`: `ttft p99 < 300 ms` limits"), "{message}");
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

#[test]
fn a_replay_has_what_it_needs_in_all_of_its_requests_or_in_none() {
    const BARE: &str = "\"timestamp\":1";
    let folder = tempfile::tempdir().unwrap();
    let replay = |lines: [&str; 3], more: &str| {
        let lines = lines.map(|line| format!("{{{line}}}\n")).concat();
        std::fs::write(folder.path().join("r.jsonl"), lines).unwrap();
        let text = format!("arrivals = \"replay\"\n{HEAD}[arrival]\nfile = \"r.jsonl\"\n{more}");
        Plan::parse(&folder.path().join("t.toml"), &text)
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
        let refused = replay(lines, "").unwrap_err().to_string();
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
