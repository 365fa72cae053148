//! Command line. In: arguments. Out: a command with its options.

use crate::tables::{caching, layouts, offline};
use crate::{calibrate, doctor, runner, single};
use clap::{Parser, Subcommand};

const AFTER_HELP: &str = "\
Reads go through the same code as the server's. Without a command the flags describe one closed-loop \
point: `--depth` callers, each waiting for its own read. Latencies are service times at that depth, not latencies at an \
offered rate.

Examples:
  tierlab-storage-bench run configs/storage/local.toml --scratch /data
  tierlab-storage-bench --tier configs/tiers/nvme.toml --set root=/data --depth 32
  tierlab-storage-bench --tier configs/tiers/nvme.toml --set root=/data --threads 1 --idle 10
  tierlab-storage-bench --tier configs/tiers/s3.toml --set endpoint=http://127.0.0.1:9000 --block 8MiB --depth 4
  tierlab-storage-bench --tier configs/tiers/nfs.toml --object features/ctr.rows --block 512 --ranges 256 --json
  tierlab-storage-bench --tier configs/tiers/gds.toml --set path=bounce --into device --block 16MiB
  tierlab-storage-bench --tier configs/tiers/memory.toml --size 320MiB --pattern zipf --cache 16MiB --set cache.policy=lru

Exit codes: 0 success, 2 bad usage or config, 1 any other error, an invalid run or an interrupt.";

const AFTER_RUN: &str = "\
Every point is measured in several short repeats, in a new random order each round, and shown with 95 % intervals. Data \
comes from a seeded generator, is checked while it is read, and is removed at the end. Ctrl-C keeps the finished \
repeats; `--resume` continues after them.

Examples:
  tierlab-storage-bench run configs/storage/local.toml --scratch /data
  tierlab-storage-bench run configs/storage/objects.toml --scratch /data
  tierlab-storage-bench run configs/storage/emulated.toml --repeats 5 --out results/emulated
  tierlab-storage-bench run configs/storage/local.toml --resume results/local-20261123-101500
  tierlab-storage-bench run bucket.toml --agents host-a:7070,host-b:7070 --agents-token-env AGENTS_TOKEN --no-peers

Exit codes: 0 success, 2 bad usage or plan, 5 an agent was lost, 1 any other error, a failed point or an interrupt.";

const AFTER_AGENT: &str = "\
Examples:
  tierlab-storage-bench agent --listen 0.0.0.0:7070 --token-env AGENTS_TOKEN --tiers tiers
  tierlab-storage-bench agent --listen 0.0.0.0:7070 --cert agent.pem --key agent.key --client-ca ca.pem --tiers tiers

Exit codes: 0 interrupted, 2 bad usage, 1 any other error.";

const AFTER_LAYOUTS: &str = "\
The table is generated from a seed, with 13 floats and 26 integers per row. Each layout holds the same rows. Every row \
that is read is checked, and everything written is removed at the end. Each round goes through tiers and layouts in a \
new random order.

Examples:
  tierlab-storage-bench layouts configs/storage/layouts.toml --scratch /data
  tierlab-storage-bench layouts configs/storage/layouts.toml --rows 5000 --repeats 3 --out results/layouts

Exit codes: 0 success, 2 bad usage or plan, 1 any other error or an interrupt.";

const AFTER_CACHING: &str = "\
The table is generated from a seed and stored on each tier as one object. Each repeat starts with empty caches, uses the \
server's code, and checks every row; everything written is removed at the end. Each round goes through tiers, laws and \
strategies in a new random order. Hit ratios of LRU and of the best possible policy are computed from the same traces.

Examples:
  tierlab-storage-bench caching configs/storage/caching.toml --scratch /data
  tierlab-storage-bench caching configs/storage/caching.toml --lookups 2000 --repeats 3 --out results/caching

Exit codes: 0 success, 2 bad usage or plan, 1 any other error or an interrupt.";

const AFTER_OFFLINE: &str = "\
Tables and models are generated from a seed, or given. Each round measures four cases per tier, layout and workload, in \
a new random order: the loader alone, the model alone, both together, and both with one read at a time and no overlap. \
Everything written is removed at the end. ONNX Runtime is found as by the server; ORT_DYLIB_PATH overrides it.

