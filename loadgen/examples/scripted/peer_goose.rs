//! goose as its users run it: a closed loop of users, its throttle for the rate, its own percentiles. In: an address.
//! Out: its report. The `driver` of `tierlab-load` explains the differences to this project.

use clap::Args;
use goose::GooseAttack;
use goose::config::GooseConfiguration;
use goose::goose::{GooseMethod, GooseRequest, GooseUser, Scenario, Transaction, TransactionFunction};
use goose::metrics::GooseRequestMetricTimingData;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::sync::Arc;

const PATH: &str = "/v2/models/m/infer";
const BODY: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    url: String,
    /// Requests per second, all users together
    #[arg(long)]
    rate: usize,
    #[arg(long, default_value_t = 50)]
    users: usize,
    #[arg(long)]
    seconds: usize,
}

pub(crate) async fn run(options: Options) -> Result<Value, Box<dyn std::error::Error>> {
    let function: TransactionFunction = Arc::new(|user: &mut GooseUser| {
        Box::pin(async move {
            let builder = user
                .get_request_builder(&GooseMethod::Post, PATH)?
                .header(CONTENT_TYPE, "application/json")
                .body(BODY);
            let request = GooseRequest::builder()
                .method(GooseMethod::Post)
                .path(PATH)
                .set_request_builder(builder)
                .build();
            let reply = user.request(request).await?;
            if let Ok(reply) = reply.response {
                // Unread bodies would keep the connection from being reused.
                let _ = reply.bytes().await;
            }
            Ok(())
        })
    });
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(options.url);
    configuration.users = Some(options.users);
    configuration.increase_rate = Some("1000000".into());
    configuration.run_time = Some(options.seconds.to_string());
    configuration.throttle_requests = Some(options.rate);
    configuration.quiet = 2;
    configuration.no_print_metrics = true;
    configuration.no_telnet = true;
    let scenario = Scenario::new("infer").register_transaction(Transaction::new(function));
    let attack = GooseAttack::initialize_with_config(configuration)?.register_scenario(scenario);
    let metrics = Box::pin(attack.execute()).await?;
    let request = metrics.requests.values().next().ok_or("goose sent nothing")?;
    Ok(json!({
        "requests": request.raw_data.counter,
        "failed": request.fail_count,
        "raw": percentiles(&request.raw_data),
        "coordinated_omission_mitigated": request.coordinated_omission_data.as_ref().map(percentiles),
    }))
}

fn percentiles(data: &GooseRequestMetricTimingData) -> Value {
    let [p50_us, p95_us, p99_us] = [0.5, 0.95, 0.99].map(|quantile| data.percentile_us(quantile));
    json!({"p50_us": p50_us, "p95_us": p95_us, "p99_us": p99_us})
}
