//! The methods beside inference: health, metadata, configuration, statistics, the repository, settings, shared memory.
//!
//! In: small messages. Out: what the documents over HTTP say, as messages.

use super::calls::unary;
use crate::front::state::{Phase, SharedState};
use crate::front::triton_settings::{self, Changes};
use crate::models::served_models::Target;
use axum::routing::MethodRouter;
use serde_json::Value;
use std::collections::HashMap;
use tierlab_protocol::grpc::messages::{
    Empty, LogChoice, LogSettings, LogValue, ModelConfigResponse, ModelMetadataResponse, ModelRequest,
    ModelStatisticsResponse, ReadyResponse, RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelRequest,
    ServerLiveResponse, ServerMetadataResponse, TraceSettings, TraceValue,
};
use tonic::Status;

/// Every method, by name.
pub(super) fn methods() -> Vec<(&'static str, MethodRouter<SharedState>)> {
    vec![
        ("ServerLive", unary(server_live)),
        ("ServerReady", unary(server_ready)),
        ("ModelReady", unary(model_ready)),
        ("ServerMetadata", unary(server_metadata)),
        ("ModelMetadata", unary(model_metadata)),
        ("ModelConfig", unary(model_config)),
        ("ModelStatistics", unary(model_statistics)),
        ("RepositoryIndex", unary(repository_index)),
        ("RepositoryModelLoad", unary(load)),
        ("RepositoryModelUnload", unary(unload)),
        ("TraceSetting", unary(trace_setting)),
        ("LogSettings", unary(log_settings)),
        ("SystemSharedMemoryStatus", unary(nothing)),
        ("SystemSharedMemoryRegister", unary(no_shared_memory)),
        ("SystemSharedMemoryUnregister", unary(nothing)),
        ("CudaSharedMemoryStatus", unary(nothing)),
        ("CudaSharedMemoryRegister", unary(no_shared_memory)),
        ("CudaSharedMemoryUnregister", unary(nothing)),
    ]
}

fn target(request: ModelRequest) -> Target {
    Target {
        model: request.name,
        version: Some(request.version).filter(|version| !version.is_empty()),
    }
}

async fn server_live(_: SharedState, _: Empty) -> Result<ServerLiveResponse, Status> {
    Ok(ServerLiveResponse { live: true })
}

async fn server_ready(state: SharedState, _: Empty) -> Result<ReadyResponse, Status> {
    let ready = state.phase() == Phase::Ready;
    Ok(ReadyResponse { ready })
}

/// A model that is not there is not ready, as Triton says too.
async fn model_ready(state: SharedState, request: ModelRequest) -> Result<ReadyResponse, Status> {
    let ready = state.model_ready(&target(request)).unwrap_or(false);
    Ok(ReadyResponse { ready })
}

async fn server_metadata(state: SharedState, _: Empty) -> Result<ServerMetadataResponse, Status> {
    Ok(state.server_metadata())
}

async fn model_metadata(state: SharedState, request: ModelRequest) -> Result<ModelMetadataResponse, Status> {
    Ok(state.manager.metadata(&target(request))?.into())
}

async fn model_config(state: SharedState, request: ModelRequest) -> Result<ModelConfigResponse, Status> {
    let document = state.manager.config(&target(request))?;
    Ok(ModelConfigResponse { config: Some(document) })
}

async fn model_statistics(state: SharedState, request: ModelRequest) -> Result<ModelStatisticsResponse, Status> {
    let target = Some(target(request)).filter(|target| !target.model.is_empty());
    Ok(state.manager.statistics(target.as_ref())?)
}

async fn repository_index(
    state: SharedState,
    request: RepositoryIndexRequest,
) -> Result<RepositoryIndexResponse, Status> {
    Ok(RepositoryIndexResponse {
        models: state.manager.index(request.ready).await,
    })
}

async fn load(state: SharedState, request: RepositoryModelRequest) -> Result<Empty, Status> {
    let parameters: Vec<String> = request.parameters.into_keys().collect();
    state.manager.load_by_request(&request.model_name, &parameters).await?;
    Ok(Empty {})
}

async fn unload(state: SharedState, request: RepositoryModelRequest) -> Result<Empty, Status> {
    let parameters: Vec<String> = request.parameters.into_keys().collect();
    state
        .manager
        .unload_by_request(&request.model_name, &parameters)
        .await?;
    Ok(Empty {})
}

async fn trace_setting(state: SharedState, request: TraceSettings) -> Result<TraceSettings, Status> {
    if !request.model_name.is_empty() {
        state.manager.find(&Target {
            model: request.model_name,
            version: None,
        })?;
    }
    let wanted = |value: TraceValue| match value.value.as_slice() {
        [] => Value::Null,
        _ => value.value.into(),
    };
    let changes: Changes = request
        .settings
        .into_iter()
        .map(|(name, value)| (name, wanted(value)))
        .collect();
    let settings = serde_json::to_value(triton_settings::Trace::change(&changes)?).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = |value: &Value| match value.as_array() {
        Some(values) => values.iter().map(text).collect(),
        None => vec![text(value)],
    };
    Ok(TraceSettings {
        settings: message_of(&settings, |value| Some(TraceValue { value: listed(value) })),
        model_name: String::new(),
    })
}

async fn log_settings(_: SharedState, request: LogSettings) -> Result<LogSettings, Status> {
    let wanted = |value: LogValue| match value.parameter_choice {
        Some(LogChoice::BoolParam(value)) => value.into(),
        Some(LogChoice::Uint32Param(value)) => value.into(),
        Some(LogChoice::StringParam(value)) => value.into(),
        None => Value::Null,
    };
    let changes: Changes = request
        .settings
        .into_iter()
        .map(|(name, value)| (name, wanted(value)))
        .collect();
    let settings = serde_json::to_value(triton_settings::Log::change(&changes)?).unwrap_or_default();
    let choice = |value: &Value| {
        Some(match value {
            Value::Bool(value) => LogChoice::BoolParam(*value),
            Value::Number(number) => LogChoice::Uint32Param(u32::try_from(number.as_u64()?).ok()?),
            Value::String(value) => LogChoice::StringParam(value.clone()),
            _ => return None,
        })
    };
    Ok(LogSettings {
        settings: message_of(&settings, |value| {
            Some(LogValue {
                parameter_choice: Some(choice(value)?),
            })
        }),
    })
}

/// The fields of a settings document as the map of a message.
fn message_of<T>(document: &Value, value: impl Fn(&Value) -> Option<T>) -> HashMap<String, T> {
    let fields = document.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, field)| Some((name.clone(), value(field)?)))
        .collect()
}

/// Status and unregister: there are no regions, and none that could be forgotten.
async fn nothing(_: SharedState, _: Empty) -> Result<Empty, Status> {
    Ok(Empty {})
}

async fn no_shared_memory(_: SharedState, _: Empty) -> Result<Empty, Status> {
    Err(Status::unimplemented(triton_settings::no_shared_memory().message))
}
