//! fio as a comparison. In: a point and its file. Out: the equivalent command, and its figures. Sources: fio's HOWTO (fio.readthedocs.io).

use crate::plan::{Access, CacheState, Operation, Pattern, Point, Way, WriteSync};
use crate::prepared_tier::runtime;
use crate::stop::Stop;
use crate::ways::sync;
use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// Name of the tool in results.
pub(crate) const FIO: &str = "fio";
/// Extra time after which a hung tool counts as failed.
const GRACE: Duration = Duration::from_secs(30);

/// Figures of fio in one repeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerFigures {
    pub(crate) iops: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// CPU time of the tool per call, in microseconds, without its start and its warm-up.
    pub(crate) cpu_us_per_call: Option<f64>,
    pub(crate) command: String,
}

/// fio on this machine, if wanted and installed.
#[derive(Default)]
pub(crate) struct Fio(pub(crate) Option<PathBuf>);

impl Fio {
    /// Searches `.runtime/`, where `scripts/setup` installs fio, and `PATH`.
    pub(crate) fn find() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = PathBuf::from(".runtime/fio/fio");
        let mut all = std::iter::once(own).chain(std::env::split_paths(&path).map(|folder| folder.join(FIO)));
        Self(all.find(|file| file.is_file()))
    }

    /// True if it is installed and has a job equivalent to a point.
    pub(crate) fn has_job(&self, point: &Point, access: &Access) -> bool {
        self.0.is_some() && arguments((point, 0), access, Path::new("")).is_some()
    }

    /// Runs the job equivalent to a repeat of a point on its one local file, once `prepare_file` has prepared it; `None`
    /// without such a job.
    ///
    /// # Errors
    /// fio fails, hangs, or prints output that cannot be parsed, or an interrupt.
    pub(crate) fn run(
        &self,
        (point, repeat): (&Point, u32),
        access: &Access,
        file: &Path,
        prepare_file: impl FnOnce() -> Result<()>,
        stop: &Stop,
    ) -> Result<Option<PeerFigures>> {
        let arguments = arguments((point, repeat), access, file);
        let Some((program, arguments)) = self.0.as_deref().zip(arguments) else {
            return Ok(None);
        };
        prepare_file()?;
        let command = format!("{FIO} {}", arguments.join(" "));
        let output = output(program, &arguments, access.warmup + access.window + GRACE, stop);
        // Pages that it leaves to the kernel would be written during later repeats.
        sync(&[file.to_owned()])?;
        let figures = output.and_then(|output| figures(&output));
        let figures = figures.with_context(|| command.clone())?;
        Ok(Some(PeerFigures { command, ..figures }))
    }
}

/// Returns the standard output of a program, if it ends in time.
fn output(program: &Path, arguments: &[String], limit: Duration, stop: &Stop) -> Result<String> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let program = program.canonicalize().context("the tool is missing")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.path());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let late = || format!("timed out after {} s", limit.as_secs());
    // Started within the runtime, which reads the process's pipes.
    let ended = runtime(1)?.block_on(async {
        tokio::select! {
            ended = timeout(limit, command.output()) => ended.with_context(late),
            () = stop.requested() => Err(anyhow!("interrupted")),
        }
    });
    let output = ended?.context("cannot start")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", output.status, stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Arguments of the job equivalent to a repeat; `None` if fio has no such job.
