//! ONNX Runtime and the sessions that run in it: batches of tensors in, outputs out.

pub(crate) mod runtime;
pub(crate) mod session;
pub(crate) mod tensors;
