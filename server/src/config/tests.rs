//! Precedence of configuration sources, and refused values.

use super::*;
use crate::models::management::ControlMode;
use std::path::Path;

/// A folder with a config and two tiers.
fn folder(server: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tiers")).unwrap();
    std::fs::write(folder.path().join("server.toml"), server).unwrap();
    std::fs::write(folder.path().join("tiers/memory.toml"), "kind = \"memory\"").unwrap();
    std::fs::write(
        folder.path().join("tiers/nvme.toml"),
        "kind = \"nvme\"\nroot = \"data\"",
    )
    .unwrap();
    folder
}

fn sources(folder: &tempfile::TempDir) -> Sources {
    Sources {
        config: folder.path().join("server.toml"),
        tier: Some("nvme".into()),
        ..Sources::default()
    }
}

#[test]
fn files_environment_and_flags_overlay_each_other() {
    let folder = folder("models = [\"a\"]\n[cache]\ncapacity_bytes = 1\nblock_bytes = 512");
    let config = Config::read(&Sources {
        model_tier: Some("memory".into()),
        listen: Some("127.0.0.1:0".into()),
        set: vec![
            "tiers.nvme.root=/elsewhere".into(),
            "models=[\"ctr\", \"mlp\"]".into(),
            "cache.capacity_bytes=3".into(),
        ],
        environment: vec![
            ("TIERLAB_CACHE__CAPACITY_BYTES".into(), "2".into()),
            ("TIERLAB_ADMISSION__TIMEOUT_MS".into(), "77".into()),
            ("ORT_DYLIB_PATH".into(), "/lib/x.so".into()),
            ("OTHER".into(), "unrelated".into()),
        ],
        ..sources(&folder)
    })
    .unwrap();
    assert_eq!(config.management.models, ["ctr", "mlp"]);
    assert_eq!(
        (config.management.control, config.management.admin),
        (ControlMode::None, false)
    );
    assert_eq!(
        config.cache,
        CacheConfig {
            capacity_bytes: 3,
            block_bytes: 512,
            ..CacheConfig::default()
        }
    );
    assert_eq!(config.raw.admission.timeout, Duration::from_millis(77));
    assert_eq!(config.model_tier.kind(), "memory");
    assert!(
        matches!(&config.feature_tier, TierConfig::Nvme(nvme) if nvme.root.as_deref() == Some(Path::new("/elsewhere")))
    );
    assert_eq!(config.library.as_deref(), Some(Path::new("/lib/x.so")));
}

#[test]
fn a_file_of_a_tier_is_refused_by_its_own_name_and_hidden_ones_are_not_read() {
    let folder = folder("");
    let tiers = folder.path().join("tiers");
    // Emacs marks a file that it edits by such a link.
    std::os::unix::fs::symlink("user@host.4711", tiers.join(".#nvme.toml")).unwrap();
    Config::read(&sources(&folder)).unwrap();
    let missing = Sources {
        config: folder.path().join("none.toml"),
        ..sources(&folder)
    };
    std::fs::create_dir(tiers.join("odd.toml")).unwrap();
    for (sources, named, has_advice) in [(missing, "none.toml", true), (sources(&folder), "odd.toml", false)] {
        let refused = Config::read(&sources).unwrap_err().to_string();
        assert!(refused.contains(&format!("{named}: cannot read")), "{refused}");
        assert_eq!(refused.contains("--config"), has_advice, "{refused}");
    }
}

