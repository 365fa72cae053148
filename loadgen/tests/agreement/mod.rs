//! Disagreements between the files of a run: `answer.json`, `run.json`, `summary.csv` and `report.md`, read as they lie, without the
//! types that wrote them. Every finding is one line.

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// Rates and figures closer than this share are the same: `summary.csv` rounds to six digits.
const SAME: f64 = 2e-3;

/// A row of `summary.csv` by column.
type Row = HashMap<String, String>;

/// Every disagreement between the views of a folder and the run of another, which may be the same folder. Without `run.json` the views
/// are compared with each other.
pub(crate) fn disagreements(views: &Path, run: &Path) -> Vec<String> {
    let read = |folder: &Path, file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let json = |folder: &Path, file: &str| -> Value { serde_json::from_str(&read(folder, file)).unwrap() };
    let rows = rows(&views.join("summary.csv"));
    let record = run.join("run.json").is_file().then(|| json(run, "run.json"));
    let mut found = record.as_ref().map_or_else(Vec::new, |record| of_points(record, &rows));
    if views.join("answer.json").is_file() {
        let answer = json(views, "answer.json");
        found.extend(of_answer(&answer, &rows));
        found.extend(of_text(&answer, &read(views, "report.md")));
        if let Some(record) = record {
            found.extend(of_disturbed(&answer, &record));
            if views == run && !is_same(&answer, &record["answer"]) {
                found.push("answer.json and the answer of run.json differ".to_owned());
            }
        }
    }
    found
}

/// Every disagreement between two answers to one question: of the lab, and of `advise`.
pub(crate) fn between(answer: &Value, advised: &Value) -> Vec<String> {
    let keys = ["outcome", "best", "confidence", "confirmed", "ranking"];
    let differ = keys.into_iter().filter(|key| !is_same(&answer[key], &advised[key]));
    differ.map(|key| format!("`advise` says another `{key}`")).collect()
}

fn rows(file: &Path) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(file).unwrap();
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let row = |record: csv::StringRecord| names.iter().cloned().zip(record.iter().map(str::to_owned)).collect();
    reader.records().map(|record| row(record.unwrap())).collect()
}

/// True if equal except for the last digits of numbers, which a text may round.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => near(a.as_f64().unwrap(), b.as_f64().unwrap(), 1e-9),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}

fn near(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * a.abs().max(b.abs())
}

