//! Methods other than inference: health, metadata, configuration, statistics, the repository, settings, shared memory;
//! and gRPC's own health service, for load balancers and orchestrators.
//!
//! In: small messages. Out: the contents of the HTTP documents, as messages.

use super::calls::{unary, watching};
use crate::front::state::{self, Phase, SharedState};
use crate::models::served_models::Target;
use axum::extract::{Request, State as Shared};
use axum::routing::MethodRouter;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use std::time::Duration;
use tierlab_protocol::grpc::SERVICE;
use tierlab_protocol::grpc::health::{self, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tierlab_protocol::grpc::messages::{
    Empty, LogChoice, LogSettings, LogValue, ModelConfigResponse, ModelMetadataResponse, ModelRequest,
    ModelStatisticsResponse, ReadyResponse, RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelRequest,
    ServerLiveResponse, ServerMetadataResponse, TraceSettings, TraceValue,
};
use tonic::Status;

/// All methods, by name.
pub(super) fn methods() -> Vec<(&'static str, MethodRouter<SharedState>)> {
    vec![
        ("ServerLive", unary(server_live)),
        ("ServerReady", unary(server_ready)),
        ("ModelReady", unary(model_ready)),
        ("ServerMetadata", unary(server_metadata)),
        ("ModelMetadata", unary(model_metadata)),
        ("ModelConfig", unary(model_config)),
        ("ModelStatistics", unary(model_statistics)),
        ("RepositoryIndex", unary(index)),
        ("RepositoryModelLoad", unary(load)),
        ("RepositoryModelUnload", unary(unload)),
        ("TraceSetting", unary(trace_setting)),
        ("LogSettings", unary(log_settings)),
        ("SystemSharedMemoryStatus", unary(empty_reply)),
        ("SystemSharedMemoryRegister", unary(no_shared_memory)),
        ("SystemSharedMemoryUnregister", unary(empty_reply)),
        ("CudaSharedMemoryStatus", unary(empty_reply)),
        ("CudaSharedMemoryRegister", unary(no_shared_memory)),
        ("CudaSharedMemoryUnregister", unary(empty_reply)),
    ]
}

fn target(request: ModelRequest) -> Target {
    Target {
        model: request.name,
        version: Some(request.version),
    }
}

async fn server_live(_: SharedState, _: Empty) -> Result<ServerLiveResponse, Status> {
    Ok(ServerLiveResponse { live: true })
}

async fn server_ready(state: SharedState, _: Empty) -> Result<ReadyResponse, Status> {
    let ready = state.phase() == Phase::Ready;
    Ok(ReadyResponse { ready })
}

/// An unknown model is not ready, as in Triton.
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

/// Refuses the name of a repository, as Triton does: there is only one.
fn check_repository(name: &str) -> Result<(), Status> {
    match name {
        "" => Ok(()),
        _ => Err(Status::unimplemented(
            "`repository_name` is not supported: leave it empty",
        )),
    }
}

async fn index(state: SharedState, request: RepositoryIndexRequest) -> Result<RepositoryIndexResponse, Status> {
    check_repository(&request.repository_name)?;
    let models = state.manager.index(request.ready).await;
    Ok(RepositoryIndexResponse { models })
}

async fn load(state: SharedState, request: RepositoryModelRequest) -> Result<Empty, Status> {
    check_repository(&request.repository_name)?;
    let parameters: Vec<String> = request.parameters.into_keys().collect();
    state.manager.load_by_request(&request.model_name, &parameters).await?;
    Ok(Empty {})
}

async fn unload(state: SharedState, request: RepositoryModelRequest) -> Result<Empty, Status> {
    check_repository(&request.repository_name)?;
    let parameters: Vec<String> = request.parameters.into_keys().collect();
    let name = &request.model_name;
    state.manager.unload_by_request(name, &parameters).await?;
    Ok(Empty {})
}

async fn trace_setting(state: SharedState, request: TraceSettings) -> Result<TraceSettings, Status> {
    if !request.model_name.is_empty() {
        state.manager.find(&Target {
            model: request.model_name,
            version: None,
        })?;
    }
    let setting = |value: TraceValue| match value.value.as_slice() {
        [] => Value::Null,
        _ => value.value.into(),
    };
    let requested = request.settings.into_iter();
    let settings = state::change_trace(&requested.map(|(name, value)| (name, setting(value))).collect())?;
    let reply = |value: Value| TraceValue {
        value: match value {
            Value::String(text) => vec![text],
            list => serde_json::from_value(list).unwrap_or_default(),
        },
    };
    Ok(TraceSettings {
        settings: settings.into_iter().map(|(name, value)| (name, reply(value))).collect(),
        model_name: String::new(),
    })
}

async fn log_settings(_: SharedState, request: LogSettings) -> Result<LogSettings, Status> {
    let setting = |value: LogValue| match value.parameter_choice {
        Some(LogChoice::BoolParam(value)) => value.into(),
        Some(LogChoice::Uint32Param(value)) => value.into(),
        Some(LogChoice::StringParam(value)) => value.into(),
        None => Value::Null,
    };
    let requested = request.settings.into_iter();
    let settings = state::change_log(&requested.map(|(name, value)| (name, setting(value))).collect())?;
    let reply = |value: Value| LogValue {
        parameter_choice: match value {
            Value::Bool(value) => Some(LogChoice::BoolParam(value)),
            Value::String(value) => Some(LogChoice::StringParam(value)),
            level => level.as_u64().map(|level| LogChoice::Uint32Param(level as u32)),
        },
    };
    Ok(LogSettings {
        settings: settings.into_iter().map(|(name, value)| (name, reply(value))).collect(),
    })
}

/// Status and unregister of shared memory: no region is ever registered.
async fn empty_reply(_: SharedState, _: Empty) -> Result<Empty, Status> {
    Ok(Empty {})
}

async fn no_shared_memory(_: SharedState, _: Empty) -> Result<Empty, Status> {
    Err(Status::unimplemented(state::no_shared_memory().message))
}

/// Interval between status checks of a watcher.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

fn serving_status(state: &SharedState, service: &str) -> ServingStatus {
    if !["", SERVICE, health::SERVICE].contains(&service) {
        ServingStatus::ServiceUnknown
    } else if state.phase() == Phase::Ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn health_response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

/// `Check`.
pub(super) async fn check(state: SharedState, request: HealthCheckRequest) -> Result<HealthCheckResponse, Status> {
    match serving_status(&state, &request.service) {
        ServingStatus::ServiceUnknown => Err(Status::not_found("unknown service")),
        status => Ok(health_response(status)),
    }
}

/// `Watch`.
pub(super) async fn watch(Shared(state): Shared<SharedState>, request: Request) -> http::Response<tonic::body::Body> {
    let replies = |state, request: HealthCheckRequest| changes(state, request.service);
    watching(state, request, replies).await
}

/// Current status, and each change. Ends when the server drains, so that the connection can.
fn changes(state: SharedState, service: String) -> BoxStream<'static, HealthCheckResponse> {
    let next = |(state, service, last): (SharedState, String, Option<ServingStatus>)| async move {
        loop {
            let now = serving_status(&state, &service);
            if last != Some(now) {
                return Some((health_response(now), (state, service, Some(now))));
            }
            if state.phase() == Phase::Draining {
                return None;
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    };
    stream::unfold((state, service, None), next).boxed()
}