#[test]
fn a_tiers_own_cache_wins_in_the_files_and_a_setting_wins_over_both() {
    let folder = folder("[cache]\ncapacity_bytes = 1\nblock_bytes = 512\npolicy = \"lru\"");
    let tier = "kind = \"nvme\"\nroot = \"data\"\n[cache]\ncapacity_bytes = 7\nblock_bytes = 1024";
    std::fs::write(folder.path().join("tiers/nvme.toml"), tier).unwrap();
    let cache = |tier: &str, environment: &[(&str, &str)], set: &[&str]| {
        let sources = Sources {
            feature_tier: Some(tier.into()),
            set: set.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..sources(&folder)
        };
        let CacheConfig {
            capacity_bytes,
            block_bytes,
            policy,
            ..
        } = Config::read(&sources).unwrap().cache;
        assert_eq!(policy, tierlab_storage::wrappers::cache::Policy::Lru);
        (capacity_bytes, block_bytes)
    };
    assert_eq!(cache("memory", &[], &[]), (1, 512));
    assert_eq!(cache("nvme", &[], &[]), (7, 1024));
    assert_eq!(cache("nvme", &[("TIERLAB_CACHE__CAPACITY_BYTES", "0")], &[]), (0, 1024));
    let own = ("TIERLAB_TIERS__NVME__CACHE__CAPACITY_BYTES", "9");
    assert_eq!(cache("nvme", &[own], &[]), (9, 1024));
    assert_eq!(cache("memory", &[own], &[]), (1, 512));
    assert_eq!(cache("nvme", &[own], &["cache.capacity_bytes=0"]), (0, 1024));
    let both = ["cache.capacity_bytes=3", "tiers.nvme.cache.capacity_bytes=4"];
    assert_eq!(cache("nvme", &[own], &both), (4, 1024));
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn errors_name_file_and_key() {
    let message = |server: &str, change: &dyn Fn(&mut Sources)| {
        let folder = folder(server);
        let mut sources = sources(&folder);
        change(&mut sources);
        Config::read(&sources).unwrap_err().to_string()
    };
    let nothing = &|_: &mut Sources| {};
    for (message, named) in [
        (message("liste = 1", nothing), vec!["server.toml", "liste"]),
        (
            message("[cache]\ncapacity = 1", nothing),
            vec!["server.toml", "capacity"],
        ),
        (message("[cache", nothing), vec!["server.toml", "line 1"]),
        (
            message("[admission]\nmax_in_flight = 0", nothing),
            vec!["server.toml", "admission.max_in_flight"],
        ),
        (
            message("[runtime]\nworker_threads = 1000000000", nothing),
            vec!["runtime.worker_threads", "1000000000", "1024"],
        ),
        (
            message("[connections]\nmax = 1000000000", nothing),
            vec!["connections.max", "1000000000", "1048576"],
        ),
        (
            message("[access]\nallowed_hosts = [\"http://a\"]", nothing),
            vec!["access.allowed_hosts", "http://a"],
        ),
        (
            message("[runtime]\nwarmup_timeout_ms = 0", nothing),
            vec!["server.toml", "runtime.warmup_timeout_ms"],
        ),
        (
            message("[repository]\ncontrol = \"poll\"\npoll_interval_ms = 1", nothing),
            vec!["server.toml", "repository.poll_interval_ms"],
        ),
        (
            message("[repository]\ncontrol = \"sometimes\"", nothing),
            vec!["server.toml", "sometimes", "explicit"],
        ),
        (message("models = [\"../x\"]", nothing), vec!["server.toml", "../x"]),
        (message("listen = \"nowhere\"", nothing), vec!["listen", "nowhere"]),
        (
            message("", &|s| s.tier = Some("tape".into())),
            vec!["tape", "memory, nvme"],
        ),
        (message("", &|s| s.tier = None), vec!["--tier", "memory, nvme"]),
        (
            message("[tiers.rows]\nkind = \"flight\"\nurl = \"grpc://h:1\"", &|s| {
                s.tier = Some("rows".into());
            }),
            vec!["model tier `rows`", "--model-tier"],
        ),
        (
            message("", &|s| s.set = vec!["tiers.nvme.depth=1".into()]),
            vec!["nvme.toml", "depth"],
        ),
        (
            message("", &|s| s.set = vec!["cache".into()]),
            vec!["--set cache", "key=value"],
        ),
        (message("", &|s| s.set = vec!["cache..x=1".into()]), vec!["cache..x"]),
        (
            message("", &|s| s.set = vec!["listen.x=1".into()]),
            vec!["server.toml", "listen"],
        ),
        (
            message("", &|s| s.environment = vec![("TIERLAB_TYPO".into(), "1".into())]),
            vec!["typo"],
        ),
        (
            message("", &|s| s.config = "/nowhere/server.toml".into()),
            vec!["/nowhere/server.toml"],
        ),
    ] {
        for part in named {
            assert!(message.contains(part), "{message}\n  should name {part}");
        }
    }
}

#[test]
fn variables_of_kubernetes_services_and_of_other_programs_set_no_keys() {
    let folder = folder("");
    let read = |name: &str, value: &str| {
        Config::read(&Sources {
            environment: vec![(name.into(), value.into())],
            ..sources(&folder)
        })
    };
    for service in ["SERVER_S3", "SERVER", "PORT_9"] {
        for (variable, value) in [
            ("SERVICE_HOST", "10.96.0.7"),
            ("SERVICE_PORT", "8000"),
            ("SERVICE_PORT_HTTP", "8000"),
            ("PORT", "tcp://10.96.0.7:8000"),
            ("PORT", "udp://10.96.0.7:8000"),
            ("PORT_8000_TCP", "tcp://10.96.0.7:8000"),
            ("PORT_8000_TCP_PROTO", "tcp"),
            ("PORT_8000_TCP_PORT", "8000"),
            ("PORT_8000_UDP_ADDR", "10.96.0.7"),
        ] {
            let name = format!("TIERLAB_{service}_{variable}");
            read(&name, value).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
    for (name, value) in [
        ("TIERLAB_CERTIFICATE", "certificate.json"),
        ("TIERLAB_FLAGS", "--tier nvme"),
        ("TIERLAB_LOG", "debug"),
        ("TIERLAB_PORT", "8080"),
    ] {
        read(name, value).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for (name, value) in [("TIERLAB_HTTP_PORT", "8000"), ("TIERLAB_PORT_TCP", "1")] {
        assert!(read(name, value).is_err(), "{name}");
    }
    read("TIERLAB_CERTIFICATE", "/home/a/certificate.json").expect("a variable of tierlab-loadgen");
}

#[test]
fn the_shipped_configuration_is_valid() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/server.toml");
    for tier in ["memory", "nvme", "nfs", "s3", "redis", "flight", "gds"] {
        let sources = Sources {
            config: config.clone(),
            model_tier: (tier == "flight").then(|| "nvme".into()),
            tier: Some(tier.into()),
            ..Sources::default()
        };
        assert_eq!(Config::read(&sources).unwrap().feature_tier.kind(), tier);
    }
}

#[test]
fn mapped_weights_go_where_the_environment_or_the_key_says() {
    let folder = folder("");
    let read = |tmpdir: Option<&str>, set: &[&str]| {
        let sources = Sources {
            set: set.iter().map(|&set| set.into()).collect(),
            environment: tmpdir
                .map(|value| ("TMPDIR".into(), value.into()))
                .into_iter()
                .collect(),
            ..sources(&folder)
        };
        Config::read(&sources).map(|config| config.raw.runtime.weights)
    };
    assert_eq!(read(None, &[]).unwrap().folder, Path::new("/var/tmp"));
    assert_eq!(read(Some("/disk"), &[]).unwrap().folder, Path::new("/disk"));
    let chosen = read(
        Some("/disk"),
        &["runtime.weights.folder=/other", "runtime.weights.map_from_bytes=0"],
    )
    .unwrap();
    assert_eq!((chosen.folder.as_path(), chosen.from_bytes), (Path::new("/other"), 0));
    let error = read(None, &["runtime.weights.map_from_bytes=2147483649"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("runtime.weights.map_from_bytes") && error.contains("2147483648"),
        "{error}"
    );
}

#[test]
fn tokens_come_from_files_and_the_environment_and_are_never_shown() {
    let folder = folder("");
    let file = folder.path().join("token");
    std::fs::write(&file, "from-a-file\n").unwrap();
    let read = |set: &[String], environment: &[(&str, &str)]| {
        let pairs = environment
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let sources = Sources {
            set: set.to_vec(),
            environment: pairs.collect(),
            ..sources(&folder)
        };
        Config::read(&sources).map_err(|e| e.to_string())
    };
    let token_file = format!("access.token_file={}", file.display());
    let admin = [("TIERLAB_ACCESS__ADMIN_TOKEN", "from-the-environment")];
    let config = read(std::slice::from_ref(&token_file), &admin).unwrap();
    assert!(config.connections.access.token.is_some() && config.connections.access.admin.is_some());
    let shown = format!("{config:?}");
    assert!(!shown.contains("from-a") && !shown.contains("from-the"), "{shown}");
    for (set, environment, named) in [
        (
            &token_file[..],
            &[("TIERLAB_ACCESS__TOKEN", "from-the-environment")][..],
            "access.token_file",
        ),
        ("access.token_file=/no/such/file", &[], "/no/such/file"),
        ("access.token=from-the-command-line", &[], "token"),
        ("tls.key=/no/such/file", &[], "tls.certificate"),
        ("tls.client_ca=/no/such/file", &[], "tls.client_ca"),
        (
            "listen=127.0.0.1:1",
            &[("TIERLAB_ACCESS__TOKEN", "from-the environment")],
            "TIERLAB_ACCESS__TOKEN",
        ),
    ] {
        let message = read(&[set.to_owned()], environment).unwrap_err();
        assert!(
            message.contains(named) && !message.contains("from-the"),
            "{message} should name {named}"
        );
    }
    let tls = ["tls.key", "tls.certificate"].map(|key| format!("{key}={}", file.display()));
    let message = read(&tls, &[]).unwrap_err();
    assert!(message.contains("token") && message.contains("tls"), "{message}");
}

#[test]
fn rows_on_the_device_leave_nothing_to_cache_and_may_be_proven_less_often() {
    let folder = folder("");
    let read = |set: &[&str]| {
        let config = Config::read(&Sources {
            set: set.iter().map(|&set| set.into()).collect(),
            ..sources(&folder)
        });
        config.map(|config| config.destination).map_err(|e| e.to_string())
    };
    let (device, uncached) = ("features.rows=device", "cache.capacity_bytes=0");
    assert_eq!(read(&[]), Ok(RowDestination::Host));
    assert_eq!(read(&[device, uncached]), Ok(RowDestination::Device { prove_every: 1 }));
    let never = read(&[device, uncached, "features.prove_every=0"]);
    assert_eq!(never, Ok(RowDestination::Device { prove_every: 0 }));
    assert!(read(&[device]).unwrap_err().contains("cache.capacity_bytes = 0"));
    let on_host = read(&["features.prove_every=10"]).unwrap_err();
    assert!(on_host.contains("features.rows"), "{on_host}");
    assert!(read(&["features.rows=gpu"]).is_err());
}
