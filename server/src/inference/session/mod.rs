//! The sessions of the models, each owned by a thread that takes batches from its model's queue.

pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod layout;
pub(crate) mod open;
mod padding;
pub(crate) mod pinned;
#[cfg(test)]
mod tests;

use crate::request::{Reason, Refusal};

/// Failed run: what is wrong, and its cause.
#[derive(Debug)]
struct RunError {
    message: String,
    fault: Fault,
}

/// Cause of a failed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The request does not match the graph.
    Input,
    /// The model is batched, but the graph's outputs do not have the rows of its inputs.
    Rows,
    /// Anything else.
    Run,
    /// No memory for the outputs.
    NoMemory(Reason),
}

impl RunError {
    fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            fault,
        }
    }

    /// Error of a request that does not match the graph.
    fn misfit(message: impl std::fmt::Display) -> Self {
        Self::new(Fault::Input, message.to_string())
    }

    /// Refusal for the client. If the graph's rows are not a batch, no outputs are sent: they might belong to other
    /// requests.
    fn refusal(&self, model: &str) -> Refusal {
        let message = &self.message;
        let (reason, what) = match self.fault {
            Fault::Input => (Reason::BadRequest, "the model refuses these inputs"),
            Fault::Rows => return Refusal::new(Reason::Inference, format!("model `{model}`: {message}")),
            Fault::NoMemory(reason) => return Refusal::new(reason, message.as_str()),
            Fault::Run => (Reason::Inference, "the model's run failed"),
        };
        Refusal::new(reason, format!("{what}: {message}"))
    }
}

impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Fault::Run, error.to_string())
    }
}

/// Parts of ONNX Runtime's messages about inputs that do not fit each other or the graph. Their code is that of any
/// failure.
const INPUT_ERRORS: [&str; 6] = [
    "broadcast an axis by a dimension other than 1",
    "imension mismatch",
    "axis dimensions must match",
    "cannot be reshaped to the requested shape",
    "not equal to kernel channels",
    "Integer division by zero",
];

impl From<ort::Error> for RunError {
    fn from(error: ort::Error) -> Self {
        let is_input_error = error.code() == ort::ErrorCode::InvalidArgument
            || INPUT_ERRORS.iter().any(|part| error.message().contains(part));
        let fault = if is_input_error { Fault::Input } else { Fault::Run };
        Self::new(fault, error.to_string())
    }
}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        Self::new(Fault::NoMemory(refusal.reason), refusal.message)
    }
}
