//! The `advise` command: another question to finished runs. In: folders of runs with variants, and the changed parts of
//! the question. Out: the answer from the measured steps. Starts and measures nothing.

use super::judge::{AnswerFailure, answer_exit_code};
use super::lab::resize;
use super::report::load_earlier;
use crate::error::RunError;
use crate::plan::QuestionChanges;
use crate::store::folder::sha256_of;
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Factors, PricedVariant, Pricing, Run, Variant};
use tierlab_instrument::prices;

/// Options of `advise`: changes to the first run's question; the rest stays.
#[derive(Debug, Args)]
pub struct AdviseOptions {
    /// Folders of labs with a question, for one model and one kind of request; their variants are combined
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Other parts of the question.
    #[command(flatten)]
    question: QuestionChanges,
    /// Another price list, with an entry for every instance, tier and price that the variants name [default: the run's own]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Instance in the price list, for variants that name none
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Table size in GiB to price, with copies and caches that grow with it; latencies stay as measured
    #[arg(long, value_name = "GIB", allow_negative_numbers = true)]
    table_gib: Option<f64>,
    /// Prints answer.json
    #[arg(long)]
    json: bool,
}

/// Prints the answer and returns the exit code: 3 if the measured steps do not decide, 4 if no variant meets the
/// objective.
///
/// # Errors
/// A run that cannot be read or has no question, runs that cannot be combined, or a question that contradicts itself.
pub fn run(options: &AdviseOptions) -> Result<u8, RunError> {
    let load = |folder: &PathBuf| Ok((folder.display().to_string(), load_earlier(folder)?));
    // A folder that is named twice counts once; a missing one is reported by `load`.
    let mut seen = BTreeSet::new();
    let is_new = |folder: &&PathBuf| seen.insert(folder.canonicalize().ok());
    let runs = options.runs.iter().filter(is_new).map(load);
    let mut run = combine(runs.collect::<Result<_, RunError>>()?)?;
    let prices = match &options.prices {
        None if options.instance.is_some() || options.table_gib.is_some() => Some(recorded_price_list(&run)?),
        prices => prices.clone(),
    };
    if let Some(file) = prices {
        run.pricing = Some(reprice(&run, &file, options)?);
    }
    let changed = |original| options.question.apply(original, &run.limits, run.pricing.is_some());
    let question = run.question.as_ref().map(changed).transpose();
    run.question = question.map_err(RunError::usage)?;
    tierlab_analysis::conclude(&mut run);
    match options.json {
        true => println!("{}", tierlab_report::answer_json(&run).unwrap_or_default()),
        false => print!("{}", tierlab_report::answer_text(&run).unwrap_or_default()),
    }
    Ok(answer_exit_code(
        &run,
        &[AnswerFailure::Unmet, AnswerFailure::Undecided],
    ))
}

/// Adds the pricing inputs of another run's variants to those of the first run.
fn join_pricing_inputs(name: &str, first: &str, prices: &mut Pricing, others: &Pricing, new: &[&str]) {
    let (Some(all), Some(added)) = (&mut prices.priced, &others.priced) else {
        prices.priced = None;
        return;
    };
    if all.stored != added.stored {
        eprintln!("{name} and {first} have tables of different sizes: `--prices` uses the size of {first} for both");
    }
    let is_new = |variant: &&PricedVariant| new.contains(&variant.name.as_str());
    all.variants.extend(added.variants.iter().filter(is_new).cloned());
}

/// Returns the run's own price list, unchanged since the run was measured.
fn recorded_price_list(run: &Run) -> Result<PathBuf, RunError> {
    let plan: toml::Table = run.plan_toml.parse().unwrap_or_default();
    let listed = plan.get("prices").and_then(toml::Value::as_str).map(Path::new);
    let is_listed = |file: &Path| listed.is_some_and(|listed| file.file_name() == listed.file_name());
    let recorded = run.config_sha256.iter().find(|(file, _)| is_listed(Path::new(file)));
    let Some((file, recorded)) = recorded else {
        let problem = format!("run has no price list: {}; name one with --prices FILE", run.name);
        return Err(RunError::Usage(problem));
    };
    let file = PathBuf::from(file);
    if sha256_of(&file).is_ok_and(|hash| hash == *recorded) {
        return Ok(file);
    }
    let problem = "price list of the run is missing or has changed; name one with --prices FILE";
    Err(RunError::about(&file, problem))
}

