//! CPU time and storage traffic of the lab's own processes, of kernel threads, and of all others.
//!
//! In: `/proc`, and the roots of the lab's own processes. Out: sums of CPU time in ticks, and of bytes. A process once known as the
//! lab's own stays so, even if its parent ends. Kernel threads are neither own nor foreign: they mostly work for the lab's own
//! reads and sends.

use procfs::process::{FDTarget, Process, StatFlags};
use procfs::{Current, Meminfo, ProcError};
use std::collections::{HashMap, HashSet};

/// Known processes of this machine.
#[derive(Debug, Default)]
pub(super) struct Processes {
    roots: Vec<i32>,
    own: HashMap<i32, OwnProcess>,
    /// Ticks of kernel threads at the last scan.
    kernel: HashMap<i32, u64>,
    others: HashSet<i32>,
    scanned: bool,
    /// CPU of the lab's own processes since the first scan, without the use of ended processes after the last count.
    pub(super) own_ticks: u64,
    /// CPU of kernel threads from the first scan to the last.
    pub(super) kernel_ticks: u64,
    bytes: Traffic,
    /// Memory of the lab's own processes at the last scan, in bytes.
    pub(super) own_resident_bytes: u64,
    is_hidden: bool,
}

/// Bytes read from and written to storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Traffic {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// One of the lab's own processes. Its handle stays valid for this process, even if its number is reused.
#[derive(Debug)]
struct OwnProcess {
    process: Process,
    ticks: u64,
    bytes: Traffic,
}

/// New process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct NewProcess {
    pid: i32,
    parent: i32,
    is_kernel: bool,
    ticks: u64,
}

impl Processes {
    /// Creates the list. `roots` and their descendants are the lab's own processes.
    pub(super) fn below(roots: Vec<i32>) -> Self {
        Self {
            roots,
            ..Self::default()
        }
    }

    /// Returns the storage traffic of the lab's own processes from the first scan to the last, including earlier writes that the kernel had
    /// not yet written to a disk. `None` if this user may not read the counters of one.
    pub(super) fn own_traffic(&self) -> Option<Traffic> {
        (!self.is_hidden).then_some(self.bytes)
    }

    /// Returns the inodes of the lab's own sockets; `None` if this user may not see those of one process.
    pub(super) fn own_sockets(&self) -> Option<HashSet<u64>> {
        let mut inodes = HashSet::new();
        for own in self.own.values() {
            match own.process.fd() {
                Ok(files) => inodes.extend(files.flatten().filter_map(|file| match file.target {
                    FDTarget::Socket(inode) => Some(inode),
                    _ => None,
                })),
                Err(ProcError::PermissionDenied(_)) => return None,
                Err(_) => {}
            }
        }
        Some(inodes)
    }

    /// Counts the known processes of the lab.
    pub(super) fn count(&mut self) {
        for own in self.own.values_mut() {
            if let Ok(stat) = own.process.stat() {
                let ticks = stat.utime + stat.stime;
                self.own_ticks += ticks.saturating_sub(own.ticks);
                own.ticks = ticks;
            }
        }
    }

    /// Adds new processes and removes ended ones. Processes running at the first scan count from then on, later ones from
    /// their start. Only new processes and kernel threads are read: a machine has hundreds of others.
    pub(super) fn scan(&mut self) {
        let running = all_pids();
        self.own.retain(|pid, _| running.contains(pid));
        self.kernel.retain(|pid, _| running.contains(pid));
        self.others.retain(|pid| running.contains(pid));
        for (pid, before) in &mut self.kernel {
            if let Some(entry) = read_process(*pid) {
                self.kernel_ticks += entry.ticks.saturating_sub(*before);
                *before = entry.ticks;
            }
        }
        let unknown = running.iter().filter(|pid| !self.is_tracked(**pid));
        let new: Vec<NewProcess> = unknown.filter_map(|pid| read_process(*pid)).collect();
        let is_root = |pid: i32| self.roots.contains(&pid) || self.own.contains_key(&pid);
        let own = descendants(&new, is_root);
        for entry in new {
            let since_birth = if self.scanned { entry.ticks } else { 0 };
            if entry.is_kernel {
                self.kernel_ticks += since_birth;
                self.kernel.insert(entry.pid, entry.ticks);
            } else if !own.contains(&entry.pid) {
                self.others.insert(entry.pid);
            } else if let Ok(process) = Process::new(entry.pid) {
                self.own_ticks += since_birth;
                let (ticks, bytes) = (entry.ticks, Traffic::default());
                self.own.insert(entry.pid, OwnProcess { process, ticks, bytes });
            }
        }
        self.count_bytes();
        self.scanned = true;
    }

    fn count_bytes(&mut self) {
        self.own_resident_bytes = 0;
        for own in self.own.values_mut() {
            self.own_resident_bytes += own.process.stat().map_or(0, |stat| stat.rss * procfs::page_size());
            match own.process.io() {
                Ok(io) => {
                    self.bytes.read += io.read_bytes.saturating_sub(own.bytes.read);
                    self.bytes.written += io.write_bytes.saturating_sub(own.bytes.written);
                    own.bytes = Traffic {
                        read: io.read_bytes,
                        written: io.write_bytes,
                    };
                }
                Err(ProcError::PermissionDenied(_)) => self.is_hidden = true,
                Err(_) => {}
            }
        }
        if !self.scanned {
            // The kernel counts bytes as written before they are on a disk.
            let unwritten = Meminfo::current().map_or(0, |memory| memory.dirty + memory.writeback);
            let written = self.bytes.written.min(unwritten);
            self.bytes = Traffic { read: 0, written };
        }
    }

