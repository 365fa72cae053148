//! Loading a version of a model: its sessions, the match of graph, manifest and config, its feature table.

pub(crate) mod fitting;
pub(crate) mod load;
pub(crate) mod opening;
