//! HTTP/1 on one connection.

use super::activity::{Activity, Dismissal};
use super::bodies::RequestBody;
use super::guarded::{GuardedStream, Transport};
use super::listen::Bounds;
use super::shared::{FAREWELL, MAX_HEAD_BYTES, Server, answer, dismissal};
use crate::front::Routes;
use crate::front::access::is_open;
use axum::body::Body;
use http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

/// HTTP/1 settings of every connection.
pub(super) fn builder(bounds: &Bounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        // hyper's own limit of 100 headers is kept: setting any limit makes it fill two lists for each request.
        .max_buf_size(MAX_HEAD_BYTES);
    builder
}

/// Serves one connection to its end.
pub(super) async fn serve<S: Transport, R: Routes>(
    server: &Arc<Server<R>>,
    stream: GuardedStream<S>,
    activity: &Arc<Activity>,
) {
    let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
        let open = activity.open(is_open(request.uri().path()));
        let request = request.map(|body| Body::new(RequestBody::new(body, &open)));
        let answered = answer(Arc::clone(server), request, open);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let mut connection = pin!(server.http1.serve_connection(TokioIo::new(stream), service));
    // A separate task, because a connection is polled several times for each request, and then only reads a flag.
    let mut dismissed = tokio::spawn({
        let (activity, patience) = (Arc::clone(activity), server.bounds.header_timeout);
        async move { dismissal(&activity, patience).await }
    });
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Err(ended),
        dismissal = &mut dismissed => Ok(dismissal),
    };
    dismissed.abort();
    match ended {
        Err(Ok(())) | Ok(Ok(Dismissal::Evicted) | Err(_)) => {}
        Err(Err(error)) => tracing::debug!(%error, "connection ended early"),
        Ok(Ok(Dismissal::Finish)) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = connection => {}
                () = activity.silent_for(FAREWELL) => {}
                () = activity.evicted() => {}
            }
        }
    }
}
