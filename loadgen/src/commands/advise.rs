//! The `advise` command: another question to runs that exist. In: folders of runs with variants, and what is asked anew. Out: the
//! answer by what was measured. Starts and measures nothing.

use super::answer::{FailOn, exit_code};
use super::resized;
use crate::error::RunError;
use crate::plan::Reasked;
use crate::pricing;
use crate::store::folder;
use clap::Args;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Factors, Pricing, Run, Variant};

/// What is asked in place of what the first run was asked; what is left out stays.
#[derive(Debug, Args)]
pub struct Asked {
    /// An objective: `p99 < 50 ms`, `errors < 0.1 %`; any number of times
    #[arg(long, value_name = "OBJECTIVE")]
    slo: Vec<String>,
    /// Requests per second of all instances together, on average and at the peak
    #[arg(long, value_name = "RPS")]
    demand_rps: Option<f64>,
    /// At the peak, where that is another rate
    #[arg(long, value_name = "RPS", requires = "demand_rps")]
    peak_rps: Option<f64>,
    /// What should be least: usd_per_month, usd_per_10k, p99 or instances
    #[arg(long, value_name = "WHAT")]
    minimise: Option<String>,
    /// How often the answer must be right, as 0.95
    #[arg(long, value_name = "SHARE")]
    confidence: Option<f64>,
    /// Differences that do not matter, as `5 %`
    #[arg(long, value_name = "SHARE")]
    tie: Option<String>,
    /// How full an instance may be at the peak, as `70 %`
    #[arg(long, value_name = "SHARE")]
    utilisation: Option<String>,
    /// Instances that there must be in any case
    #[arg(long, value_name = "N")]
    least_instances: Option<u32>,
    /// Another price list, with an entry for every instance, tier and price that the variants name
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// The instance of the price list, for variants that name none of their own
    #[arg(long, value_name = "NAME", requires = "prices")]
    instance: Option<String>,
    /// Price a feature table of this size, in GiB, and copies and caches that grow with it; latencies stay those that were measured
    #[arg(long, value_name = "GIB", requires = "prices", allow_negative_numbers = true)]
    table_gib: Option<f64>,
}

/// Answers and says so; 3 where what was measured does not decide, 4 where no variant meets the objective.
///
/// # Errors
/// A run that cannot be read or was asked no question, runs that do not go together, or a question that contradicts itself.
pub fn run(folders: &[PathBuf], asked: &Asked, json: bool) -> Result<u8, RunError> {
    let mut runs = Vec::with_capacity(folders.len());
    for folder in folders {
        runs.push((folder.display().to_string(), folder::load(folder)?));
    }
    let mut run = together(runs)?;
    let Some(before) = &run.question else {
        return Err(RunError::Usage(format!("{}: the run was asked no question", run.name)));
    };
    if let Some(file) = &asked.prices {
        run.pricing = Some(priced_by(&run, file, asked)?);
    }
    let again = Reasked {
        slo: asked.slo.clone(),
        demand_rps: asked
            .demand_rps
            .map(|average| (average, asked.peak_rps.unwrap_or(average))),
        minimise: asked.minimise.clone(),
        confidence: asked.confidence,
        tie: asked.tie.clone(),
        utilisation: asked.utilisation.clone(),
        least_instances: asked.least_instances,
    };
    let question = again
        .of(before, &run.limits, run.pricing.is_some())
        .map_err(|fault| RunError::Usage(fault.to_string()))?;
    run.question = Some(question);
    tierlab_analysis::conclude(&mut run);
    if json {
        println!("{}", tierlab_report::answer_json(&run).unwrap_or_default());
    } else {
        print!("{}", tierlab_report::answer_text(&run).unwrap_or_default());
    }
    Ok(exit_code(&run, &[FailOn::Unmet, FailOn::Undecided]))
}

/// What the variants of another run are priced by, beside what those of the first are.
fn join_priced(name: &str, first: &str, prices: &mut Pricing, others: &Pricing, new: &[&str]) {
    let (Some(all), Some(more)) = (&mut prices.priced, &others.priced) else {
        prices.priced = None;
        return;
    };
    if all.stored != more.stored {
        eprintln!("{name} and {first} keep tables of different sizes: `--prices` takes that of {first} for both");
    }
    let more = more
        .variants
        .iter()
        .filter(|variant| new.contains(&variant.name.as_str()));
    all.variants.extend(more.cloned());
}

/// What a run's variants cost by another price list, and with a table of another size where one is asked for.
fn priced_by(run: &Run, file: &Path, asked: &Asked) -> Result<Pricing, RunError> {
    let before = run.pricing.as_ref();
    let instance = asked.instance.as_deref();
    let Some(instance) = instance.or_else(|| before.map(|pricing| pricing.instance.as_str())) else {
        return Err(RunError::Usage(format!(
            "{}: the run names no instance: say which one of {} it is, with `--instance`",
            run.name,
            file.display()
        )));
    };
    let Some(priced) = before.and_then(|pricing| pricing.priced.as_ref()) else {
        return Err(RunError::Usage(format!(
            "{}: the run does not say what its variants are priced by: it was measured without prices or by an earlier version; \
             measure it again for `--prices`",
            run.name
        )));
    };
    let mut pricing = pricing::load(file, instance, &[])?;
    let Some(gib) = asked.table_gib else {
        pricing::add_variants(&mut pricing, file, &priced.variants, priced.stored)?;
        return Ok(pricing);
    };
    resized::add_variants(&mut pricing, file, priced, ("--table-gib", gib))?;
    Ok(pricing)
}

