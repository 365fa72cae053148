//! goose attacks whose users send with goose's own client. In: scenarios, users, an address. Out: an attack that starts
//! all users at once, prints nothing and installs no handler; and one reply read to its last byte. Knows nothing of
//! schedules or of request contents.

use crate::driver::DriverError;
use crate::reply::{self, BodyError, Limit, NoReply, Received};
use goose::GooseAttack;
use goose::client::GooseClientBuilder;
use goose::config::GooseConfiguration;
use goose::goose::{GooseMethod, GooseRequest, GooseUser, Scenario};
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode, Url};
use tierlab_analysis::record::Failure;

/// Parameters of a goose attack.
pub(crate) struct Attack<'a> {
    pub(crate) host: &'a Url,
    pub(crate) users: usize,
    pub(crate) scenario: Scenario,
    /// True if goose's own metrics count the requests.
    pub(crate) metrics: bool,
}

/// Creates an attack without starting it.
pub(crate) fn attack(attack: Attack<'_>) -> Result<GooseAttack, DriverError> {
    // Field by field: some are private, so no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(attack.host.origin().ascii_serialization());
    configuration.users = Some(attack.users);
    configuration.increase_rate = Some("1000000".into());
    configuration.quiet = 2;
    configuration.no_metrics = !attack.metrics;
    // Its metrics are reset once all users are up: without that goose prints a line on stdout.
    configuration.no_transaction_metrics = true;
    configuration.no_scenario_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    GooseAttack::initialize_with_config(configuration)
        .and_then(|attack| attack.set_client_builder_without_cookies(GooseClientBuilder::new().without_cookies()))
        .map(|made| made.register_scenario(attack.scenario))
        .map_err(|error| DriverError::Goose(Box::new(error)))
}

/// Request sent by goose.
pub(crate) struct Sent {
    /// Complete reply.
    pub(crate) reply: Result<Read, NoReply>,
    /// Time by goose's own clock, up to the reply's headers, in microseconds; `None` if goose refused to send.
    pub(crate) goose_us: Option<u64>,
}

/// Reply read by goose's client.
pub(crate) struct Read {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Received,
}

/// goose's name of a method; plans have no others.
pub(crate) fn method(method: &Method) -> GooseMethod {
    match *method {
        Method::DELETE => GooseMethod::Delete,
        Method::HEAD => GooseMethod::Head,
        Method::PATCH => GooseMethod::Patch,
        Method::POST => GooseMethod::Post,
        Method::PUT => GooseMethod::Put,
        _ => GooseMethod::Get,
    }
}

/// Sends a request by goose and reads the reply to its last byte.
pub(crate) async fn send(user: &mut GooseUser, request: GooseRequest<'_>, limit: &Limit) -> Sent {
    let answered = match user.request(request).await {
        Ok(answered) => answered,
        Err(error) => {
            return Sent {
                reply: Err(NoReply {
                    failure: Failure::Broken,
                    says: Some(format!("goose: {error}")),
                }),
                goose_us: None,
            };
        }
    };
    let goose_us = Some(answered.request.response_time_micros());
    let reply = match answered.response {
        Err(error) => Err(failure(&error).into()),
        Ok(response) => {
            let (status, headers) = (response.status(), response.headers().clone());
            match reply::read(reqwest::Body::from(response), limit).await {
                Ok(body) => Ok(Read { status, headers, body }),
                Err(BodyError::TooLarge(what)) => Err(what.into()),
                Err(BodyError::Lost(error)) => Err(failure(&error).into()),
            }
        }
    };
    Sent { reply, goose_us }
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        Failure::Timeout
    } else if error.is_connect() {
        Failure::Connect
    } else {
        Failure::Broken
    }
}