fn number(row: &Row, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

/// `summary.csv` has the points of `run.json`, each with as many repeats.
fn of_points(record: &Value, rows: &[Row]) -> Vec<String> {
    let points = record["points"].as_array().unwrap();
    let repeats: usize = points
        .iter()
        .map(|point| point["repeats"].as_array().unwrap().len())
        .sum();
    let in_rows: f64 = rows.iter().filter_map(|row| number(row, "repeats")).sum();
    if points.len() == rows.len() && repeats as f64 == in_rows {
        return Vec::new();
    }
    vec![format!(
        "run.json has {} points and {repeats} repeats, summary.csv {} and {in_rows}",
        points.len(),
        rows.len()
    )]
}

/// The answer counts no more disturbed steps than were measured.
fn of_disturbed(answer: &Value, record: &Value) -> Vec<String> {
    let points = record["points"].as_array().unwrap().iter();
    let repeats = points.flat_map(|point| point["repeats"].as_array().unwrap());
    let disturbed = repeats.filter(|repeat| !repeat["disturbed"].is_null()).count();
    if answer["disturbed_steps"].as_u64().unwrap() <= disturbed as u64 {
        return Vec::new();
    }
    vec![format!("more disturbed steps than the {disturbed} of run.json")]
}

fn of_answer(answer: &Value, rows: &[Row]) -> Vec<String> {
    let question = &answer["question"];
    let asked: Vec<&Row> = rows
        .iter()
        .filter(|row| row["mode"] == question["mode"].as_str().unwrap())
        .filter(|row| row["mode"] == "realtime" || number(row, "batch_size") == question["batch_size"].as_f64())
        .collect();
    let mut found = of_outcome(answer);
    let ranking = answer["ranking"].as_array().unwrap();
    for ranked in ranking {
        let name = ranked["variant"].as_str().unwrap();
        let own: Vec<&Row> = asked.iter().copied().filter(|row| row["variant"] == name).collect();
        let said = [
            of_percentiles(question, ranked, &own),
            of_rates(question, ranked),
            of_intervals(ranked),
        ];
        found.extend(said.into_iter().flatten().map(|what| format!("{name}: {what}")));
    }
    found.extend(cheapest(answer));
    let (spent, budget) = (
        answer["spent_s"].as_f64().unwrap(),
        question["budget_s"].as_f64().unwrap(),
    );
    if spent > 1.1 * budget + 10.0 {
        found.push(format!("spent {spent} s of a budget of {budget} s"));
    }
    found
}

/// The outcome agrees with the best, its confirmation and the confidence.
fn of_outcome(answer: &Value) -> Vec<String> {
    let ranking = answer["ranking"].as_array().unwrap();
    let best = ranking.iter().position(|ranked| ranked["variant"] == answer["best"]);
    let (confidence, asked) = (&answer["confidence"], &answer["question"]["confidence"]);
    let is_met = best.is_some_and(|best| ranking[best]["outcome"] == "met");
    let is_out = best.is_some_and(|best| ranking[best]["outcome"] == "not_met");
    let mut found = Vec::new();
    let mut check = |is_wrong: bool, what: &str| found.extend(is_wrong.then(|| what.to_owned()));
    match answer["outcome"].as_str().unwrap() {
        "decided" => {
            check(!is_met, "decided, and the best is not said to meet the objective");
            check(best != Some(0), "decided, and the best is not the first");
            check(answer["confirmed"] != true, "decided without being confirmed");
            check(confidence != asked, "decided at another confidence than asked for");
            check(answer["open"].is_array(), "decided with open questions");
        }
        "undecided" => {
            check(is_out, "the likeliest does not meet the objective");
            check(
                confidence.as_f64() >= asked.as_f64(),
                "undecided at the confidence that was asked for",
            );
            check(!answer["open"].is_array(), "undecided, and nothing is said to be open");
        }
        _ => check(
            ranking.iter().any(|ranked| ranked["outcome"] == "met"),
            "no variant meets the objective, and one is said to",
        ),
    }
    found
}

/// Percentiles next to a variant come from valid points, and say the same of the objective as its outcome.
fn of_percentiles(question: &Question, ranked: &Value, own: &[&Row]) -> Vec<String> {
    let mut found = Vec::new();
    let at_rps = ranked["at_rps"].as_f64();
    let here = own.iter().find(|row| {
        at_rps
            .zip(number(row, "offered_rps"))
            .is_some_and(|(a, b)| near(a, b, SAME))
    });
    if let Some(p99) = ranked["p99_us"].as_f64() {
        match here {
            None => found.push(format!("a p99 at {at_rps:?}/s, where summary.csv has no point")),
            Some(row) if row["verdict"] != "valid" => {
                found.push(format!("its p99 comes from a point that is {}", row["verdict"]));
            }
            Some(row) if !number(row, "p99_us").is_some_and(|other| near(p99, other, SAME)) => {
                found.push(format!("p99 {p99} us, and {} us in summary.csv", row["p99_us"]));
            }
            Some(_) => {}
        }
    }
    if ranked["outcome"] != "met" {
        return found;
    }
    if !own.iter().any(|row| row["verdict"] != "invalid") {
        found.push("meets the objective without a valid point".to_owned());
    }
    for objective in question["objectives"].as_array().unwrap() {
        let percentile = objective["percentile"].as_str().unwrap_or_default();
        let limit = objective["limit_us"].as_f64();
        let measured = here.filter(|row| row["verdict"] == "valid");
        let us = measured.and_then(|row| number(row, &format!("{percentile}_us")));
        if us.zip(limit).is_some_and(|(us, limit)| us > limit) {
            found.push(format!(
                "meets the objective, and its {percentile} at {at_rps:?}/s is {us:?} us"
            ));
        }
    }
    found
}

type Question = Value;

/// A bound is marked as one, and instances and dollars above it are unknown.
fn of_rates(question: &Question, ranked: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Some(highest) = ranked["highest_rps"].as_f64() else {
        return found;
    };
    let is_bound = ranked["highest_is_bound"] == true;
    if is_bound && !ranked["highest_rps_hi"].is_null() {
        found.push("its highest rate is a bound and has an upper end".to_owned());
    }
    let peak = question["demand"]["peak_rps"].as_f64();
    let [utilisation, least, most] =
        ["utilisation", "least_instances", "highest_rps"].map(|key| question[key].as_f64().unwrap());
    if let (Some(peak), Some(instances)) = (peak, ranked["instances"].as_f64()) {
        let filled_to = if question["minimise"] == "p99" {
            1.0
        } else {
            utilisation
        };
        let needed = |highest: f64| (peak / (filled_to * highest.min(most)) - 1e-6).ceil().max(least);
        if instances != needed(highest) {
            found.push(format!(
                "{instances} instances of {highest}/s, where {} are needed",
                needed(highest)
            ));
        }
        let fewer = needed(f64::INFINITY) < instances;
        let [usd, lo] = ["usd_per_month", "usd_per_month_lo"].map(|key| ranked[key].as_f64());
        if is_bound && fewer && usd.is_some() && lo >= usd {
            found.push("priced at a bound as if it were the server's limit".to_owned());
        }
        if is_bound && fewer && ranked["instances_lo"].as_f64().is_none_or(|lo| lo >= instances) {
            found.push("a number of instances at a bound as if it were the server's limit".to_owned());
        }
    }
    found
}

/// Values lie within their intervals.
fn of_intervals(ranked: &Value) -> Vec<String> {
    let keys = ["p99_us", "highest_rps", "usd_per_month"];
    let outside = keys.into_iter().filter(|key| {
        let [value, lo, hi] = ["", "_lo", "_hi"].map(|end| ranked[format!("{key}{end}")].as_f64());
        value.is_some_and(|value| {
            lo.is_some_and(|lo| lo > value * (1.0 + 1e-6)) || hi.is_some_and(|hi| hi < value * (1.0 - 1e-6))
        })
    });
    let mut found: Vec<String> = outside
        .map(|key| format!("`{key}` lies outside of its interval"))
        .collect();
    if ranked["usd_per_month"].is_null() && !ranked["usd_per_month_lo"].is_null() {
        found.push("`usd_per_month_lo` has no `usd_per_month`".to_owned());
    }
    found
}

/// The best variant is the cheapest, or marked as within the tie of it.
fn cheapest(answer: &Value) -> Vec<String> {
    let key = match answer["question"]["minimise"].as_str().unwrap() {
        "usd_per_10k" => "usd_per_10k",
        "instances" => "instances",
        "usd_per_month" => "usd_per_month",
        _ => return Vec::new(),
    };
    let ranking = answer["ranking"].as_array().unwrap();
    let Some(best) = ranking.first().filter(|_| answer["outcome"] == "decided") else {
        return Vec::new();
    };
    let tie = 1.0 + answer["question"]["tie"].as_f64().unwrap();
    let others = ranking[1..].iter().filter(|other| other["outcome"] == "met");
    let less = others.filter(|other| other[key].as_f64() < best[key].as_f64() && !other[key].is_null());
    let said = best["why"].as_str().unwrap().contains("within the tie");
    less.filter_map(|other| {
        let within = best[key].as_f64()? <= tie * other[key].as_f64()?;
        let name = &other["variant"];
        match (within, said) {
            (false, _) => Some(format!("{name} has less of `{key}` than the best, beyond the tie")),
            (true, false) => Some(format!(
                "{name} has less of `{key}` than the best, and the tie is not said"
            )),
            (true, true) => None,
        }
    })
    .collect()
}

/// The report agrees with `answer.json` about the answer.
fn of_text(answer: &Value, report: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |is_wrong: bool, what: &str| found.extend(is_wrong.then(|| what.to_owned()));
    let is_open = answer["outcome"] == "undecided";
    check(
        is_open && report.contains("Confidence "),
        "report.md prints a confidence beside what is not decided",
    );
    check(
        is_open != report.contains("**Not decided within"),
        "report.md and answer.json differ on whether it is decided",
    );
    for ranked in answer["ranking"].as_array().unwrap() {
        let start = format!("| {} ", ranked["variant"].as_str().unwrap().replace('_', "\\_"));
        let mut rows = report.lines().filter(|line| line.starts_with(&start));
        let Some(row) = rows.next() else {
            found.push(format!("{}: ranked, and not in report.md", ranked["variant"]));
            continue;
        };
        if ranked["highest_rps"].is_number() && row.contains("| none |") {
            found.push(format!(
                "{}: has a highest rate, and none in report.md",
                ranked["variant"]
            ));
        }
        let outcome = match ranked["outcome"].as_str().unwrap() {
            "met" => "| pass |",
            "not_met" => "| fail |",
            _ => "| open |",
        };
        if !row.contains(outcome) {
            found.push(format!("{}: another outcome in report.md: {row}", ranked["variant"]));
        }
    }
    found
}
