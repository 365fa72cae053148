//! Verdicts, cautions and prices, and their words in every report.

use crate::{answered, everywhere, run, run_folder, scale, synthetic, with};
use std::path::Path;
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{
    AnswerOutcome, DeviceReads, GpuUse, Minimise, PricedVariant, PricedVariants, Resumption, Run, StoredBytes, Verdict,
};
use tierlab_report::table;

#[test]
fn verdicts_tell_saturation_from_a_broken_measurement() {
    let verdict = |tier: &str, rps: f64| {
        let point = run()
            .points
            .iter()
            .find(|p| p.factors.tier == tier && p.factors.offered_rps == rps);
        point.unwrap().summary.as_ref().unwrap().verdict.clone()
    };
    assert_eq!(verdict("nvme", 400.0), Verdict::Valid);
    assert!(matches!(verdict("s3", 800.0), Verdict::Saturated(_)));
    assert!(matches!(verdict("nfs", 800.0), Verdict::Saturated(why) if why.iter().any(|why| why.contains("× 503"))));
}

#[test]
fn valid_rates_above_an_invalid_one_are_not_denied() {
    let mut run = run().clone();
    run.slo = None;
    let first = run.points[0].factors.clone();
    run.points.retain(|point| same_but_rate(&point.factors, &first));
    run.points
        .sort_by(|a, b| a.factors.offered_rps.total_cmp(&b.factors.offered_rps));
    // The lowest, and then all.
    for (count, says) in [(1, "No highest valid rate of "), (usize::MAX, "No valid rate of ")] {
        for point in run.points.iter_mut().take(count) {
            point.summary.as_mut().unwrap().verdict = Verdict::Invalid(vec!["sent late".to_owned()]);
        }
        let brief = tierlab_report::brief(&run, Path::new("r"), None);
        assert!(brief.starts_with(says), "{brief}");
    }
}

#[test]
fn an_emulated_variant_is_emulated_whatever_its_server_says() {
    let mut run = run().clone();
    let factors = &run.points[0].factors;
    let name = factors.label().to_owned();
    let variant = serde_json::json!({
        "name": name, "tier": factors.tier, "origin": "emulated, s3-standard-2025, over real", "emulated": "s3-standard-2025",
        "cache": factors.cache, "cache_share": factors.cache_share
    });
    run.variants = vec![serde_json::from_value(variant).unwrap()];
    run.environment
        .origins
        .insert(name.clone(), "real; O_DIRECT".to_owned());
    let text = table(&run);
    let says = format!("not measured on a service: {name} (emulated s3-standard-2025)");
    assert!(text.contains(&says), "{text}");
    let csv = String::from_utf8(tierlab_report::summary_csv(&run).unwrap()).unwrap();
    let row = csv.lines().nth(1).unwrap();
    assert!(row.starts_with(&format!("{name},emulated,")), "{row}");
}

#[test]
fn the_words_of_an_address_do_not_label_its_tier() {
    let mut run = run().clone();
    let name = run.points[0].factors.label().to_owned();
    for origin in [
        "real; s3://emulated at https://embedded.example",
        "served at http://my-embedded-box:8000",
    ] {
        run.environment.origins = [(name.clone(), origin.to_owned())].into();
        let text = table(&run);
        assert!(
            !text.contains("Served by this machine") && !text.contains("not measured on a service"),
            "{text}"
        );
        let csv = String::from_utf8(tierlab_report::summary_csv(&run).unwrap()).unwrap();
        let first = origin.split([';', ' ']).next().unwrap();
        let row = csv.lines().nth(1).unwrap();
        assert!(row.starts_with(&format!("{name},{first},")), "{row}");
    }
}

