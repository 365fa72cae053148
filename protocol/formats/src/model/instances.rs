//! Number, threads and device of a model's sessions.

use super::BadModelFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sessions of one model at most.
const MAX_INSTANCES: u32 = 256;
/// Threads of one session at most, inside operators and between them.
const MAX_SESSION_THREADS: u32 = 1024;
/// Threads of all sessions of a model at most.
const MAX_MODEL_THREADS: u32 = 4096;
/// CPUs that a model's sessions may be pinned to at most.
const MAX_CPUS: usize = 4096;

/// Number and threads of the sessions. Absent keys have the defaults shown; nothing is sized automatically.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceConfig {
    /// Sessions, each on a thread of its own; 1 to 256.
    pub count: u32,
    /// ONNX Runtime's intra-op threads of each session; at least 1.
    pub intra_op_threads: u32,
    /// Nodes of the graph that one session runs at the same time; at least 1, which is one after the other.
    pub inter_op_threads: u32,
    /// CPUs that the sessions' threads are pinned to: each session takes the next `intra_op_threads` of them, and the
    /// list begins again at its end. Empty leaves the threads to the system.
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
        for (key, value, most) in [
            ("instances.count", self.count, MAX_INSTANCES),
            ("instances.intra_op_threads", threads[0], MAX_SESSION_THREADS),
            ("instances.inter_op_threads", threads[1], MAX_SESSION_THREADS),
        ] {
            if value == 0 {
                return Err(BadModelFile(format!("`{key}` must be at least 1")));
            }
            if value > most {
                return Err(BadModelFile(format!("`{key}` is {value}, the most is {most}")));
            }
        }
        let all = self.count * (threads[0] + threads[1]);
        if all > MAX_MODEL_THREADS {
            return Err(BadModelFile(format!(
                "`instances.count` ({}) times the threads of each session ({} and {}) is {all}, the most is {MAX_MODEL_THREADS}",
                self.count, threads[0], threads[1]
            )));
        }
        if self.cpus.len() > MAX_CPUS {
            let len = self.cpus.len();
            return Err(BadModelFile(format!(
                "`instances.cpus` names {len}, the most is {MAX_CPUS}"
            )));
        }
        Ok(())
    }
}

/// Device of a model's sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// Device set by the server's `[runtime] device`.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU, or the model is refused.
    Gpu,
}

impl InstanceKind {
    /// True if the server decides.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}
