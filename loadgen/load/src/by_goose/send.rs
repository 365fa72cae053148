//! A run of goose, and one request of its users, whose reply is read to its last byte. In: a scenario; a request. Out:
//! the reply, and the time of goose's own clock. Knows nothing of schedules or of request contents.

use crate::custom::Success;
use crate::driver::{DriverError, HttpReply, Reply};
use crate::endpoint::innermost;
use crate::reply::{self, BodyError, Limit, NoReply};
use goose::GooseAttack;
use goose::client::GooseClientBuilder;
use goose::config::GooseConfiguration;
use goose::goose::{GooseRequest, GooseUser, Scenario};
use reqwest::{Request, RequestBuilder};
use std::sync::Arc;
use tierlab_analysis::record::Failure;

/// Creates an attack without starting it. With `metrics` goose's own metrics count the requests that its client sends.
pub(crate) fn attack(
    host: String,
    users: usize,
    scenario: Scenario,
    metrics: bool,
) -> Result<GooseAttack, DriverError> {
    // Otherwise goose prints a line with the address of each failed request.
    let _ = log::set_logger(log::logger());
    // Field by field: some are private, so no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(host);
    configuration.users = Some(users);
    configuration.increase_rate = Some("1000000".into());
    configuration.no_metrics = !metrics;
    // Its metrics are reset once all users are up: without that goose prints a line on stdout.
    configuration.no_transaction_metrics = true;
    configuration.no_scenario_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    GooseAttack::initialize_with_config(configuration)
        // Unused, but otherwise goose creates a client for each user.
        .and_then(|attack| attack.set_client_builder_without_cookies(GooseClientBuilder::new().without_cookies()))
        .map(|attack| attack.register_scenario(scenario))
        .map_err(DriverError::from)
}

impl From<goose::GooseError> for DriverError {
    fn from(error: goose::GooseError) -> Self {
        Self::Goose(error.to_string())
    }
}

/// Result of a request.
pub(crate) struct Sent {
    /// Complete reply.
    pub(crate) reply: Result<Reply, NoReply>,
    /// HTTP status.
    pub(crate) status: Option<u16>,
    /// Time by goose's own clock, up to the reply's headers, in microseconds; `None` if goose did not send.
    pub(crate) goose_us: Option<u64>,
}

impl Sent {
    /// Result of a request that goose's client did not send, such as one over gRPC, which it does not speak.
    pub(crate) const fn without_goose(reply: Result<Reply, NoReply>) -> Self {
        Self {
            reply,
            status: None,
            goose_us: None,
        }
    }
}

/// Sends a request by goose and reads its reply to the last byte. The reply keeps `success`, its rule of success.
pub(crate) async fn send(
    user: &mut GooseUser,
    name: &str,
    request: Request,
    success: Option<Arc<Success>>,
    limit: &Limit,
) -> Sent {
    let url = request.url().to_string();
    let builder = RequestBuilder::from_parts(user.client.clone(), request);
    let request = GooseRequest::builder().path(url.as_str()).name(name);
    let request = request.set_request_builder(builder).build();
    let answered = match user.request(request).await {
        Ok(answered) => answered,
        Err(error) => {
            let missing = NoReply::new(Failure::Broken, format_args!("goose: {error}"));
            return Sent::without_goose(Err(missing));
        }
    };
    let goose_us = Some(answered.request.response_time_micros());
    let response = match answered.response {
        Ok(response) => response,
        Err(error) => {
            return Sent {
                goose_us,
                ..Sent::without_goose(Err(missing(error)))
            };
        }
    };
    let (status, headers) = (response.status(), response.headers().clone());
    let reply = match reply::read(reqwest::Body::from(response), limit).await {
        Ok(body) => Ok(Reply::Http(HttpReply::new(status, headers, body, success))),
        Err(BodyError::TooLarge(what)) => Err(what.into()),
        Err(BodyError::Lost(error)) => Err(missing(error)),
    };
    Sent {
        status: reply.is_ok().then_some(status.as_u16()),
        reply,
        goose_us,
    }
}

fn missing(error: reqwest::Error) -> NoReply {
    let failure = if error.is_timeout() {
        Failure::Timeout
    } else if error.is_connect() {
        Failure::Connect
    } else {
        Failure::Broken
    };
    NoReply::new(failure, innermost(&error.without_url()))
}
