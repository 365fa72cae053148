//! What an open tier costs while nobody reads. In: a span of time. Out: CPU time as a share of one core.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for the last reads' threads to fall asleep, not measured.
const SETTLING: Duration = Duration::from_millis(200);

/// Waits, and tells what share of a core the whole process used meanwhile.
pub(crate) async fn cpu_share(span: Duration) -> Result<f64> {
    tokio::time::sleep(SETTLING).await;
    let (before, begun) = (cpu_ns()?, Instant::now());
    tokio::time::sleep(span).await;
    let elapsed = begun.elapsed();
    // Threads that ended meanwhile were idle ones, let go by the runtime.
    let used = |(thread, ns): (&u32, &u64)| ns - before.get(thread).unwrap_or(&0);
    let used: u64 = cpu_ns()?.iter().map(used).sum();
    Ok(used as f64 / elapsed.as_nanos() as f64)
}

/// CPU time of each thread so far, in nanoseconds.
fn cpu_ns() -> Result<HashMap<u32, u64>> {
    let mut threads = HashMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?;
        let file = task.path().join("schedstat");
        // A thread may end in between.
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