/// Prices a run's variants by another price list, and with another table size if one is given.
fn reprice(run: &Run, file: &Path, options: &AdviseOptions) -> Result<Pricing, RunError> {
    let recorded = run.pricing.as_ref();
    let instance = options.instance.as_deref();
    let Some(instance) = instance.or_else(|| recorded.map(|pricing| pricing.instance.as_str())) else {
        let prices = file.display();
        let problem = format!("the run names no instance: pass one of {prices} by `--instance`");
        return Err(RunError::about(Path::new(&run.name), problem));
    };
    let Some(priced) = recorded.and_then(|pricing| pricing.priced.as_ref()) else {
        let problem = "the run has no pricing inputs of its variants: it was measured without prices or by an earlier version; \
                    measure it again for `--prices`";
        return Err(RunError::about(Path::new(&run.name), problem));
    };
    let mut pricing = prices::load(file, instance, &[])?;
    match options.table_gib {
        None => prices::add_variants(&mut pricing, file, &priced.variants, priced.stored)?,
        Some(gib) => resize(&mut pricing, file, priced, ("--table-gib", gib))?,
    }
    Ok(pricing)
}

/// Combines runs into one run of all variants; variants of one name come from the first run that has them.
fn combine(runs: Vec<(String, Run)>) -> Result<Run, RunError> {
    let mut runs = runs.into_iter();
    let Some((first, mut all)) = runs.next() else {
        return Err(RunError::Usage("no run given".into()));
    };
    let request_kind = |name: &str, run: &Run| {
        let kind = run.question.as_ref().map(|q| (q.mode, q.batch_size));
        let problem = "this run has no question; `report` shows its results";
        kind.ok_or_else(|| RunError::about(Path::new(name), problem))
    };
    let model = |run: &Run| run.points.first().map(|point| point.factors.model.clone());
    let kind = request_kind(&first, &all)?;
    for (name, run) in runs {
        if request_kind(&name, &run)? != kind {
            let problem = format!("{name} and {first} ask about different kinds of requests");
            return Err(RunError::Usage(problem));
        }
        if let (Some(of), Some(other)) = (model(&run), model(&all))
            && of != other
        {
            let problem = format!("{name} and {first} ask about different models, `{of}` and `{other}`");
            return Err(RunError::Usage(problem));
        }
        let [of_run, of_all] = [&run, &all].map(request_settings);
        for ((setting, of), (_, other)) in of_run.into_iter().zip(of_all) {
            if of == other || of.is_empty() || other.is_empty() {
                continue;
            }
            let both = format!("{name} and {first} were measured with different {setting}, {of} and {other}");
            eprintln!("{both}: differences may come from that");
        }
        if run.environment.cpu != all.environment.cpu || run.environment.cores != all.environment.cores {
            eprintln!("{name} and {first} were measured on different machines: differences may come from the machine");
        }
        let is_new = |variant: &Variant| !all.variants.iter().any(|existing| existing.name == variant.name);
        let (added, known): (Vec<Variant>, Vec<Variant>) = run.variants.iter().cloned().partition(is_new);
        for Variant { name: variant, .. } in &known {
            eprintln!("{name}: variant `{variant}` is left out, since an earlier folder has one of this name");
        }
        let names: Vec<&str> = added.iter().map(|variant| variant.name.as_str()).collect();
        let points = run.points.iter().filter(|point| names.contains(&point.factors.label()));
        all.points.extend(points.cloned());
        if let (Some(prices), Some(others)) = (&mut all.pricing, &run.pricing) {
            let mut terms = others.terms_by_variant.clone();
            terms.retain(|name, _| names.contains(&name.as_str()));
            prices.terms_by_variant.extend(terms);
            prices.sources.extend(others.sources.iter().cloned());
            join_pricing_inputs(&name, &first, prices, others, &names);
        }
        // A run whose variants are all left out, such as a copy, adds no steps.
        if !added.is_empty() {
            let spent_s = all.question_spent_s.zip(run.question_spent_s);
            all.question_spent_s = spent_s.map(|(all, added)| all + added);
            let questions = all.question.iter_mut().zip(&run.question);
            questions.for_each(|(all, added)| all.budget_s += added.budget_s);
        }
        let earlier = std::mem::take(&mut all.environment.origins);
        all.environment.origins = run.environment.origins.into_iter().chain(earlier).collect();
        all.variants.extend(added);
    }
    Ok(all)
}

