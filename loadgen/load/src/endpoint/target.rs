//! All of a server that a load process has to be told. In: a plan, the command line. Out: plain data with names of secrets only.

use super::access::AccessSpec;
use crate::custom::CustomSpec;
use serde::{Deserialize, Serialize};

/// A server that is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Its address; what it has as path goes before every path.
    pub url: String,
    /// URL for gRPC.
    pub grpc_url: Option<String>,
    /// The version of the model that is asked for; the server's choice where there is none.
    pub model_version: Option<String>,
    /// Access settings.
    pub access: AccessSpec,
    /// Requests of another protocol than the Open Inference Protocol.
    pub custom: Option<CustomSpec>,
    /// Further servers of the same, which take turns with it.
    #[serde(default)]
    pub others: Vec<TargetSpec>,
}

impl TargetSpec {
    /// A server of the Open Inference Protocol at an address, asked plainly.
    #[must_use]
    pub fn plain(url: &str, grpc_url: Option<String>) -> Self {
        Self {
            url: url.to_owned(),
            grpc_url,
            model_version: None,
            access: AccessSpec::default(),
            custom: None,
            others: Vec::new(),
        }
    }
}
