//! Number, threads and device of a model's sessions.

use super::{BadModelFile, check_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum sessions of a model.
const MAX_INSTANCES: usize = 256;
/// Maximum threads of a session, inside operators and between them.
const MAX_SESSION_THREADS: usize = 1024;
/// Maximum threads of all sessions of a model.
const MAX_MODEL_THREADS: u32 = 4096;
/// Maximum CPUs to pin a model's sessions to.
const MAX_CPUS: usize = 4096;

/// Number and threads of the sessions. Without this table the server sizes them for its cores. With it, absent keys
/// have the defaults shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceConfig {
    /// Number of sessions, each on its own thread; 1 to 256.
    pub count: u32,
    /// ONNX Runtime's intra-op threads of each session; at least 1.
    pub intra_op_threads: u32,
    /// Graph nodes that a session runs at the same time; at least 1 (sequential).
    pub inter_op_threads: u32,
    /// CPUs to pin the sessions' threads to: each session takes the next `intra_op_threads` of them, starting again at
    /// the end of the list. Empty leaves the threads to the system.
    pub cpus: Vec<u32>,
    /// Device of the sessions (default: `"auto"`).
    #[serde(skip_serializing_if = "InstanceKind::is_auto")]
    pub kind: InstanceKind,
}

impl Default for InstanceConfig {
    fn default() -> Self {
        Self {
            count: 1,
            intra_op_threads: 1,
            inter_op_threads: 1,
            cpus: Vec::new(),
            kind: InstanceKind::Auto,
        }
    }
}

impl InstanceConfig {
    pub(super) fn check(&self) -> Result<(), BadModelFile> {
        let threads = [self.intra_op_threads, self.inter_op_threads];
        check_range("instances.count", self.count as usize, 1, MAX_INSTANCES)?;
        check_range(
            "instances.intra_op_threads",
            threads[0] as usize,
            1,
            MAX_SESSION_THREADS,
        )?;
        check_range(
            "instances.inter_op_threads",
            threads[1] as usize,
            1,
            MAX_SESSION_THREADS,
        )?;
        check_range("instances.cpus", self.cpus.len(), 0, MAX_CPUS)?;
        let all = self.count * (threads[0] + threads[1]);
        if all > MAX_MODEL_THREADS {
            return Err(BadModelFile(format!(
                "`instances.count` ({}) times the threads of each session ({} and {}) is {all}; the limit is {MAX_MODEL_THREADS}",
                self.count, threads[0], threads[1]
            )));
        }
        Ok(())
    }
}

/// Device of a model's sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// Chosen by the server's `runtime.provider`.
    #[default]
    Auto,
    /// Sessions on the CPU.
    Cpu,
    /// Sessions on the GPU; the model is refused without one.
    Gpu,
}

impl InstanceKind {
    /// True if the server decides.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
