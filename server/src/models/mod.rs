//! The life of a model: what lies on the model tier, how a version of it is loaded, what is served, and how that changes.

pub(crate) mod loading;
pub(crate) mod management;
pub(crate) mod repository;
pub(crate) mod served_models;
pub(crate) mod serving;