/// Describes in words how a run's requests were generated, and its data by their hashes; empty if unknown.
fn request_settings(run: &Run) -> [(&'static str, String); 4] {
    let factors = run.points.first().map(|point| &point.factors);
    let of = |of: fn(&Factors) -> &String| factors.map(of).cloned().unwrap_or_default();
    [
        ("protocols", run.protocol.clone()),
        ("arrivals", of(|factors| &factors.arrivals)),
        ("keys", of(|factors| &factors.keys)),
        ("data", run.data()),
    ]
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
        assert!(combine(vec![run("a", "one"), run("a", "two")]).is_ok());
        let error = combine(vec![run("a", "one"), run("b", "two")]).unwrap_err().to_string();
        assert!(error.contains("different models, `b` and `a`"), "{error}");
    }

    #[test]
    fn other_data_are_another_setting_of_a_run() {
        let of_table = |folder: &str, hash: &str| {
            let (_, mut run) = run("a", "r");
            let files = [("tiers/t.toml", folder), ("t.rows", hash), ("m/1/model.onnx", "ab")];
            let files = files.map(|(file, hash)| (format!("{folder}/{file}"), hash.to_owned()));
            run.config_sha256 = files.into_iter().collect();
            let [.., (setting, data)] = request_settings(&run);
            (setting, data)
        };
        let first = of_table("one", "0123456789abcdef");
        assert_eq!(first, ("data", "model.onnx ab with t.rows 0123456789ab".to_owned()));
        assert_eq!(of_table("two", "0123456789abcdef"), first);
        assert_ne!(of_table("two", "fedcba9876543210"), first);
        let [.., (_, unknown)] = request_settings(&run("a", "r").1);
        assert_eq!(unknown, "");
    }

    #[test]
    fn a_copy_of_a_run_adds_no_time() {
        let of_variant = |folder: &str, variant: &str| {
            let (name, mut run) = run("a", folder);
            let variant = json!({"name": variant, "tier": "t", "origin": "real", "cache": "c", "cache_share": 0.0});
            run.variants = vec![serde_json::from_value(variant).unwrap()];
            run.question_spent_s = Some(60.0);
            (name, run)
        };
        let (first, copy) = (of_variant("first", "nvme"), of_variant("copy", "nvme"));
        let combined = combine(vec![first, copy, of_variant("other", "s3")]).unwrap();
        assert_eq!((combined.question_spent_s, combined.variants.len()), (Some(120.0), 2));
        // Both runs' time is of both runs' budgets.
        assert_eq!(combined.question.unwrap().budget_s, 120.0);
    }

    #[test]
    fn a_variant_keeps_its_origin_beside_another_of_its_name() {
        let of_origin = |folder: &str, origin: &str| {
            let (name, mut run) = run("a", folder);
            let variant = json!({"name": "s3", "tier": "s3", "origin": "real", "cache": "c", "cache_share": 0.0});
            run.variants = vec![serde_json::from_value(variant).unwrap()];
            run.environment.origins.insert("s3".to_owned(), origin.to_owned());
            (name, run)
        };
        let combined = combine(vec![of_origin("first", "real"), of_origin("second", "embedded")]).unwrap();
        assert_eq!(combined.environment.origins["s3"], "real");
    }

    #[test]
    fn prices_of_every_run_keep_their_sources() {
        let priced = |folder: &str| {
            let (name, mut run) = run("a", folder);
            run.pricing = Some(Pricing {
                sources: vec![format!("{folder}: $1/h, not checked")],
                ..Pricing::default()
            });
            (name, run)
        };
        let sources = combine(vec![priced("one"), priced("two")])
            .unwrap()
            .pricing
            .unwrap()
            .sources;
        assert_eq!(sources, ["one: $1/h, not checked", "two: $1/h, not checked"]);
    }
}