#[test]
fn a_latency_that_drifts_is_not_valid_and_every_report_shows_how() {
    let drifting = with(|index, repeat| scale(&mut repeat.histograms.latency, [1.0, 3.0, 9.0][index]));
    let summary = drifting.points[0].summary.as_ref().unwrap();
    assert!(
        matches!(&summary.verdict, Verdict::Invalid(why) if why[0].starts_with("drifts: p50 is ")),
        "{}",
        summary.verdict
    );
    for text in everywhere(&drifting) {
        assert!(text.contains("drifts: p50 is ") && text.contains(" ▁▅█"), "{text}");
    }
    // Valid points stay valid.
    assert!(run().points[0].summary.as_ref().unwrap().drifts.is_empty());
}

#[test]
fn repeats_of_before_and_after_a_run_was_gone_on_with_do_not_pool_where_they_differ() {
    let mut other = with(|index, repeat| scale(&mut repeat.histograms.latency, [1.0, 2.2, 2.2][index]));
    other.resumed.push(Resumption {
        at: "2026-11-20T12:00:30Z".to_owned(),
        finished_steps: 30,
        differences: Vec::new(),
    });
    let text = table(&other);
    assert!(
        text.contains("up to repeat 1 and")
            && text.contains("the run was resumed between the two (2026-11-20T12:00:30Z)"),
        "{text}"
    );
}

#[test]
fn a_repeat_that_does_not_count_keeps_its_number() {
    let mut other = synthetic::run(5, 1.0);
    other.slo = None;
    for (repeat, factor) in other.points[0].repeats.iter_mut().zip([1.0, 9.0, 1.0, 3.0, 3.0]) {
        scale(&mut repeat.histograms.latency, factor);
        repeat.disturbed = (factor > 3.0).then(|| "a compiler ran".to_owned());
    }
    // Between the third repeat and the fourth.
    other.resumed.push(Resumption {
        at: "2026-11-20T12:02:30Z".to_owned(),
        finished_steps: 30,
        differences: Vec::new(),
    });
    tierlab_analysis::conclude(&mut other);
    let text = table(&other);
    assert!(text.contains("up to repeat 3 and"), "{text}");
    assert!(
        text.contains("the run was resumed between the two (2026-11-20T12:02:30Z)"),
        "{text}"
    );
}

#[test]
fn a_rate_that_only_the_plan_set_is_a_lower_bound_and_its_cost_an_upper_one() {
    let mut plain = run().clone();
    plain.slo = None;
    tierlab_analysis::conclude(&mut plain);
    let texts = everywhere(&plain);
    for text in [&texts[0], &texts[2]] {
        assert!(text.contains("highest valid rate ≥ 800 rps: at most $"), "{text}");
        // s3 saturates below the plan's highest rate: that is the server's own.
        assert!(text.contains("highest valid rate 400 rps: $"), "{text}");
    }
    assert!(
        texts[1].contains("| ≥ 800/s |") && texts[1].contains(" | ≤ $"),
        "{}",
        texts[1]
    );
    assert!(texts[2].contains("at ≥ 800 rps") && texts[2].contains("<td class=\"n\" data-label=\"$/10k\">≤ $"));
    // With an objective that the highest rate asked keeps to, likewise.
    let [table, _, page] = everywhere(run());
    for text in [table, page] {
        assert!(text.contains("≥ 800 rps: at most $"), "{text}");
    }
}

#[test]
fn the_p99_of_a_point_that_is_not_valid_is_no_part_of_an_answer() {
    let nvme = |run: &Run| {
        let answer = tierlab_analysis::decision::answer(run).unwrap();
        let mut ranking = answer.ranking.into_iter();
        ranking.find(|ranked| ranked.variant == "nvme").unwrap()
    };
    let mut run = answered::run(AnswerOutcome::Decided);
    let valid = nvme(&run);
    assert!(valid.p99_us.is_some() && valid.p99_missing.is_none(), "{valid:?}");
    for point in run.points.iter_mut().filter(|point| point.factors.variant == "nvme") {
        point.summary.as_mut().unwrap().verdict = Verdict::Invalid(vec!["sent late".to_owned()]);
    }
    let invalid = nvme(&run);
    assert_eq!(
        (invalid.p99_us, invalid.p99_us_lo, invalid.p99_us_hi),
        (None, None, None)
    );
    assert_eq!(invalid.p99_missing.as_deref(), Some("invalid: sent late"));
}

