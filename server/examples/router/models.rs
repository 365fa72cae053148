//! Stand-ins for the server's types in the short way.

pub(crate) mod served_models {
    /// Model that a client names.
    #[derive(Debug, serde::Deserialize)]
    pub(crate) struct Target {
        pub(crate) model: String,
        pub(crate) version: Option<String>,
    }
}