fn arguments((point, repeat): (&Point, u32), access: &Access, file: &Path) -> Option<Vec<String>> {
    // fio has no whole objects to write, as a tier does. Its open loop counts from the issue instead of the due time.
    // Its jobs of blocking calls each read the file from the beginning. It does not align direct reads.
    let in_order = matches!(point.pattern, Pattern::Sequential | Pattern::Strided);
    let is_same = (point.operation == Operation::Read || point.way.is_peer()) && point.rate == 0 && point.files == 1;
    let is_unaligned = point.way.is_direct() && !point.block_bytes.is_multiple_of(512);
    // Jobs of cold random reads share the data, which is read once.
    let parts = Some(point.depth).filter(|_| point.ends_with_data() && point.way.is_peer());
    let part_bytes = access.size / point.block_bytes / parts.map_or(1, u64::from) * point.block_bytes;
    if !is_same || is_unaligned || (point.way.is_peer() && in_order && point.depth > 1) || part_bytes == 0 {
        return None;
    }
    let engine = match point.way {
        Way::Direct | Way::Buffered => "io_uring",
        Way::Pread | Way::PreadDirect => "psync",
        Way::Mmap => "mmap",
        Way::Tier => return None,
    };
    let mut args = vec![
        "--name=tierlab".to_owned(),
        // A colon would begin the name of a further file.
        format!("--filename={}", file.display().to_string().replace(':', "\\:")),
        format!("--size={part_bytes}"),
        format!("--bs={}", point.block_bytes),
        format!("--ioengine={engine}"),
        format!("--direct={}", u8::from(point.way.is_direct())),
        format!("--randseed={}", access.seed_of(repeat)),
        format!("--runtime={}ms", access.window.as_millis()),
        // Our callers give the kernel no hints either.
        "--fadvise_hint=0".to_owned(),
        format!("--invalidate={}", u8::from(point.cache != CacheState::Warm)),
    ];
    args.extend(order_and_kind(point, access)?);
    args.extend(match point.sync {
        WriteSync::Each => Some("--sync=dsync".to_owned()),
        WriteSync::End => Some("--end_fsync=1".to_owned()),
        _ => None,
    });
    let warmup = access.warmup_of(point).as_millis();
    args.extend((warmup > 0).then(|| format!("--ramp_time={warmup}ms")));
    match point.ends_with_data() {
        true => args.push(format!("--io_size={}", part_bytes / access.cold_parts(point.pattern))),
        false => args.extend(["--time_based", "--norandommap"].map(str::to_owned)),
    }
    if point.pattern == Pattern::Zipf {
        // fio does not accept an exponent of exactly 1.
        let is_one = (access.exponent - 1.0).abs() < 1e-3;
        let exponent = if is_one { 1.001 } else { access.exponent };
        args.push(format!("--random_distribution=zipf:{exponent}"));
    }
    if point.way.is_peer() {
        args.push(format!("--numjobs={}", point.depth));
        args.extend(parts.map(|_| format!("--offset_increment={part_bytes}")));
        args.extend(["--thread", "--group_reporting"].map(str::to_owned));
    } else {
        args.push(format!("--iodepth={}", point.depth));
    }
    let rest = "--unified_rw_reporting=1 --lat_percentiles=1 --clat_percentiles=0 --percentile_list=50:99 \
                --output-format=json";
    args.extend(rest.split(' ').map(str::to_owned));
    Some(args)
}

/// Arguments for the order of accesses, and for reads and writes; `None` for operations on objects, and for a share of writes that is not
/// in whole percents, which fio would round.
fn order_and_kind(point: &Point, access: &Access) -> Option<Vec<String>> {
    let share = access.write_share * 100.0;
    let (act, writes) = match point.operation {
        Operation::Read => ("read", Some("--readonly".to_owned())),
        Operation::Write => ("write", None),
        Operation::Mixed if (share - share.round()).abs() < 1e-6 => ("rw", Some(format!("--rwmixwrite={share:.0}"))),
        _ => return None,
    };
    let order = match point.pattern {
        Pattern::Sequential => format!("--rw={act}"),
        Pattern::Strided => format!("--rw={act}:{}", point.block_bytes * u64::from(access.stride - 1)),
        Pattern::Random | Pattern::Zipf => format!("--rw=rand{act}"),
    };
    Some(std::iter::once(order).chain(writes).collect())
}

