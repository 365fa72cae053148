//! The one list of what is served over HTTP: the router and the OpenAPI document are both made from it.
//!
//! In: nothing. Out: paths, each with its handlers and what they say of themselves.

use super::documents::*;
use super::infer::infer;
use super::openapi::{Operation, ReplyBody, Route};
use super::{openapi, page};
use crate::front::access::PAGE;
use crate::front::state::SharedState;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post};

/// The path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";

/// A group of routes being listed.
struct RouteList {
    tag: &'static str,
    routes: Vec<Route>,
}

impl RouteList {
    fn get<H: Handler<T, SharedState>, T: 'static>(
        &mut self,
        path: &str,
        summary: &'static str,
        reply: &'static str,
        serve: H,
    ) {
        self.add(path, ("get", summary), None, ReplyBody::Json(reply), get(serve));
    }

    fn post<H: Handler<T, SharedState>, T: 'static>(
        &mut self,
        path: &str,
        summary: &'static str,
        (request, reply): (Option<&'static str>, &'static str),
        serve: H,
    ) {
        self.add(path, ("post", summary), request, ReplyBody::Json(reply), post(serve));
    }

    fn add(
        &mut self,
        path: &str,
        (method, summary): (&'static str, &'static str),
        request: Option<&'static str>,
        reply: ReplyBody,
        serve: MethodRouter<SharedState>,
    ) {
        let operation = Operation {
            method,
            summary,
            tag: self.tag,
            request,
            reply,
        };
        match self.routes.iter_mut().find(|route| route.path == path) {
            Some(route) => {
                let so_far = std::mem::take(&mut route.serve);
                route.serve = so_far.merge(serve);
                route.operations.push(operation);
            }
            None => self.routes.push(Route {
                path: path.to_owned(),
                serve,
                operations: vec![operation],
            }),
        }
    }
}

/// Everything that is served.
pub(super) fn routes() -> Vec<Route> {
    let mut list = RouteList {
        tag: "server",
        routes: Vec::new(),
    };
    list.add(
        PAGE,
        ("get", "What is loaded and what it does, as a page for people"),
        None,
        ReplyBody::Text("text/html"),
        page::serve(),
    );
    list.get(
        "/v2",
        "Name, version and extensions of the server",
        "ServerMetadata",
        server_metadata,
    );
    list.get("/v2/", "The same as /v2", "ServerMetadata", server_metadata);
    list.get("/v2/health/live", "Whether the process answers", "Live", live);
    list.get("/v2/health/ready", "Whether requests are taken", "Ready", ready);
    list.add(
        OPENAPI,
        ("get", "This document"),
        None,
        ReplyBody::Json("OpenApi"),
        MethodRouter::new(),
    );
    list.add(
        "/metrics",
        ("get", "Metrics in Prometheus' text format"),
        None,
        ReplyBody::Text("text/plain"),
        get(metrics),
    );
    list.tag = "models";
    list.get("/v2/models/stats", "Statistics of every model", "Statistics", all_stats);
    for base in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        list.get(
            base,
            "Inputs, outputs and versions of a model",
            "ModelMetadata",
            model_metadata,
        );
        list.get(
            &format!("{base}/ready"),
            "Whether a model takes requests",
            "ModelReady",
            model_ready,
        );
        list.get(
            &format!("{base}/config"),
            "A model's configuration, in Triton's form",
            "ModelConfig",
            model_config,
        );
        list.get(
            &format!("{base}/stats"),
            "Statistics of a model",
            "Statistics",
            model_stats,
        );
        let bodies = (Some("InferRequest"), "InferReply");
        list.post(
            &format!("{base}/infer"),
            "Inference, in JSON or with binary tensors",
            bodies,
            infer,
        );
    }
    list.tag = "repository";
    let bodies = (Some("IndexOptions"), "Index");
    list.post("/v2/repository/index", "The models of the repository", bodies, index);
    let models = "/v2/repository/models/{model}";
    list.post(
        &format!("{models}/load"),
        "Load a model, or its newest version",
        (None, "Any"),
        load,
    );
    list.post(
        &format!("{models}/unload"),
        "Stop serving a model",
        (None, "Any"),
        unload,
    );
    settings(&mut list);
    // The document lists itself: it is served once all that it says is there.
    let document = openapi::document(&list.routes);
    if let Some(route) = list.routes.iter_mut().find(|route| route.path == OPENAPI) {
        route.serve = openapi::serve(&document);
    }
    list.routes
}

/// Triton's extensions that its clients ask for and that are not offered here: answered, and changes refused.
fn settings(list: &mut RouteList) {
    list.tag = "settings";
    let bodies = (Some("Any"), "Any");
    list.get("/v2/logging", "Log settings", "Any", log_settings);
    list.post("/v2/logging", "Change log settings (refused)", bodies, set_log_settings);
    list.get("/v2/trace/setting", "Trace settings", "Any", trace_settings);
    list.post(
        "/v2/trace/setting",
        "Change trace settings (refused)",
        bodies,
        set_trace_settings,
    );
    let model = "/v2/models/{model}/trace/setting";
    list.get(model, "Trace settings of a model", "Any", model_trace_settings);
    list.post(model, "Change trace settings (refused)", bodies, set_trace_settings);
    for kind in ["systemsharedmemory", "cudasharedmemory"] {
        for base in [format!("/v2/{kind}"), format!("/v2/{kind}/region/{{region}}")] {
            list.get(
                &format!("{base}/status"),
                "Registered regions: none",
                "Any",
                shared_memory_status,
            );
            let path = format!("{base}/unregister");
            list.post(
                &path,
                "Forget regions: there are none",
                (None, "Any"),
                unregister_shared_memory,
            );
        }
        let path = format!("/v2/{kind}/region/{{region}}/register");
        list.post(
            &path,
            "Register shared memory (refused)",
            bodies,
            register_shared_memory,
        );
    }
}
