//! Sweeps without a plan. In: a model and rates from the command line. Out: the plan that a file would hold.

use crate::error::RunError;
use crate::plan::Plan;
use clap::Args;
use std::path::Path;

/// Requests per rate: more than a p99 needs, by chance of a Poisson schedule too.
const REQUESTS: f64 = 1_300.0;
/// Repeats of every rate.
const REPEATS: f64 = 5.0;
/// Shortest and longest window of a repeat, in seconds.
const WINDOW_S: (f64, f64) = (2.0, 8.0);

/// Requests of a sweep without a plan.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Without a plan")]
pub struct Planless {
    /// Model on the server, instead of a plan
    #[arg(long, value_name = "NAME", conflicts_with = "plan", requires = "url")]
    model: Option<String>,
    /// Requests per second; may be repeated. Rates from 33 on show a p99 within a minute
    #[arg(long = "rate", value_name = "RPS", default_value = "100", requires = "model")]
    rates: Vec<f64>,
}

impl Planless {
    /// Returns the plan. Resuming such a run needs the same options.
    ///
    /// # Errors
    /// A name or rate that no plan could have.
    pub fn plan(&self, is_grpc: bool) -> Result<Plan, RunError> {
        let Some(name) = self.model.as_deref() else {
            let what = "name a plan, or measure without one: sweep --url http://HOST:PORT --model NAME --rate RPS";
            return Err(RunError::Usage(what.into()));
        };
        let slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let window_s = (REQUESTS / REPEATS / slowest).ceil().clamp(WINDOW_S.0, WINDOW_S.1);
        let text = format!(
            "name = {name:?}\nmodel = {name:?}\nseed = 1\nprotocol = \"{}\"\nrepeats = {REPEATS}\nwarmup_s = 1\n\
             step_s = {window_s}\ndrain_s = 2\n\n[[load]]\nmode = \"realtime\"\nrates = {:?}\n",
            if is_grpc { "grpc" } else { "http" },
            self.rates
        );
        Ok(Plan::parse(Path::new("command line"), &text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(model: &str, rates: &[f64]) -> Result<Plan, RunError> {
        let rates = rates.to_vec();
        let model = Some(model.to_owned());
        Planless { model, rates }.plan(false)
    }

    #[test]
    fn every_rate_from_33_on_has_a_p99_within_a_minute() {
        for rate in [33.0, 100.0, 20_000.0] {
            let plan = plan("m", &[rate]).unwrap();
            let measured_s = f64::from(plan.repeats) * plan.window.as_secs_f64();
            let all_s = f64::from(plan.repeats) * plan.step_limit().as_secs_f64();
            assert!(
                rate * measured_s > 1_250.0 && all_s < 60.0,
                "{rate}: {measured_s} of {all_s} s"
            );
        }
        assert_eq!(plan("m", &[50.0, 2_000.0]).unwrap().loads.len(), 2);
    }

    #[test]
    fn names_and_rates_are_checked_as_those_of_a_plan() {
        for (model, rate) in [
            ("a\"\nseed = 2", 10.0),
            ("../m", 10.0),
            ("m", -1.0),
            ("m", f64::NAN),
            ("m", f64::INFINITY),
        ] {
            let error = plan(model, &[rate]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }
}
