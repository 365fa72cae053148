//! ONNX Runtime and its sessions: batches of tensors in, outputs out.

pub(crate) mod runtime;
pub(crate) mod session;
pub(crate) mod tensors;