#[test]
fn an_answer_says_the_size_of_its_table_and_that_its_price_is_unchecked() {
    let mut run = answered::run(AnswerOutcome::Decided);
    let sentence = |run: &Run| {
        let text = tierlab_report::answer_text(run).unwrap();
        let words: Vec<&str> = text.split_whitespace().take_while(|word| *word != "Asked:").collect();
        words.join(" ")
    };
    let price = |run: &mut Run, source: &str| {
        let line = format!("{source}: $0.1, Nobody, as of 2026-11 (from memory, not checked), https://example.org");
        run.pricing.as_mut().unwrap().sources.push(line);
    };
    run.pricing.as_mut().unwrap().priced = Some(PricedVariants {
        variants: vec![PricedVariant {
            name: "nvme".to_owned(),
            tier: "nvme".to_owned(),
            price: Some("disk".to_owned()),
            ..PricedVariant::default()
        }],
        stored: StoredBytes {
            table_bytes: 500 << 30,
            model_bytes: 0,
        },
    });
    // Prices of others.
    price(&mut run, "imaginary.xlarge.metal");
    price(&mut run, "nvme: disk-array");
    assert!(
        sentence(&run).contains("(imaginary.xlarge, table of 500 GiB) for"),
        "{}",
        sentence(&run)
    );
    let before = run.clone();
    for source in ["imaginary.xlarge", "nvme: disk"] {
        run = before.clone();
        price(&mut run, source);
        let text = sentence(&run);
        assert!(
            text.contains("(imaginary.xlarge, table of 500 GiB, price unchecked) for"),
            "{text}"
        );
    }
    // Without a demand there is no month, and the price of inferences says it.
    let answer = run.answer.as_mut().unwrap();
    (answer.question.minimise, answer.question.demand) = (Minimise::UsdPer10k, None);
    answer.ranking[0].usd_per_month = None;
    let text = sentence(&run);
    assert!(
        text.contains("per 10k inferences (imaginary.xlarge, table of 500 GiB, price unchecked), up to"),
        "{text}"
    );
}

#[test]
fn a_valid_rate_above_one_that_is_not_is_no_highest_valid_rate() {
    let mut broken = run().clone();
    broken.slo = None;
    tierlab_analysis::conclude(&mut broken);
    let middle = &mut broken.points[1];
    assert_eq!(middle.factors.offered_rps, 400.0);
    middle.summary.as_mut().unwrap().verdict = Verdict::Invalid(vec!["sent late".to_owned()]);
    let findings = tierlab_analysis::findings(&broken.points, None, &broken.limits);
    assert_eq!(findings[0].highest_valid_rps, Some(100.0));
}

#[test]
fn stages_above_the_latency_are_a_caution_and_not_a_share() {
    let lies = with(|_, repeat| {
        for band in &mut repeat.bands {
            let excess = 21.5 * band.mean_us;
            for (name, us) in &mut band.parts_us {
                match name.as_str() {
                    "infer" => *us += excess,
                    "network" => *us -= excess,
                    _ => {}
                }
            }
        }
    });
    for text in everywhere(&lies) {
        assert!(text.contains("its Server-Timing is wrong"), "{text}");
        assert!(!text.contains("2249 %") && !text.contains("2150 %"), "{text}");
    }
}

#[test]
fn a_server_that_does_not_tell_its_stages_did_not_fail() {
    let mut silent = run().clone();
    silent
        .points
        .retain(|point| point.repeats.iter().all(|repeat| repeat.errors.is_empty()));
    for repeat in silent.points.iter_mut().flat_map(|point| &mut point.repeats) {
        for band in &mut repeat.bands {
            let told = band.parts_us.iter().filter(|(name, _)| name != "send_lag");
            let told = told.map(|(_, us)| us).sum();
            band.parts_us.retain(|(name, _)| name == "send_lag");
            band.parts_us.push(("untold".to_owned(), told));
        }
    }
    tierlab_analysis::conclude(&mut silent);
    for text in everywhere(&silent) {
        assert!(
            text.contains("not reported by the server") && !text.contains("failed, no timing"),
            "{text}"
        );
    }
}

