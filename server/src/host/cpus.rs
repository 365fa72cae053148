//! Pinning the threads of a session to CPUs.
//!
//! In: the CPUs that a model's config names. Out: the calling thread, and those that it starts from now on (ONNX Runtime's
//! are among them), run there and nowhere else.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The share of one instance: the next `each` of `cpus`, from the beginning again after the last.
pub(crate) fn of_instance(cpus: &[u32], instance: u32, each: u32) -> Vec<u32> {
    let first = instance as usize * each as usize;
    let len = cpus.len();
    (first..first + each as usize)
        .take(len)
        .map(|index| cpus[index % len])
        .collect()
}

/// Pins the calling thread; an empty list leaves it to the system.
///
/// # Errors
/// A CPU that this machine does not have, or that the process may not use.
pub(crate) fn pin(cpus: &[u32]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize)
            .map_err(|_| format!("`instances.cpus` has {cpu}: no system has so many CPUs"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
        .map_err(|e| format!("`instances.cpus`: this process may not run on {cpus:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::sched_getaffinity;

    #[test]
    fn instances_share_the_list_in_turn() {
        let cpus = [4, 5, 6];
        assert_eq!(of_instance(&cpus, 0, 2), [4, 5]);
        assert_eq!(of_instance(&cpus, 1, 2), [6, 4]);
        assert_eq!(of_instance(&cpus, 2, 1), [6]);
        assert_eq!(of_instance(&cpus, 0, 9), [4, 5, 6]);
        assert!(of_instance(&[], 3, 2).is_empty());
    }

    #[test]
    fn a_pinned_thread_stays_where_it_was_put_and_so_do_its_children() {
        let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpu = (0..CpuSet::count()).find(|&cpu| mine.is_set(cpu).unwrap()).unwrap();
        let pinned = std::thread::spawn(move || {
            pin(&[cpu as u32]).unwrap();
            let child = std::thread::spawn(|| sched_getaffinity(Pid::from_raw(0)).unwrap());
            [sched_getaffinity(Pid::from_raw(0)).unwrap(), child.join().unwrap()]
        });
        for set in pinned.join().unwrap() {
            assert!((0..CpuSet::count()).all(|one| set.is_set(one).unwrap() == (one == cpu)));
        }
        assert!(pin(&[1_000_000]).unwrap_err().contains("1000000"));
        assert_eq!(pin(&[]), Ok(()));
    }
}
