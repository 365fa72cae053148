//! Factors, profiles and contradictions of variants.

use super::*;
use crate::plan::fault;
use crate::plan::raw::RawPlan;
use tierlab_analysis::record::StageFill;

fn read(text: &str) -> Result<Vec<VariantPlan>, Fault> {
    const HEAD: &str = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0\nstep_s = 1\ndrain_s = 1\nprices = \"p\"\n";
    let raw: RawPlan = fault::read(&format!("{HEAD}{text}")).map_err(|(_, fault)| fault)?;
    let tier = |name: &str, origin| TierPlan {
        name: name.into(),
        kind: name.into(),
        origin,
        publish: true,
        set: toml::Table::new(),
    };
    let warm = CacheState {
        name: "warm".into(),
        share: 0.2,
        prefill: true,
        ..CacheState::none()
    };
    let base = Base::local(Path::new(""));
    validate(
        &raw.variant,
        &Parts {
            facts: raw.facts(base),
            tiers: &[
                tier("s3", Origin::Embedded),
                tier("nvme", Origin::Real),
                tier("memory", Origin::Real),
            ],
            caches: &[warm],
            keys: &KeyDistribution::Uniform,
            batch_sizes: &[1],
        },
    )
}

#[test]
fn layouts_and_server_keys_are_factors() {
    let all = read(
        "[[variant]]\nname = \"a\"\ntier = \"nvme\"\nlayout = [\"rows\", \"tar\"]\n\
         matrix = { runtime.instances.cores = [1], \"model_config.m.max_batch_size\" = [0, 32] }\n\
         [[variant]]\nname = \"b\"\ntier = \"nvme\"\nlayout = \"rows\"\nset = { a.b = \"c\" }",
    )
    .unwrap();
    let found: Vec<_> = all
        .iter()
        .map(|variant| (variant.name.as_str(), variant.laid_out(), pairs(&variant.set).join(" ")))
        .collect();
    let set = |rows: u32| format!("model_config.m.max_batch_size={rows} runtime.instances.cores=1");
    assert_eq!(
        found,
        [
            ("a-rows-max_batch_size-0-cores-1", None, set(0)),
            ("a-rows-max_batch_size-32-cores-1", None, set(32)),
            ("a-tar-max_batch_size-0-cores-1", Some("tar"), set(0)),
            ("a-tar-max_batch_size-32-cores-1", Some("tar"), set(32)),
            ("b", None, "a.b=c".to_owned()),
        ]
    );
    for (more, says) in [
        (
            "layout = \"parkett\"",
            "`variant[0].layout`: no such layout: `parkett`; use one of rows, files, tar",
        ),
        ("batching = [0, 8]", "`variant[0].batching`: unknown field `batching`"),
        ("sessions = 4", "`variant[0].sessions`: unknown field `sessions`"),
        ("matrix = { a.b = 1 }", "`variant[0].matrix.a.b`: 1 is not a list"),
        ("matrix = { a.b = [] }", "`variant[0].matrix.a.b` is an empty list"),
        ("matrix = { cache.capacity_bytes = [1] }", "`[[lab.cache]]`"),
        (
            "matrix = { a = [1] }\nset = { a = 2 }",
            "`variant[0].set.a` exclude each other",
        ),
    ] {
        let refused = read(&format!("[[variant]]\nname = \"a\"\ntier = \"nvme\"\n{more}")).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[test]
fn factors_are_crossed_and_name_their_levels() {
    let all = read(
        "[[variant]]\nname = \"s3\"\ntier = \"s3\"\nemulated = [\"s3-standard\", \"s3-express\"]\ncache = [\"cold\", \
         \"warm\"]\nstaged = \"filled\"\n[[variant]]\nname = \"local\"\ntier = \"nvme\"",
    )
    .unwrap();
    let names: Vec<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "s3-s3-standard-cold",
            "s3-s3-standard-warm",
            "s3-s3-express-cold",
            "s3-s3-express-warm",
            "local"
        ]
    );
    assert!(
        all[..4]
            .iter()
            .all(|variant| variant.staged.unwrap().fill == StageFill::Filled)
    );
    assert_eq!(all[4].cache.share, 0.0);
    assert_eq!((all[1].cache.share, all[2].cache.share), (0.2, 0.0));
}

