//! Description of a server for load processes. In: a plan, the command line. Out: plain data with only the names of
//! secrets.

use super::access::AccessSpec;
use crate::custom::CustomSpec;
use serde::{Deserialize, Serialize};

/// Measured server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Server URL; its path is the prefix of every path.
    pub url: String,
    /// URL for gRPC.
    pub grpc_url: Option<String>,
    /// Requested model version; default: the server's choice.
    pub model_version: Option<String>,
    /// Access settings.
    pub access: AccessSpec,
    /// Requests of another protocol than the Open Inference Protocol.
    pub custom: Option<CustomSpec>,
    /// Further equal servers, which take turns with it.
    #[serde(default)]
    pub others: Vec<TargetSpec>,
}

impl TargetSpec {
    /// Creates a server of the Open Inference Protocol at an address, without access settings.
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