/// Parses fio's figures. Warnings may precede the JSON.
fn figures(output: &str) -> Result<PeerFigures> {
    let json = output.find('{').map_or("", |at| &output[at..]);
    let report: Value = serde_json::from_str(json).context("not JSON")?;
    let job = &report["jobs"][0];
    let both = &job["mixed"];
    let number = |key: &str| both[key].as_f64().with_context(|| format!("missing `{key}`"));
    // CPU shares in percent of the threads' total run time, which is in milliseconds.
    let busy_us = |key: &str| Some(job[key].as_f64()? * job["job_runtime"].as_f64()? * 10.0);
    let calls = number("total_ios")?;
    ensure!(calls > 0.0, "no call ended: raise `seconds`");
    let cpu_us = busy_us("usr_cpu").zip(busy_us("sys_cpu"));
    let percentile = |name: &str| both["lat_ns"]["percentile"][name].as_f64().map(|ns| ns / 1e3);
    Ok(PeerFigures {
        iops: number("iops")?,
        mb_per_s: number("bw_bytes")? / 1e6,
        p50_us: percentile("50.000000"),
        p99_us: percentile("99.000000"),
        cpu_us_per_call: cpu_us.map(|(user, system)| (user + system) / calls),
        command: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args_of(point: &Point) -> Option<String> {
        args_of_repeat(point, 0)
    }

    fn args_of_repeat(point: &Point, repeat: u32) -> Option<String> {
        let (window, warmup) = (Duration::from_secs(2), Duration::from_millis(250));
        let access = Access {
            write_share: 0.3,
            stride: 16,
            ..Access::reads(1 << 28, window, warmup)
        };
        arguments((point, repeat), &access, Path::new("f")).map(|args| args.join(" "))
    }

    #[test]
    fn cold_data_in_order_is_read_once() {
        let of = |pattern, cache| {
            let point = Point {
                pattern,
                cache,
                way: Way::Pread,
                ..Point::reads("disk", 4096)
            };
            args_of(&point).unwrap()
        };
        let cold = of(Pattern::Sequential, CacheState::Cold);
        assert!(
            !cold.contains("--time_based") && !cold.contains("--ramp_time"),
            "{cold}"
        );
        assert!(of(Pattern::Strided, CacheState::Cold).contains("--io_size=16777216"));
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let again = of(pattern, CacheState::Warm);
            assert!(
                again.contains("--time_based --norandommap") && again.contains("--ramp_time=250ms"),
                "{again}"
            );
        }
    }

    #[test]
    fn jobs_of_cold_random_reads_read_no_block_twice() {
        let of = |cache, depth| {
            args_of(&Point {
                cache,
                depth,
                way: Way::Pread,
                ..Point::reads("disk", 1 << 20)
            })
        };
        // 256 blocks: 85 for each of three jobs, which read a quarter.
        let cold = of(CacheState::Cold, 3).unwrap();
        for wanted in ["--size=89128960 ", "--offset_increment=89128960", "--io_size=22282240"] {
            assert!(cold.contains(wanted), "{wanted}: {cold}");
        }
        assert!(
            !cold.contains("--time_based") && !cold.contains("--norandommap"),
            "{cold}"
        );
        assert!(of(CacheState::Cold, 256).unwrap().contains("--size=1048576 "));
        assert_eq!(of(CacheState::Cold, 257), None);
        let warm = of(CacheState::Warm, 3).unwrap();
        assert!(
            warm.contains("--size=268435456 ") && !warm.contains("--offset_increment"),
            "{warm}"
        );
    }

    #[test]
    fn a_colon_of_the_folder_does_not_begin_a_second_file() {
        let point = Point {
            way: Way::Pread,
            ..Point::reads("disk", 4096)
        };
        let access = Access::reads(4096, Duration::from_secs(1), Duration::ZERO);
        let args = arguments((&point, 0), &access, Path::new("/a:b/c")).unwrap();
        assert_eq!(args[1], "--filename=/a\\:b/c");
    }

    #[test]
    fn each_repeat_reads_other_blocks() {
        let point = Point {
            way: Way::Pread,
            ..Point::reads("disk", 4096)
        };
        let [first, second] = [0, 1].map(|repeat| args_of_repeat(&point, repeat).unwrap());
        assert_ne!(first, second);
    }

    #[test]
    fn an_interrupt_ends_a_tool_that_runs() {
        let (stop, started) = (Stop::default(), std::time::Instant::now());
        let later = stop.clone();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            later.request();
        });
        let limit = Duration::from_secs(120);
        let error = output(Path::new("/bin/sleep"), &["60".to_owned()], limit, &stop).unwrap_err();
        interrupt.join().unwrap();
        assert_eq!(error.to_string(), "interrupted");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn cpu_of_all_threads_is_shared_by_the_calls() {
        // Two threads ran for 500 ms each, a fifth of it on a core.
        let of_calls = |total: u32| {
            let mixed = serde_json::json!({"iops": 200.0, "bw_bytes": 819_200, "total_ios": total, "lat_ns": {"percentile": {}}});
            let job = serde_json::json!({"usr_cpu": 5.0, "sys_cpu": 15.0, "job_runtime": 1000, "mixed": mixed});
            let output = format!("fio: a warning\n{}", serde_json::json!({ "jobs": [job] }));
            figures(&output).map(|figures| figures.cpu_us_per_call)
        };
        assert_eq!(of_calls(100).unwrap(), Some(2000.0));
        // Without calls there is no ratio to ours.
        assert!(of_calls(0).unwrap_err().to_string().contains("no call ended"));
    }

    #[test]
    fn writes_in_place_have_a_job_of_the_same_durability() {
        let of = |operation, way, sync| {
            args_of(&Point {
                operation,
                way,
                sync,
                ..Point::reads("disk", 4096)
            })
        };
        let each = of(Operation::Write, Way::PreadDirect, WriteSync::Each).unwrap();
        assert!(
            each.contains("--rw=randwrite") && each.contains("--sync=dsync"),
            "{each}"
        );
        let end = of(Operation::Mixed, Way::Pread, WriteSync::End).unwrap();
        let mixed = end.contains("--rw=randrw --rwmixwrite=30 --end_fsync=1");
        assert!(
            mixed && !end.contains("--ramp_time") && !end.contains("--readonly"),
            "{end}"
        );
        assert_eq!(of(Operation::Write, Way::Direct, WriteSync::None), None);
        assert!(
            of(Operation::Read, Way::Direct, WriteSync::None)
                .unwrap()
                .contains("--readonly")
        );
    }

    #[test]
    fn a_job_that_fio_would_round_or_refuse_is_not_run() {
        let job = |way, block_bytes, write_share| {
            let access = Access {
                write_share,
                ..Access::reads(1 << 20, Duration::from_secs(1), Duration::ZERO)
            };
            let point = Point {
                operation: Operation::Mixed,
                way,
                ..Point::reads("disk", block_bytes)
            };
            arguments((&point, 0), &access, Path::new("f")).is_some()
        };
        assert!(job(Way::Pread, 4097, 0.29) && job(Way::PreadDirect, 4096, 1.0));
        assert!(!job(Way::Pread, 4096, 0.125) && !job(Way::PreadDirect, 4097, 0.5));
    }

    #[test]
    fn its_json_is_read_and_anything_else_is_an_error() {
        let text = "note: x\n{\"jobs\": [{\"mixed\": {\"total_ios\": 1000, \"iops\": 1000.5, \"bw_bytes\": 4098048, \"lat_ns\": {\"percentile\": {\"50.000000\": 57000, \"99.000000\": 99000}}}}]}";
        let figures = figures(text).unwrap();
        assert_eq!((figures.iops, figures.mb_per_s), (1000.5, 4.098_048));
        assert_eq!((figures.p50_us, figures.p99_us), (Some(57.0), Some(99.0)));
        for bad in ["", "{", "{}", "fio: io_uring is not there"] {
            assert!(super::figures(bad).is_err(), "{bad}");
        }
    }
}