#[test]
fn profiles_are_those_of_the_server_or_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/tiers/emulated");
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut shipped: Vec<String> = entries
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    shipped.sort();
    assert_eq!(shipped, PROFILES);
    for name in PROFILES {
        let text = std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let is_limited = text.contains("\nrequests_per_s") || text.contains("\nservice_bytes_per_s");
        assert_eq!(is_limited, !UNLIMITED.contains(&name), "{name}");
    }
    let plans = tempfile::tempdir().unwrap();
    let recorded = plans.path().join("bucket.toml");
    std::fs::write(&recorded, "").unwrap();
    let found = |name: &str, base| profile("variant[0].emulated", name, base);
    let here = Base::local(plans.path());
    assert_eq!(found("s3-express", here).unwrap(), "s3-express");
    assert_eq!(found("bucket.toml", here).unwrap(), recorded.display().to_string());
    let refused = found("buckt.toml", here).unwrap_err().to_string();
    assert!(refused.contains("`variant[0].emulated`: recorded profile"), "{refused}");
    assert!(found("buckt.toml", Base::remote(plans.path(), plans.path())).is_ok());
}

#[test]
fn a_running_server_is_a_variant_by_its_address() {
    let all = read(
        "[[variant]]\nname = \"triton\"\nurl = \"http://h:8000\"\ninstance = [\"a\", \"b\"]\n[variant.target]\nmetrics = []\n\
         [[variant]]\nname = \"local\"\ntier = \"nvme\"",
    )
    .unwrap();
    let names: Vec<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["triton-a", "triton-b", "local"]);
    let target = all[0].target.as_deref().unwrap();
    assert_eq!(
        (target.url.as_deref(), &target.metrics),
        (Some("http://h:8000"), &Some(vec![]))
    );
    assert_eq!(all[0].tier.name, NO_TIER);
    assert!(all[2].target.is_none());
}

#[test]
fn factors_are_crossed_up_to_a_limit() {
    // 3 to the 20th variants, which are not created.
    let keys: Vec<String> = (0..20).map(|key| format!("k{key} = [0, 1, 2]")).collect();
    let text = format!(
        "[[variant]]\nname = \"a\"\ntier = \"s3\"\nmatrix = {{ {} }}",
        keys.join(", ")
    );
    let error = read(&text).unwrap_err().to_string();
    assert!(error.contains("81 crossed variants; the limit is 64"), "{error}");
}

#[test]
fn contradictions_are_refused_by_name() {
    for (text, says) in [
        ("name = \"a\"", "`url` of an existing one"),
        ("name = \"a\"\nurl = \"h\"", "`variant[0].url`"),
        ("name = \"a\"\nurl = \"http://h\"\ncache = \"warm\"", "existing server"),
        (
            "name = \"a\"\n[variant.target]\nca = \"x\"",
            "`variant[0].url` is missing",
        ),
        (
            "name = \"a\"\nurl = \"http://h\"\n[variant.target]\nkind = \"http\"\npath = \"/p\"\nrows_per_request = 4",
            "rows_per_request",
        ),
        ("name = \"a\"\ntier = \"tape\"", "`tape` is not in `lab.tiers`"),
        (
            "name = \"a\"\ntier = \"s3\"\ncache = \"hot\"",
            "no `[[lab.cache]]` is named `hot`; use one of warm, cold",
        ),
        ("name = \"a b\"\ntier = \"s3\"", "invalid name `a b`"),
        ("name = \"a\"\ntier = \"s3\"\nstaged_bytes = 5", "`a` has no stage"),
        (
            "name = \"a\"\ntier = \"memory\"\nstaged = \"empty\"",
            "copy of what is in memory",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\ncache = []",
            "`variant[0].cache` is an empty list",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\ncache = [\"warm\", \"wram\"]",
            "`variant[0].cache[1]`: no `[[lab.cache]]` is named `wram`",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\nemulated = [\"s3-express\", \"s3-expres\"]",
            "`variant[0].emulated[1]`: unknown profile `s3-expres`; use one of efs-elastic,",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\nstaged = \"full\"",
            "`variant[0].staged`: unknown variant `full`, expected one of `none`, `empty`, `filled`, `shared`",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\nstaged = [\"empty\", \"full\"]",
            "`variant[0].staged`: unknown variant `full`",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\n[[variant]]\nname = \"b\"\ntier = \"s3\"",
            "`a` and `b` differ only",
        ),
        (
            "name = \"a\"\ntier = \"s3\"\n[[variant]]\nname = \"a\"\ntier = \"nvme\"",
            "two variants are named `a`",
        ),
    ] {
        let error = read(&format!("[[variant]]\n{text}")).unwrap_err();
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}
