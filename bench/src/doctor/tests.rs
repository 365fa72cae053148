use super::finding::Level;
use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// Fake system: files by path.
struct System(TempDir);

impl System {
    /// System without faults.
    fn good() -> Self {
        let system = Self(tempfile::tempdir().unwrap());
        for (path, text) in [
            ("proc/sys/kernel/io_uring_disabled", "0"),
            (
                "proc/self/limits",
                "Limit  Soft  Hard  Units\nMax open files            65536   65536   files\nMax locked memory         8388608   8388608   bytes",
            ),
            ("proc/self/cgroup", "0::/work.slice"),
            (
                "proc/self/mountinfo",
                "22 1 259:1 / / rw,relatime - ext4 /dev/nvme0n1p1 rw\n30 22 0:40 / /mnt rw,relatime - nfs4 filer:/a rw,vers=4.2,rsize=1048576,nconnect=8,proto=tcp",
            ),
            ("proc/self/status", "Name: x\nCpus_allowed_list:\t0-3"),
            ("sys/devices/system/cpu/online", "0-3"),
            ("proc/loadavg", "0.10 0.1 0.1 1/100 1"),
            ("proc/meminfo", "MemTotal:       16000000 kB"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "3500000"),
            ("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000"),
            ("sys/devices/system/node/node0/cpulist", "0-3"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
            ("sys/fs/cgroup/work.slice/cpu.max", "max 100000"),
            ("sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline"),
            ("sys/block/nvme0n1/queue/nr_requests", "64"),
            ("sys/block/nvme0n1/queue/read_ahead_kb", "128"),
            ("sys/block/nvme0n1/queue/rotational", "0"),
            ("sys/block/nvme0n1/nvme0n1p1/partition", "1"),
            ("sys/class/bdi/0:40/read_ahead_kb", "15360"),
            ("sys/class/nvme/nvme0/device/current_link_speed", "16.0 GT/s PCIe"),
            ("sys/class/nvme/nvme0/device/max_link_speed", "16.0 GT/s PCIe"),
            ("sys/class/nvme/nvme0/device/current_link_width", "4"),
            ("sys/class/nvme/nvme0/device/max_link_width", "4"),
        ] {
            system.write(path, text);
        }
        let block = system.0.path().join("sys/dev/block");
        std::fs::create_dir_all(&block).unwrap();
        symlink("../../block/nvme0n1/nvme0n1p1", block.join("259:1")).unwrap();
        std::fs::create_dir_all(system.0.path().join("sys/class/block")).unwrap();
        symlink("../../block/nvme0n1", system.0.path().join("sys/class/block/nvme0n1")).unwrap();
        system
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn with(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    /// Returns the findings for an nvme tier in a folder and for one behind the mount.
    fn scan(&self, wants_gpu: bool) -> Vec<Finding> {
        let subject = Subject {
            folders: vec!["/no such folder".into(), "/mnt/no such folder".into()],
            pinned_bytes: 4 << 20,
            direct: Some(true),
            wants_gpu,
            url: None,
        };
        check_system(&Tree::at(self.0.path()), &subject, &Ok(()), |_| None)
    }

    fn warnings(&self) -> Vec<String> {
        let warns = |finding: &Finding| finding.level == Level::Warning;
        let found = self.scan(false).into_iter().filter(warns);
        found
            .map(|finding| format!("{}: {}", finding.about, finding.found))
            .collect()
    }
}

#[test]
fn a_good_system_has_no_warnings_and_everything_was_looked_at() {
    let found = System::good().scan(false);
    let not_fine: Vec<&Finding> = found.iter().filter(|finding| finding.level != Level::Fine).collect();
    assert!(not_fine.is_empty(), "{not_fine:?}");
    for about in [
        "io_uring",
        "locked memory (RLIMIT_MEMLOCK)",
        "open files (RLIMIT_NOFILE)",
        "CPU governor",
        "transparent huge pages",
        "NUMA",
        "CPU affinity",
        "other work",
        "control group",
        "file system",
        "I/O scheduler of nvme0n1",
        "read-ahead of nvme0n1",
        "rsize",
        "nconnect",
        "attribute cache (actimeo)",
        "read-ahead of the mount",
        "PCIe link of nvme0",
    ] {
        assert!(
            found.iter().any(|finding| finding.about == about),
            "no `{about}` in {found:?}"
        );
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn each_thing_that_slows_a_run_is_told_alone_and_with_a_remedy() {
    let mountinfo = |root: &str, nfs: &str| {
        format!("22 1 259:1 / / {root}\n30 22 0:40 / /mnt rw,relatime - nfs4 filer:/a rw,{nfs}")
    };
    let (ext4, nfs) = ("rw,relatime - ext4 /dev/nvme0n1p1 rw", "rsize=1048576,nconnect=8");
    for (path, text, warning) in [
        (
            "proc/self/status",
            "Cpus_allowed_list: 0,2",
            "CPU affinity: 2 of 4 CPUs, 0,2",
        ),
        (
            "proc/self/limits",
            "Max locked memory         65536   65536   bytes",
            "locked memory (RLIMIT_MEMLOCK): 64 KiB",
        ),
        (
            "proc/self/limits",
            "Max open files            1024   4096   files",
            "open files (RLIMIT_NOFILE): 1024",
        ),
        (
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
            "powersave",
            "CPU governor: performance, powersave",
        ),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never",
            "transparent huge pages: always",
        ),
        ("sys/devices/system/node/node1/cpulist", "4-7", "NUMA: 2 nodes"),
        ("proc/loadavg", "3.50 0.1 0.1 1/100 1", "other work: 3.50"),
        (
            "sys/fs/cgroup/work.slice/cpu.max",
            "150000 100000",
            "CPU of the control group: 1.50 of 4 cores",
        ),
        (
            "sys/fs/cgroup/memory.max",
            "1073741824",
            "memory of the control group: 1 GiB of 15.3 GiB",
        ),
        (
            "sys/fs/cgroup/work.slice/io.max",
            "259:0 rbps=1000000",
            "I/O of the control group: 259:0 rbps=1000000",
        ),
        (
            "sys/block/nvme0n1/queue/scheduler",
            "none [bfq]",
            "I/O scheduler of nvme0n1: bfq",
        ),
        (
            "sys/block/nvme0n1/queue/read_ahead_kb",
            "8192",
            "read-ahead of nvme0n1: 8192 KiB",
        ),
        (
            "sys/block/nvme0n1/queue/read_ahead_kb",
            "0",
            "read-ahead of nvme0n1: 0 KiB",
        ),
        (
            "sys/block/nvme0n1/dm/uuid",
            "CRYPT-LUKS2-1",
            "encryption of nvme0n1: dm-crypt",
        ),
        (
            "sys/class/bdi/0:40/read_ahead_kb",
            "128",
            "read-ahead of the mount: 128 KiB",
        ),
        (
            "sys/class/nvme/nvme0/device/current_link_width",
            "1",
            "PCIe link of nvme0: 16 GT/s x1, maximum 16 GT/s x4",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo("rw - ext4 /dev/nvme0n1p1 rw", nfs),
            "access times: strictatime",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo("rw,relatime - ext4 /dev/nvme0n1p1 rw,discard", nfs),
            "discard: on every delete",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo("rw,relatime,sync - ext4 /dev/nvme0n1p1 rw", nfs),
            "synchronous mount: sync",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo("rw,relatime - overlay overlay rw", nfs),
            "file system: overlay",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo(ext4, "rsize=65536,nconnect=8"),
            "rsize: 64 KiB",
        ),
        ("proc/self/mountinfo", &mountinfo(ext4, "rsize=1048576"), "nconnect: 1"),
        (
            "proc/self/mountinfo",
            &mountinfo(ext4, "rsize=1048576,nconnect=8,noac"),
            "attribute cache (actimeo): off",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo(ext4, "rsize=1048576,nconnect=8,acregmin=0,acregmax=0"),
            "attribute cache (actimeo): off",
        ),
        (
            "proc/self/mountinfo",
            &mountinfo(ext4, "rsize=1048576,nconnect=8,proto=udp"),
            "transport of the mount: UDP",
        ),
    ] {
        let system = System::good().with(path, text);
        let warnings = system.warnings();
        assert_eq!(warnings.len(), 1, "{path} = {text}: {warnings:?}");
        assert!(warnings[0].starts_with(warning), "{path} = {text}: {warnings:?}");
        let finding = system
            .scan(false)
            .into_iter()
            .find(|finding| finding.level == Level::Warning)
            .unwrap();
        assert!(finding.effect.is_some() && finding.change.is_some(), "{finding:?}");
        let with_figure = [
            "CPU affinity",
            "CPU governor",
            "CPU of",
            "I/O of",
            "I/O scheduler",
            "NUMA",
            "PCIe",
            "access times",
            "discard",
            "locked memory",
            "memory of",
            "other work",
            "read-ahead of the mount",
            "rsize",
            "synchronous mount",
            "transparent",
        ];
        let has_figure = with_figure.iter().any(|about| finding.about.starts_with(about));
        assert_eq!(finding.measured.is_some(), has_figure, "{finding:?}");
    }
}

#[test]
fn a_limit_on_io_promises_no_reads_that_were_not_measured() {
    let system = System::good().with("sys/fs/cgroup/work.slice/io.max", "259:0 rbps=1000000");
    let found = system.scan(false);
    let limit = found
        .iter()
        .find(|finding| finding.about.starts_with("I/O of"))
        .unwrap();
    assert!(!limit.measured.as_ref().unwrap().contains("below"), "{limit:?}");
}

#[test]
fn settings_have_the_figures_that_they_are_judged_by() {
    let (cpu, bus) = (
        "sys/devices/system/cpu/cpu1/cpufreq",
        "sys/devices/pci0000:00/0000:00:1d.0",
    );
    let system = System::good()
        .with(&format!("{cpu}/scaling_governor"), "powersave")
        .with(&format!("{cpu}/scaling_cur_freq"), "1200000")
        .with(&format!("{cpu}/cpuinfo_max_freq"), "3500000")
        .with("sys/devices/system/node/node1/cpulist", "4-7")
        .with("sys/block/nvme0n1/queue/scheduler", "none [bfq]")
        .with(&format!("{bus}/numa_node"), "1")
        .with(&format!("{bus}/nvme/nvme0/state"), "live");
    let device = system.0.path().join("sys/block/nvme0n1/device");
    symlink(format!("../../../{bus}/nvme/nvme0"), device).unwrap();
    let found = system.scan(false);
    let measured = |about: &str| {
        let finding = found.iter().find(|finding| finding.about == about).unwrap();
        finding.measured.clone().unwrap()
    };
    assert_eq!(
        measured("CPU governor"),
        "slowest CPU at 1200 of 3500 MHz now; effect not measured"
    );
    assert_eq!(
        measured("NUMA"),
        "CPUs of this process: 0-3; node0 has CPUs 0-3, node1 has CPUs 4-7, nvme0n1 is on node1; effect not measured"
    );
    assert_eq!(
        measured("I/O scheduler of nvme0n1"),
        "nr_requests 64, read_ahead_kb 128"
    );
}

#[test]
fn a_refused_ring_is_told_with_who_refused_it() {
    for (switch, error, want) in [
        ("0", libc::EPERM, "though the kernel allows it: a seccomp filter"),
        ("1", libc::EPERM, "only for members"),
        ("2", libc::EPERM, "disabled for all"),
        ("0", libc::ENOMEM, "os error 12"),
    ] {
        let system = System::good().with("proc/sys/kernel/io_uring_disabled", switch);
        let refused = Err(io::Error::from_raw_os_error(error));
        let finding = &check_system(&Tree::at(system.0.path()), &Subject::default(), &refused, |_| None)[0];
        assert_eq!((finding.about.as_str(), finding.level), ("io_uring", Level::Warning));
        assert!(finding.found.contains(want), "{finding:?}");
    }
}

#[test]
fn the_worst_is_first() {
    let mut found = [
        Finding::fine("d", ""),
        Finding::unknown("c", ""),
        Finding::warning("b", "").times(2.0),
        Finding::warning("a", "").times(20.0),
    ];
    found.sort_by(Finding::order);
    assert_eq!(found.map(|finding| finding.about), ["a", "b", "c", "d"]);
}

#[test]
fn a_gpu_is_looked_at_where_there_is_one_or_is_wanted() {
    let of_gpu = |found: Vec<Finding>| -> Vec<String> {
        let is = |finding: &&Finding| {
            ["GPU", "NVIDIA", "nvidia-fs", "cuFile", "IOMMU"]
                .iter()
                .any(|word| finding.about.contains(word))
        };
        found
            .iter()
            .filter(is)
            .map(|finding| format!("{:?} {}: {}", finding.level, finding.about, finding.found))
            .collect()
    };
    assert!(of_gpu(System::good().scan(false)).is_empty());
    assert_eq!(
        of_gpu(System::good().scan(true)),
        ["Warning GPU: no NVIDIA device on the PCI bus"]
    );
    let gpu = "sys/bus/pci/devices/0000:01:00.0";
    let bare = System::good()
        .with(&format!("{gpu}/vendor"), "0x10de")
        .with(&format!("{gpu}/class"), "0x030200");
    let bare = bare.with("proc/cmdline", "quiet intel_iommu=on");
    let lines = of_gpu(bare.scan(false));
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[1].starts_with("Warning NVIDIA driver: not loaded") && lines[2].starts_with("Warning nvidia-fs"));
    assert_eq!(lines[4], "Warning IOMMU: intel_iommu=on");
    let complete = bare
        .with("proc/cmdline", "quiet intel_iommu=on iommu=pt")
        .with(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\nGCC",
        )
        .with("proc/driver/nvidia-fs/version", "version: 2.24")
        .with("usr/local/cuda/lib64/libcufile.so.0", "")
        .with("etc/cufile.json", "// of the package\n  \"allow_compat_mode\": false,");
    for (name, text) in [
        ("current_link_speed", "2.5 GT/s"),
        ("max_link_speed", "32.0 GT/s"),
        ("current_link_width", "16"),
        ("max_link_width", "16"),
    ] {
        complete.write(&format!("{gpu}/{name}"), text);
    }
    let lines = of_gpu(complete.scan(false));
    assert!(lines.iter().all(|line| line.starts_with("Fine")), "{lines:?}");
    assert!(lines[3].ends_with("compatibility mode refused"), "{lines:?}");
}

#[test]
fn nothing_to_see_is_said_and_nonsense_does_no_harm() {
    let empty = System(tempfile::tempdir().unwrap());
    assert_eq!(empty.warnings(), Vec::<String>::new());
    assert!(empty.scan(false).iter().any(|finding| finding.level == Level::Unknown));
    let malformed = System::good();
    for path in [
        "proc/self/limits",
        "proc/self/cgroup",
        "proc/self/mountinfo",
        "proc/loadavg",
        "proc/meminfo",
    ] {
        malformed.write(path, "\u{0}: - ::: [ ] , = 99999999999999999999999 \n - - -\n::::");
    }
    assert!(malformed.scan(true).len() > 5);
    let version_1 = System::good()
        .with("proc/self/cgroup", "5:blkio:/a\n4:memory:/a/b\n1:cpu,cpuacct:/a")
        .with("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000")
        .with("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
        .with("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576")
        .with("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "259:0 1000000");
    let warnings = version_1.warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert_eq!(warnings[2], "I/O of the control group: read_bps 259:0 1000000");
    assert!(
        warnings[0].starts_with("CPU of the control group: 2.00"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("memory of the control group: 1 MiB"),
        "{warnings:?}"
    );
}

#[test]
fn a_tiers_needs_are_those_of_what_lies_below_its_wrappers() {
    let of = |text: &str| Subject::of(&TierConfig::parse("t", text).unwrap());
    let nvme = of(
        "kind = \"nvme\"\nroot = \"/data\"\ndirect = false\nregistered_buffers_bytes = 65536\n[emulated]\nprofile = \"gp3\"",
    );
    let want = Subject {
        folders: vec!["/data".into()],
        pinned_bytes: 65_536,
        direct: Some(false),
        ..Subject::default()
    };
    assert_eq!(nvme, want);
    assert_eq!(of("kind = \"nfs\"\npath = \"/mnt\"").folders, [Path::new("/mnt")]);
    assert_eq!(of("kind = \"memory\""), Subject::default());
    let s3 = of("kind = \"s3\"\nbucket = \"b\"\nendpoint = \"http://a:9000\"");
    assert_eq!(s3.url.as_deref(), Some("http://a:9000"));
    for (kind, url) in [("redis", "redis://a:6379"), ("flight", "grpc://a:8815")] {
        let found = of(&format!("kind = \"{kind}\"\nurl = \"{url}\"")).url;
        assert_eq!(found.as_deref(), Some(url));
    }
    assert!(of("kind = \"gds\"\nroot = \"/data\"").wants_gpu);
}

#[test]
fn what_was_not_measured_says_so() {
    let findings = [
        Finding::warning("a", "b").effect("slow").change("less"),
        Finding::warning("c", "d")
            .effect("slow")
            .change("less")
            .measured("3 us"),
        Finding::fine("e", "f"),
    ];
    let text = finding::text(&Environment::default(), Some("nvme"), &findings);
    assert!(text.contains("causes of slow runs found: 2"), "{text}");
    assert!(
        text.contains("size:     not measured") && text.contains("size:     3 us"),
        "{text}"
    );
    assert!(finding::text(&Environment::default(), None, &findings[2..]).contains("causes of slow runs found: 0"));
}
