//! The GPU path as far as it goes without one: starts that cannot be, and the truth gate, with a stand-in for NVIDIA's
//! libraries in which host memory plays the device. Nothing here says anything of hardware.

use crate::harness::{Data, Server, entity_ids, on_tier, refused};
use crate::standin::StandIn;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tierlab_models::generators::ModelKind;
use tierlab_protocol::via::{Via, ViaSet};

const PLAN: &str = "name = \"gate\"\nmodel = \"ctr\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 1.0\n\
    drain_s = 2.0\nmax_in_flight = 16\n[limits]\nforeign_cpu_share = 1\nsteal_share = 1\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
    [[load]]\nmode = \"realtime\"\nrates = [40]\n";

/// A server that reads its rows by GPUDirect Storage, as the stand-in pretends.
fn server(data: &Data, standin: &StandIn, path: &str, way: &str) -> Server {
    let library_path = standin.folder().display().to_string();
    let environment = [("LD_LIBRARY_PATH", library_path.as_str()), ("STANDIN_WAY", way)];
    let path = format!("tiers.gds.path={path}");
    let set = [path.as_str(), "cache.capacity_bytes=0", "telemetry.gpu_interval_ms=100"];
    Server::start_with(&on_tier(data, "gds"), &set, &environment)
}

/// The one point of a sweep by the real load generator.
fn sweep(server: &Server, folder: &Path) -> Value {
    let program = Path::new(env!("CARGO_BIN_EXE_tierlab-server")).with_file_name("tierlab-loadgen");
    assert!(
        program.is_file(),
        "no {}: build the binaries first (cargo build --workspace --bins, as `make unit` does)",
        program.display()
    );
    std::fs::write(folder.join("plan.toml"), PLAN).unwrap();
    let output = Command::new(program)
        .arg("sweep")
        .arg(folder.join("plan.toml"))
        .args(["--url", &server.url(""), "--name", "gate", "--out"])
        .arg(folder)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let run = std::fs::read(folder.join("gate/run.json")).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    let run: Value = serde_json::from_slice(&run).unwrap();
    run["points"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_asked_for_gds_and_got_posix_is_invalid() {
    let data = Data::generate(&[ModelKind::Ctr], 200);
    let standin = StandIn::build();
    for (path, way, via, refused) in [
        ("gds", "2", Via::CufilePosix, true),
        ("gds", "0", Via::Gds, false),
        ("compat", "0", Via::CufilePosix, false),
        ("bounce", "0", Via::Bounce, false),
    ] {
        let server = server(&data, &standin, path, way);
        let reply = server.infer("ctr", entity_ids(&[3, 150])).await;
        assert_eq!(reply.timings().via, ViaSet::of(via));
        let folder = tempfile::tempdir().unwrap();
        let point = sweep(&server, folder.path());
        let seen = &point["repeats"][0]["server"];
        assert_eq!(seen["device_reads"]["path"], path, "{seen}");
        let reads = |way: &str| seen["device_reads"][way].as_f64().unwrap();
        match via {
            Via::Gds => assert!(reads("peer_to_peer") > 30.0 && reads("posix") == 0.0, "{seen}"),
            Via::CufilePosix => assert!(reads("posix") > 30.0 && reads("peer_to_peer") == 0.0, "{seen}"),
            _ => assert_eq!(reads("posix") + reads("peer_to_peer"), 0.0, "{seen}"),
        }
        let verdict = point["summary"]["verdict"].to_string();
        let named = verdict.contains("GPUDirect Storage was requested") && verdict.contains("missing:");
        assert_eq!(named, refused, "{path}, way {way}: {verdict}");
        if refused {
            assert_eq!(point["summary"]["verdict"]["verdict"], "invalid");
            assert!(
                verdict.contains("/dev/nvidia-fs0") || Path::new("/dev/nvidia-fs0").exists(),
                "{verdict}"
            );
        }
        // Figures of NVML's stand-in come through as well: 40 % of 250 W.
        let gpu = &seen["gpus"][0];
        assert!(gpu["name"].as_str().unwrap().contains("stand-in") && gpu["energy_j"].as_f64().unwrap() > 0.0);
        assert!(point["summary"]["joules_per_inference"].as_f64().unwrap() > 0.0);
        let time = &point["summary"]["gpu_time"];
        let share = |cause: &str| time[cause].as_f64().unwrap();
        let sum = ["busy", "copy_and_host", "queue_wait", "storage_wait", "no_requests"]
            .map(share)
            .iter()
            .sum::<f64>();
        assert!((sum - 1.0).abs() < 1e-6 && share("busy") > 0.0, "{time}");
    }
}

/// Without a GPU, a start that wants one is refused with one message. On a machine that has one it may start.
#[test]
fn a_gpu_that_is_not_there_is_one_message_with_everything_that_was_looked_for() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    if Path::new("/dev/nvidiactl").exists() {
        eprintln!("a GPU is here: starts that want one are not refused");
        return;
    }
    let gds = on_tier(&data, "gds");
    let mut cuda = on_tier(&data, "memory");
    cuda.extend(["--set".to_owned(), "runtime.provider=cuda".to_owned()]);
    let mut tensorrt = on_tier(&data, "memory");
    tensorrt.extend(["--set".to_owned(), "runtime.provider=tensorrt".to_owned()]);
    let nodes = ["/dev/nvidiactl", "/dev/nvidia0", "LD_LIBRARY_PATH", "libcuda.so.1"];
    let library = [
        "libonnxruntime",
        "libonnxruntime_providers_cuda.so",
        "libcudart.so",
        "libcudnn.so.9",
        "CUDA in it: no",
        "onnxruntime-gpu",
    ];
    for (arguments, named) in [
        (gds, &["tier `gds`", "libcufile.so.0", "--tier nvme"][..]),
        (cuda, &library),
        (tensorrt, &["libnvinfer.so.10", "provider = \"tensorrt\""]),
    ] {
        let output = refused(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        for named in named.iter().chain(&nodes) {
            assert!(message.contains(named), "no {named} in {message}");
        }
        assert_eq!(message.matches("tierlab-server: ").count(), 1, "one message: {message}");
    }
}

/// Rows that are read to a device need a tier that does so, and sessions on that device: nothing is served otherwise.
#[test]
fn rows_on_a_device_are_refused_where_no_session_can_be_bound_to_them() {
    let data = Data::generate(&[ModelKind::Ctr], 100);
    let standin = StandIn::build();
    let libraries = format!("tiers.gds.libraries=[\"{}\"]", standin.folder().display());
    let arguments = |tier: &str, set: &[&str]| {
        let mut arguments = on_tier(&data, tier);
        for set in [&["features.rows=device", "cache.capacity_bytes=0"], set].concat() {
            arguments.extend(["--set".to_owned(), set.to_owned()]);
        }
        arguments
    };
    let refused = |arguments: &[String]| {
        let output = refused(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), message)
    };
    let (code, message) = refused(&arguments("nvme", &[]));
    assert_eq!(code, Some(2), "{message}");
    assert!(
        message.contains("`features.rows`") && message.contains("kind `gds`"),
        "{message}"
    );
    let (code, message) = refused(&arguments(
        "gds",
        &[libraries.as_str(), "models=[\"ctr\"]", "runtime.provider=cpu"],
    ));
    assert_eq!(code, Some(1), "{message}");
    for named in ["`features.rows = \"device\"`", "CUDA device 0", "they run on `cpu`"] {
        assert!(message.contains(named), "no {named} in {message}");
    }
}