#[test]
fn gpus_have_a_section_where_a_server_saw_any_and_a_broken_promise_of_gds_is_invalid() {
    let page = |run: &Run| {
        let (_keep, dir) = run_folder();
        synthetic::write(run, &dir).unwrap();
        std::fs::read_to_string(dir.join("report.html")).unwrap()
    };
    assert!(!page(run()).contains("<h2>GPUs</h2>"));
    let mut with = run().clone();
    for repeat in &mut with.points[0].repeats {
        let server = repeat.server.as_mut().unwrap();
        server.session_seconds = [
            ("compute", 5.0),
            ("queue_wait", 0.5),
            ("storage_wait", 2.5),
            ("no_requests", 2.0),
        ]
        .map(|(state, seconds)| (state.to_owned(), seconds))
        .into();
        server.gpus = vec![GpuUse {
            busy_s: 0.4 * repeat.window_s,
            energy_j: 2.0 * server.inferences,
            ..GpuUse::default()
        }];
        server.device_reads = Some(DeviceReads {
            path: "gds".into(),
            missing: "nvidia-fs".into(),
            counted: true,
            posix: 7.0,
            peer_to_peer: 35.0,
            requests: 42.0,
            ..DeviceReads::default()
        });
    }
    with.points[0].summary = None;
    tierlab_analysis::summarise(&mut with.points, &with.limits, None);
    let summary = with.points[0].summary.as_ref().unwrap();
    let time = summary.gpu_time.unwrap();
    let near = |share: f64, want: f64| (share - want).abs() < 1e-9;
    assert!(
        near(time.busy, 0.4) && near(time.storage_wait, 0.25) && near(time.no_requests, 0.2),
        "{time:?}"
    );
    assert!(near(time.copy_and_host, 0.1) && near(time.queue_wait, 0.05), "{time:?}");
    assert!(near(summary.joules_per_inference.unwrap(), 2.0));
    assert!(
        matches!(&summary.verdict, Verdict::Invalid(why) if why[0].contains("7 of 42 reads went through POSIX")),
        "{}",
        summary.verdict
    );
    let html = page(&with);
    assert!(html.contains("<h2>GPUs</h2>") && html.contains("<td>gds</td>"));
}

#[test]
fn where_only_the_median_is_common_to_all_it_stands_once() {
    let (_keep, dir) = run_folder();
    let heads = |run: &Run| {
        synthetic::write(run, &dir).unwrap();
        let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
        let head = page.split("class=\"brief\"").nth(1).unwrap();
        let count = |name: &str| {
            head.split("</thead>")
                .next()
                .unwrap()
                .matches(&format!(">{name}<"))
                .count()
        };
        (
            count("p50"),
            count("p95"),
            count("p99"),
            head.split("</table>").next().unwrap().to_owned(),
        )
    };
    assert!(matches!(heads(run()), (1, _, _, _)));
    let mut few = run().clone();
    for summary in few.points.iter_mut().filter_map(|point| point.summary.as_mut()) {
        (summary.p95_us, summary.p99_us) = (None, None);
    }
    let (p50, p95, p99, table) = heads(&few);
    assert_eq!((p50, p95, p99), (1, 0, 0));
    // Every row has a cell for each head.
    let heads = table.matches("<th").count() - table.matches("<thead").count();
    for row in table
        .split("<tbody")
        .nth(1)
        .unwrap()
        .split("</tr>")
        .filter(|row| row.contains("<td"))
    {
        assert_eq!(row.matches("<td").count(), heads, "{row}");
    }
}