Examples:
  tierlab-storage-bench offline configs/storage/offline.toml --scratch /data
  tierlab-storage-bench offline configs/storage/offline.toml --seconds 2 --repeats 3 --out results/offline

Exit codes: 0 success, 2 bad usage or plan, 1 any other error or an interrupt.";

const AFTER_CALIBRATE: &str = "\
A closed loop reads each size at each depth, in interleaved rounds: as many callers as the depth, each waiting for its \
own read. The data comes from a seeded generator and is removed at the end. With default flags it takes about five \
minutes.

Examples:
  tierlab-storage-bench calibrate --tier configs/tiers/s3.toml --place 'eu-central-1, c7gn.xlarge' --out bucket.toml
  tierlab-storage-bench calibrate --tier configs/tiers/nfs.toml --place 'office filer, 10 GbE' --blocks 4KiB,64KiB,1MiB,8MiB --out filer.toml
  tierlab-storage-bench calibrate --tier configs/tiers/s3.toml --place 'eu-central-1' --rounds 24 --every 1h --out day.toml
  tierlab-storage-bench --tier configs/tiers/memory.toml --set root= --set emulated.profile=bucket.toml --depth 8

Exit codes: 0 success, 2 bad usage or config, 1 any other error or an interrupt.";

const AFTER_DOCTOR: &str = "\
The system is not changed. If the tier is a local folder or a mount, a file of 128 MiB is written to it, read for half a \
second in each of five ways, and removed; on a remote tier 8 MiB are written, read and removed. --no-measure skips both.

Examples:
  tierlab-storage-bench doctor
  tierlab-storage-bench doctor --tier configs/tiers/nvme.toml --set root=/data
  tierlab-storage-bench doctor --tier configs/tiers/nfs.toml --no-measure --json

Exit codes: 0 success, with or without findings, 2 bad usage or config, 1 any other error.";

/// Measure the read performance of a storage tier: one point by flags, or a plan of many
#[derive(Debug, Parser)]
#[command(
    name = "tierlab-storage-bench",
    version = tierlab_program::version(None),
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) single: Option<single::SingleOptions>,
}

/// Commands other than the measurement of one point.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a plan: patterns, blocks, depths and ways of reading crossed, with a report
    #[command(after_help = AFTER_RUN)]
    Run(runner::RunOptions),
    /// Measure points for runs on other hosts (`run --agents`), one run at a time
    ///
    /// A run sends its plan and names tiers by their file names. The agent reads these files, with paths and
    /// credentials, from its own folder.
    #[command(after_help = AFTER_AGENT)]
    Agent(runner::agents::AgentFlags),
    /// Compare table layouts: one table as files, shards, Parquet and rows, looked up and scanned on each tier
    #[command(after_help = AFTER_LAYOUTS)]
    Layouts(layouts::LayoutsOptions),
    /// Compare caches for look-ups: none, in memory, staged on disk and both, on each tier, with the best possible
    /// policy
    #[command(after_help = AFTER_CACHING)]
    Caching(caching::CachingOptions),
    /// Stream whole tables through a model: the loader alone, the model alone, and both together, with the
    /// bottleneck
    #[command(after_help = AFTER_OFFLINE)]
    Offline(offline::OfflineOptions),
    /// Record a tier as a profile that `emulated.profile` replays anywhere
    #[command(after_help = AFTER_CALIBRATE)]
    Calibrate(calibrate::CalibrateOptions),
    /// Check this machine and a tier for causes of slow runs, with advice
    #[command(after_help = AFTER_DOCTOR)]
    Doctor(doctor::DoctorOptions),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_make_sense() {
        Cli::command().debug_assert();
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("b").is_err() && parse("b --depth 3").is_err());
        assert!(parse("b --tier x --depth 3").unwrap().single.is_some());
        assert!(matches!(
            parse("b run plan.toml").unwrap().command,
            Some(Command::Run(_))
        ));
        assert!(parse("b --tier x run plan.toml").is_err());
        let caching = parse("b caching plan.toml --lookups 9").unwrap().command;
        assert!(matches!(caching, Some(Command::Caching(_))));
        let calibrate = parse("b calibrate --tier x --out p.toml --place here --depths 1,2").unwrap();
        assert!(matches!(calibrate.command, Some(Command::Calibrate(_))));
        assert!(parse("b calibrate --tier x --out p.toml").is_err() && parse("b doctor --set a=1").is_err());
    }
}
