//! Limits on a request in any encoding.

/// Inputs, and requested outputs, of one request at most.
pub const MAX_TENSORS: usize = 256;
/// Dimensions of one tensor at most.
pub const MAX_RANK: usize = 16;
/// Bytes of a tensor's name, and of a request's id, at most.
pub const MAX_NAME_BYTES: usize = 1024;
/// Elements at most that the other dimensions of an input make where one of them is 0. It costs its sender no bytes, and a
/// graph that reduces the empty dimension fills all others.
pub const MAX_EMPTY_ELEMENTS: usize = 1 << 24;
