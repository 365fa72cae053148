//! Plans of labs: tiers, caches, data, questions.

use super::*;

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
        "sweeps/completions.toml",
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
fn the_shipped_labs_price_a_service_as_it_is_emulated() {
    let priced_as = [
        ("efs-elastic", "efs-elastic"),
        ("efs-nfs", "efs-bursting"),
        ("elasticache", "elasticache-r7g-4xlarge"),
        ("gp3", "gp3"),
        ("s3-express", "s3-express-one-zone"),
        ("s3-standard", "s3-standard"),
    ];
    let labs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/labs");
    let mut priced = 0;
    for lab in std::fs::read_dir(labs).unwrap() {
        let lab = lab.unwrap().path();
        let plan: toml::Table = std::fs::read_to_string(&lab).unwrap().parse().unwrap();
        for variant in plan
            .get("variant")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |key: &str| variant.get(key).and_then(toml::Value::as_str);
            if let (Some(emulated), Some(price)) = (text("emulated"), text("price")) {
                assert!(
                    priced_as.contains(&(emulated, price)),
                    "{}: {emulated} is priced as {price}",
                    lab.display()
                );
                priced += 1;
            }
        }
    }
    assert!(priced >= 10, "{priced}");
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
