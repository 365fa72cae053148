//! What the short way takes from the server.

pub(crate) mod served_models {
    /// What a client names.
    #[derive(Debug, serde::Deserialize)]
    pub(crate) struct Target {
        pub(crate) model: String,
        pub(crate) version: Option<String>,
    }
}
