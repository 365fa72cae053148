use super::*;
use std::collections::BTreeSet;

#[test]
fn an_empty_config_is_the_default() {
    let config = ModelConfig::parse("").unwrap();
    assert_eq!(config, ModelConfig::default());
    assert_eq!(config.max_batch_size, 0, "nothing is batched without a word");
}

#[test]
fn keys_of_batches_need_a_maximum() {
    for key in ["max_delay_us = 2000", "preferred_rows = 8", "max_request_rows = 64"] {
        let error = ModelConfig::parse(&format!("[batching]\n{key}"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("max_batch_size") && error.contains(&key[..12]),
            "{error}"
        );
        ModelConfig::parse(&format!("max_batch_size = 8\n[batching]\n{key}")).unwrap();
    }
    ModelConfig::parse("[batching]\npriority_levels = 2").unwrap();
    let written = toml::to_string(&ModelConfig::default()).unwrap();
    assert_eq!(ModelConfig::parse(&written).unwrap(), ModelConfig::default());
}

#[test]
fn keys_are_laid_over_a_config() {
    let own = "max_batch_size = 64\n[batching]\nmax_delay_us = 0\npreferred_rows = [8, 32]\npriority_levels = 2\n[joined.x]\ntable = \"t\"\n\
               [[warmup]]\ncount = 2\n";
    let own = ModelConfig::parse(own).unwrap();
    let with = |keys: &str| own.with(&keys.parse().unwrap());
    assert_eq!(with("").unwrap(), own);
    let smaller = with("max_batch_size = 32\n[batching]\nmax_delay_us = 200").unwrap();
    assert_eq!((smaller.max_batch_size, smaller.batching.max_delay_us), (32, 200));
    assert_eq!(
        (&smaller.batching.preferred_rows, &smaller.joined),
        (&own.batching.preferred_rows, &own.joined)
    );
    let off = with("max_batch_size = 0").unwrap();
    assert_eq!((off.max_batch_size, &off.joined), (0, &own.joined));
    let all = with("version_policy = { all = {} }").unwrap();
    let newest = all.with(&"version_policy = { latest = { num_versions = 2 } }".parse().unwrap());
    let wanted = tierlab_protocol::metadata::VersionPolicy::Latest { num_versions: 2 };
    assert_eq!(newest.unwrap().version_policy, wanted);
    assert!(
        with("max_batch_size = 8")
            .unwrap_err()
            .to_string()
            .contains("preferred_rows")
    );
    assert!(
        with("max_batchsize = 8")
            .unwrap_err()
            .to_string()
            .contains("max_batchsize")
    );
}

#[test]
fn instances_are_stated_or_left_to_the_server() {
    let instances = |text: &str| ModelConfig::parse(text).unwrap().instances;
    assert_eq!(instances("max_batch_size = 4"), None);
    assert_eq!(instances("[instances]"), Some(InstanceConfig::default()));
    let two = instances("[instances]\nintra_op_threads = 2").unwrap();
    assert_eq!((two.count, two.intra_op_threads), (1, 2));
    let fitted = toml::to_string(&ModelConfig::default()).unwrap();
    assert!(!fitted.contains("instances"), "{fitted}");
    assert_eq!(ModelConfig::parse(&fitted).unwrap(), ModelConfig::default());
}

#[test]
fn preferred_rows_are_one_number_or_several_and_read_back() {
    for (text, rows) in [("0", &[][..]), ("32", &[32]), ("[8, 32]", &[8, 32])] {
        let config = ModelConfig::parse(&format!("max_batch_size = 32\n[batching]\npreferred_rows = {text}")).unwrap();
        assert_eq!(config.batching.preferred_rows, rows);
        let written = toml::to_string(&config).unwrap();
        assert_eq!(ModelConfig::parse(&written).unwrap(), config);
    }
}

#[test]
fn nonsense_is_refused_by_key() {
    let message = |text: &str| ModelConfig::parse(text).unwrap_err().to_string();
    assert!(message("max_batch = 3").contains("max_batch"));
    assert!(message("[[warmup]]\ncount = 0").contains("warmup.count"));
    assert!(message("max_batch_size = 8\n[[warmup]]\nbatch_size = 9").contains("warmup.batch_size"));
    let file = "[[warmup]]\n[warmup.inputs.x]\ndata = { file = \"../x\" }";
    assert!(message(file).contains("warmup.inputs.x.data"));
    assert!(message("[instances]\ncount = 0").contains("instances.count"));
    assert!(message("[joined.image]\ntable = \"../etc\"").contains("joined.image.table"));
    assert!(message("max_batch_size = 2\n[batching]\npreferred_rows = 3").contains("preferred_rows"));
    assert!(message("max_batch_size = 8\n[batching]\npreferred_rows = [4, 0]").contains("preferred_rows"));
    assert!(message("max_batch_size = 8\n[batching]\nmax_request_rows = 3").contains("max_request_rows"));
    let parts = |limit: u32| format!("max_batch_size = 8\n[batching]\nmax_request_rows = 1020\nqueue_limit = {limit}");
    assert!(
        ["queue_limit", "128", "max_request_rows"]
            .iter()
            .all(|part| message(&parts(127)).contains(part))
    );
    ModelConfig::parse(&parts(128)).unwrap();
    assert!(message("[batching]\npriority_levels = 65").contains("priority_levels"));
    assert!(message("[batching]\ndefault_priority_level = 1").contains("default_priority_level"));
    assert!(message("[instances]\ninter_op_threads = 0").contains("instances.inter_op_threads"));
    for (key, value, most) in [
        ("count", "1000000000", "256"),
        ("intra_op_threads", "4294967295", "1024"),
        ("inter_op_threads", "1025", "1024"),
    ] {
        let error = message(&format!("[instances]\n{key} = {value}"));
        let parts = [&format!("instances.{key}"), value, most];
        assert!(parts.iter().all(|part| error.contains(*part)), "{error}");
    }
    let error = message("[instances]\ncount = 100\nintra_op_threads = 100");
    assert!(error.contains("instances.count") && error.contains("4096"), "{error}");
    let rows = format!("max_batch_size = 8\n[batching]\npreferred_rows = {:?}", vec![1; 65]);
    assert!(message(&rows).contains("64"), "{}", message(&rows));
}

#[test]
fn version_policies_choose_among_what_is_there() {
    let there = BTreeSet::from([1, 2, 10]);
    let chosen = |text: &str| {
        let chosen = ModelConfig::parse(text).unwrap().version_policy.choose(&there);
        chosen.into_iter().collect::<Vec<u64>>()
    };
    assert_eq!(chosen(""), [10]);
    assert_eq!(chosen("version_policy = { latest = { num_versions = 2 } }"), [2, 10]);
    assert_eq!(chosen("version_policy = { all = {} }"), [1, 2, 10]);
    assert_eq!(chosen("[version_policy.specific]\nversions = [2, 7]"), [2, 7]);
    for bad in [
        "version_policy = { latest = { num_versions = 0 } }",
        "version_policy = { specific = { versions = [] } }",
        "version_policy = { newest = {} }",
        "version_policy = { all = { x = 1 } }",
    ] {
        assert!(ModelConfig::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn plain_names_stay_in_their_folder() {
    assert!(is_plain_name("resnet-50_v1.5"));
    for bad in ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "ä"] {
        assert!(!is_plain_name(bad), "{bad}");
    }
}
