//! Lifecycle of a model: the model tier, loading a version, the served models, and their changes.

pub(crate) mod loading;
pub(crate) mod management;
pub(crate) mod repository;
pub(crate) mod served_models;
pub(crate) mod serving;