    fn is_tracked(&self, pid: i32) -> bool {
        self.own.contains_key(&pid) || self.kernel.contains_key(&pid) || self.others.contains(&pid)
    }
}

/// Returns the numbers of all processes.
fn all_pids() -> HashSet<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn read_process(pid: i32) -> Option<NewProcess> {
    let stat = Process::new(pid).ok()?.stat().ok()?;
    Some(NewProcess {
        pid,
        parent: stat.ppid,
        is_kernel: StatFlags::from_bits_truncate(stat.flags).contains(StatFlags::PF_KTHREAD),
        ticks: stat.utime + stat.stime,
    })
}

/// Returns the new processes that are roots or descend from one.
fn descendants(new: &[NewProcess], is_root: impl Fn(i32) -> bool) -> HashSet<i32> {
    let mut own = HashSet::new();
    // Numbers wrap around, so a child may have a lower number than its parent.
    loop {
        let before = own.len();
        for entry in new {
            if is_root(entry.pid) || is_root(entry.parent) || own.contains(&entry.parent) {
                own.insert(entry.pid);
            }
        }
        if own.len() == before {
            return own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(30);
    const BUSY: &str = "echo $$; exec >&-; while :; do :; done";

    /// A busy loop, ended when dropped.
    struct Busy {
        pid: i32,
        started: Child,
    }

    impl Busy {
        fn start(script: &str) -> Self {
            let mut started = Command::new("sh")
                .args(["-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut printed = String::new();
            std::io::Read::read_to_string(&mut started.stdout.take().unwrap(), &mut printed).unwrap();
            let pid = printed.trim().parse().unwrap();
            Self { pid, started }
        }

        fn parent(&self) -> i32 {
            Process::new(self.pid).unwrap().stat().unwrap().ppid
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let id = nix::unistd::Pid::from_raw(self.pid);
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).unwrap();
            let _ = self.started.wait();
        }
    }

    fn me() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    /// Until a process has used so many ticks more.
    fn work(busy: &Busy, ticks: u64) {
        let (began, before) = (Instant::now(), read_process(busy.pid).unwrap().ticks);
        while read_process(busy.pid).unwrap().ticks < before + ticks && began.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_busy_child_is_the_labs_own_and_a_stranger_is_not() {
        let child = Busy::start(BUSY);
        // Its parent ends at once, and it is nobody's child here.
        let foreign = Busy::start(&format!("setsid sh -c '{BUSY}' &"));
        let began = Instant::now();
        while Process::new(foreign.pid).unwrap().stat().is_ok_and(|stat| {
            let parent = Process::new(stat.ppid).and_then(|parent| parent.stat());
            stat.ppid != 1 && parent.is_ok_and(|parent| parent.ppid == me())
        }) && began.elapsed() < LONG
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut processes = Processes::below(vec![me()]);
        processes.scan();
        assert!(processes.own.contains_key(&me()) && processes.own.contains_key(&child.pid));
        assert!(processes.others.contains(&foreign.pid), "below {}", foreign.parent());
        assert_eq!(processes.own_ticks, 0, "what was before does not count");
        let before = read_process(child.pid).unwrap().ticks;
        work(&child, 10);
        let used = read_process(child.pid).unwrap().ticks - before;
        processes.count();
        assert!(processes.own_ticks >= used, "{} of {used}", processes.own_ticks);
        // What comes later is found, and counted from its beginning.
        let later = Busy::start(BUSY);
        work(&later, 5);
        let counted = processes.own_ticks;
        processes.scan();
        assert!(processes.own.contains_key(&later.pid));
        assert!(processes.own_ticks >= counted + 5);
    }

    #[test]
    fn what_a_child_writes_is_the_labs_own() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let file = folder.path().join("written");
        let mut processes = Processes::below(vec![me()]);
        processes.scan();
        let before = processes.own_traffic().unwrap();
        let child = Busy::start(&format!(
            "echo $$; dd if=/dev/zero of={} bs=1M count=8 2>&-; exec >&-; while :; do :; done",
            file.display()
        ));
        processes.scan();
        let after = processes.own_traffic().unwrap();
        assert!(after.written >= before.written + (8 << 20), "{before:?} {after:?}");
        assert!(processes.own_resident_bytes > 0);
        drop(child);
    }

    #[test]
    fn who_descends_from_a_root_is_found_whatever_the_numbers() {
        let entry = |pid, parent| NewProcess {
            pid,
            parent,
            is_kernel: false,
            ticks: 0,
        };
        let new = [
            entry(3, 90),
            entry(90, 80),
            entry(80, 7),
            entry(5, 6),
            entry(6, 1),
            entry(7, 1),
        ];
        let own = descendants(&new, |pid| pid == 7);
        assert_eq!(own, HashSet::from([3, 7, 80, 90]));
    }
}
