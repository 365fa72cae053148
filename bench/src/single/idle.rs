//! Cost of an open tier without reads. In: a duration. Out: CPU time as a share of one core.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Unmeasured time for the last reads' threads to fall asleep.
const SETTLING: Duration = Duration::from_millis(200);

/// Waits, and returns the CPU time of the whole process meanwhile, as a share of one core.
pub(crate) async fn cpu_share(span: Duration) -> Result<f64> {
    tokio::time::sleep(SETTLING).await;
    let (before, begun) = (cpu_ns()?, Instant::now());
    tokio::time::sleep(span).await;
    let elapsed = begun.elapsed();
    // Threads that ended meanwhile were idle threads of the runtime.
    let used = |(thread, ns): (&u32, &u64)| ns - before.get(thread).unwrap_or(&0);
    let used: u64 = cpu_ns()?.iter().map(used).sum();
    Ok(used as f64 / elapsed.as_nanos() as f64)
}

/// Returns the CPU time of each thread so far, in nanoseconds.
fn cpu_ns() -> Result<HashMap<u32, u64>> {
    let mut threads = HashMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let file = task.path().join("schedstat");
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let strange = || format!("cannot read {}", file.display());
        let first = text.split_whitespace().next().with_context(strange)?;
        let thread = task.file_name().to_string_lossy().parse().with_context(strange)?;
        threads.insert(thread, first.parse().with_context(strange)?);
    }
    Ok(threads)
}
