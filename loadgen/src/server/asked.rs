//! Requests to any server outside a step. In: an endpoint and a path. Out: a successful reply, one reading of metrics, or an
//! error that names the address and gives advice.

use super::scrape::Scrape;
use std::time::Duration;
use tierlab_load::endpoint::{Answer, Ask, Endpoint};
use tierlab_load::reply::{Limit, METRICS_BYTES};

/// Time limit for one request, its connection included.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of readings that check whether one address of metrics always reaches the same process.
const SAME_ASKED: u32 = 4;

/// Failed request to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {what}")]
pub struct ControlError {
    /// Requested URL.
    pub url: String,
    /// Error with advice.
    pub what: String,
}

pub(super) async fn scrape(endpoint: &Endpoint) -> Result<Scrape, ControlError> {
    let url = endpoint.address.url();
    let answer = fetched(endpoint, &url, Ask::get(""), &Limit::of(METRICS_BYTES)).await?;
    Scrape::parse(&String::from_utf8_lossy(&answer.body)).map_err(|error| refusal(&url, &error.to_string()))
}

/// Describes several servers that take turns at one address of metrics; `None` if only one seems to answer.
pub(super) async fn several(endpoint: &Endpoint) -> Result<Option<String>, ControlError> {
    let first = scrape(endpoint).await?.started_s();
    for _ in 1..SAME_ASKED {
        if scrape(endpoint).await?.started_s() != first {
            return Ok(Some(
                "several servers, started at different times, take turns at this address of metrics, as behind a balancer, so their \
                 counters are useless; give each replica's by --metrics-url (`target.metrics`), or pass --no-metrics"
                    .to_owned(),
            ));
        }
    }
    Ok(None)
}

/// Checks for metrics at an address that was only guessed; returns the error if there are none. An endless page is refused.
pub(super) async fn probe(endpoint: &Endpoint) -> Result<Result<(), ControlError>, ControlError> {
    let url = endpoint.address.url();
    match endpoint.ask(Ask::get(""), &Limit::of(METRICS_BYTES), TIMEOUT).await {
        Err(error) if error.is_too_large => Err(refusal(&url, &error.says)),
        _ => Ok(scrape(endpoint).await.map(|_| ())),
    }
}

pub(super) async fn fetched(
    endpoint: &Endpoint,
    url: &str,
    ask: Ask<'_>,
    limit: &Limit,
) -> Result<Answer, ControlError> {
    let asked = endpoint.ask(ask, limit, TIMEOUT).await;
    let answer = asked.map_err(|error| {
        let is_silent = ["no connection", "no answer in"]
            .iter()
            .any(|text| error.says.starts_with(text));
        let hint = if is_silent {
            "; check that the server runs there"
        } else {
            ""
        };
        refusal(url, &format!("no answer: {error}{hint}"))
    })?;
    if answer.status.is_success() {
        return Ok(answer);
    }
    Err(refusal(url, &answered(url, &answer)))
}

/// Describes an unsuccessful reply, with advice if there is any.
pub(super) fn answered(url: &str, answer: &Answer) -> String {
    let said: String = String::from_utf8_lossy(&answer.body).chars().take(500).collect();
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let todo = match answer.status.as_u16() {
        301 | 302 | 303 | 307 | 308 => {
            let to = answer.headers.get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let to = tierlab_load::redact::urls(to);
            format!("; it redirects to {to}, and redirects are not followed: give that address")
        }
        401 | 403 => "; give a token by --token-env NAME or --token-file FILE (`target.token_env`, `target.token_file`)".to_owned(),
        // Metrics and the like involve no model.
        404 if url.contains("/v2/models/") => "; check the model's name, and that the address has the prefix of its routes (--url http://HOST:PORT/PREFIX)".to_owned(),
        _ => String::new(),
    };
    format!("answered {}: {}{todo}", answer.status, said.trim())
}

pub(super) fn refusal(url: &str, what: &str) -> ControlError {
    // A refusal of an address names it already.
    let what = what
        .strip_prefix(url)
        .map_or(what, |rest| rest.trim_start_matches(": "));
    ControlError {
        url: url.to_owned(),
        what: what.to_owned(),
    }
}
