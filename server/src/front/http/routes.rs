//! All HTTP paths with their handlers. The OpenAPI document describes them in `operations.json`; a test compares the
//! two.

use super::documents::*;
use super::infer::infer;
use super::{openapi, page};
use crate::front::access::PAGE;
use crate::front::state::SharedState;
use axum::routing::{MethodRouter, get, post};

/// All handlers, by path.
pub(super) fn routes() -> Vec<(String, MethodRouter<SharedState>)> {
    let mut routes = vec![
        (PAGE.to_owned(), page::serve()),
        ("/v2".to_owned(), get(server_metadata)),
        ("/v2/".to_owned(), get(server_metadata)),
        ("/v2/health/live".to_owned(), get(live)),
        ("/v2/health/ready".to_owned(), get(ready)),
        ("/openapi.json".to_owned(), openapi::serve()),
        ("/metrics".to_owned(), get(metrics)),
        ("/v2/models/stats".to_owned(), get(all_stats)),
        ("/v2/repository/index".to_owned(), post(index)),
        ("/v2/repository/models/{model}/load".to_owned(), post(load)),
        ("/v2/repository/models/{model}/unload".to_owned(), post(unload)),
    ];
    for base in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        routes.extend([
            (base.to_owned(), get(model_metadata)),
            (format!("{base}/ready"), get(model_ready)),
            (format!("{base}/config"), get(model_config)),
            (format!("{base}/stats"), get(model_stats)),
            (format!("{base}/infer"), post(infer)),
        ]);
    }
    // Triton's extensions that its clients request but that are not offered here: answered, but changes are refused.
    let model_trace = get(model_trace_settings).post(set_trace_settings);
    routes.extend([
        ("/v2/logging".to_owned(), get(log_settings).post(set_log_settings)),
        (
            "/v2/trace/setting".to_owned(),
            get(trace_settings).post(set_trace_settings),
        ),
        ("/v2/models/{model}/trace/setting".to_owned(), model_trace),
    ]);
    for kind in ["/v2/systemsharedmemory", "/v2/cudasharedmemory"] {
        for base in [kind.to_owned(), format!("{kind}/region/{{region}}")] {
            routes.push((format!("{base}/status"), get(shared_memory_status)));
            routes.push((format!("{base}/unregister"), post(unregister_shared_memory)));
        }
        let register = format!("{kind}/region/{{region}}/register");
        routes.push((register, post(register_shared_memory)));
    }
    routes
}