/// One run of the variants of all: those of one name come from the first that has them.
fn together(runs: Vec<(String, Run)>) -> Result<Run, RunError> {
    let mut runs = runs.into_iter();
    let Some((first, mut all)) = runs.next() else {
        return Err(RunError::Usage("no run is named".into()));
    };
    let asked = |name: &str, run: &Run| match &run.question {
        Some(question) => Ok((question.mode, question.batch_size)),
        None => Err(RunError::Usage(format!(
            "{name}: this run was asked no question; `report` shows what it measured"
        ))),
    };
    let kind = asked(&first, &all)?;
    for (name, run) in runs {
        if asked(&name, &run)? != kind {
            return Err(RunError::Usage(format!(
                "{name} and {first} ask about different kinds of requests"
            )));
        }
        if let Some((of, other)) = models(&run, &all) {
            return Err(RunError::Usage(format!(
                "{name} and {first} ask about different models, `{of}` and `{other}`"
            )));
        }
        for (what, of, other) in [
            ("protocols", &run.protocol, &all.protocol),
            (
                "arrivals",
                &asked_as(&run, |factors| &factors.arrivals),
                &asked_as(&all, |factors| &factors.arrivals),
            ),
            (
                "keys",
                &asked_as(&run, |factors| &factors.keys),
                &asked_as(&all, |factors| &factors.keys),
            ),
        ] {
            if of != other {
                eprintln!(
                    "{name} and {first} were measured with different {what}, {of} and {other}: what differs may be that"
                );
            }
        }
        if run.environment.cpu != all.environment.cpu || run.environment.cores != all.environment.cores {
            eprintln!("{name} and {first} were measured on different machines: what differs may be the machine");
        }
        let is_new = |variant: &Variant| !all.variants.iter().any(|known| known.name == variant.name);
        let more: Vec<Variant> = run.variants.iter().filter(|variant| is_new(variant)).cloned().collect();
        let names: Vec<&str> = more.iter().map(|variant| variant.name.as_str()).collect();
        let points = run.points.iter().filter(|point| names.contains(&point.factors.label()));
        all.points.extend(points.cloned());
        if let (Some(prices), Some(others)) = (&mut all.pricing, &run.pricing) {
            let terms = others
                .terms_by_variant
                .iter()
                .filter(|(name, _)| names.contains(&name.as_str()));
            prices
                .terms_by_variant
                .extend(terms.map(|(name, terms)| (name.clone(), terms.clone())));
            join_priced(&name, &first, prices, others, &names);
        }
        all.question_spent_s = all
            .question_spent_s
            .zip(run.question_spent_s)
            .map(|(all, more)| all + more);
        all.environment.origins.extend(run.environment.origins.clone());
        all.variants.extend(more);
    }
    Ok(all)
}

/// The models of two runs, where they differ.
fn models<'a>(a: &'a Run, b: &'a Run) -> Option<(&'a str, &'a str)> {
    let (of_a, of_b) = (&a.points.first()?.factors.model, &b.points.first()?.factors.model);
    (of_a != of_b).then_some((of_a, of_b))
}

/// How a run's requests were made, in words.
fn asked_as(run: &Run, of: fn(&Factors) -> &String) -> String {
    run.points
        .first()
        .map_or_else(String::new, |point| of(&point.factors).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tierlab_analysis::record::{Environment, Limits};

    fn run(model: &str, name: &str) -> (String, Run) {
        let point = json!({
            "factors": {"tier": "t", "cache": "c", "cache_share": 0.0, "model": model, "mode": "realtime", "batch_size": 1,
                "offered_rps": 1.0, "arrivals": "poisson", "keys": "uniform"},
            "repeats": [], "summary": null
        });
        let mut run: Run = serde_json::from_value(json!({
            "schema_version": 1, "name": name, "started_at": "", "finished_at": "", "interrupted": false, "plan_toml": "",
            "protocol": "http", "config_sha256": {}, "environment": Environment::default(), "noise_floor": null, "selfcheck": [], "limits": Limits::default(),
            "pricing": null, "points": [point]
        }))
        .unwrap();
        run.question = Some(
            serde_json::from_value(json!({
                "objectives": [{"percentile": "p99", "limit_us": 1e4}], "error_share": 0.001, "demand": null,
                "minimise": "p99", "mode": "realtime", "batch_size": 1, "budget_s": 60.0, "confidence": 0.95, "tie": 0.05,
                "utilisation": 0.7, "least_instances": 1, "highest_rps": 1000.0
            }))
            .unwrap(),
        );
        (name.to_owned(), run)
    }

    #[test]
    fn runs_of_different_models_do_not_answer_one_question() {
        assert!(together(vec![run("a", "one"), run("a", "two")]).is_ok());
        let error = together(vec![run("a", "one"), run("b", "two")])
            .unwrap_err()
            .to_string();
        assert!(error.contains("different models, `b` and `a`"), "{error}");
    }
}
