use super::*;
use crate::machine::Environment;
use crate::peers::PeerFigures;
use crate::plan::{CacheState, Operation, Way};
use crate::runner::record::{Entry, encode};
use crate::runner::summary::summaries;
use std::path::Path;

#[test]
fn a_checkpoint_of_several_agents_has_the_bytes_of_all_if_it_is_valid() {
    let mut latencies = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    latencies.record_n(1_500_000_000, 3).unwrap();
    let point = Point {
        operation: Operation::Checkpoint,
        ..Point::reads("disk", 1 << 20)
    };
    let entry = |repeat| {
        let measured = serde_json::json!({
            "latency_hdr": encode(&latencies).unwrap(), "window_s": 2.0, "calls": 3, "ended": 3, "writes": 3, "asked_bytes": 3_145_728,
            "ended_bytes": 3_145_728, "wire_bytes": 0, "requests": 3, "retries": 0, "unfinished": 0, "via": "",
            "machine": {"own_cpu_s": 0.1}
        });
        Entry {
            measured: serde_json::from_value(measured).unwrap(),
            ..Entry::new(&point, repeat)
        }
    };
    let mut points = summaries(&[entry(0), entry(1)]);
    let sentence = checkpoints(&points).remove(0);
    assert!(sentence.contains("3 MiB in 2.00 [2.00–2.00] s, 1.57 ["), "{sentence}");
    // The table has its figures, with the verdict.
    points[0].verdict = Verdict::Unknown("not cold".to_owned());
    assert!(checkpoints(&points).is_empty());
}

fn run_facts() -> RunFacts {
    RunFacts {
        schema_version: 1,
        name: "test".to_owned(),
        interrupted: false,
        environment: Environment::default(),
        tiers: BTreeMap::new(),
        repeats: 3,
        plan: "name = \"test\"\n".to_owned(),
        failed: None,
    }
}

fn cautions_of(points: Vec<Summary>) -> Vec<String> {
    let figures = Figures {
        peer_notes: Vec::new(),
        points,
        seconds: Vec::new(),
        agents: None,
    };
    let run = run_facts();
    cautions(&run, &figures)
}

#[test]
fn calls_that_move_no_bytes_have_no_chart_of_bytes() {
    let html_of = |operation, mb_per_s| {
        let second = SecondFigures {
            calls: 1000,
            mb_per_s,
            p99_us: None,
        };
        let point = Point {
            operation,
            ..Point::reads("disk", 4096)
        };
        let repeats = vec![vec![second; 3]];
        let (_, html) = seconds(&[PointSeconds { point, repeats }]).remove(0);
        html.0
    };
    let [stat, read] = [(Operation::Stat, 0.0), (Operation::Read, 4.1)].map(|(kind, mb)| html_of(kind, mb));
    assert!(stat.contains("calls ended each second") && !stat.contains("MB each second"));
    assert!(read.contains("MB each second"));
}

#[test]
fn open_loops_show_their_send_lag_and_the_depth_that_a_rate_lacks() {
    let point = Point {
        rate: 2000,
        ..Point::reads("bucket", 4096)
    };
    let mut entry = entry_beside_fio(&point, 0, 200);
    entry.measured.as_mut().unwrap().late_p99_us = Some(1500.0);
    let mut points = summaries(&[entry]);
    points[0].verdict = Verdict::Saturated;
    let table = table("", &COLUMNS, 0, &points).named(|name| name == "send lag p99");
    let markdown = tierlab_report::parts::markdown_table(&table);
    assert!(markdown.contains("1.50 ms"), "{markdown}");
    let cautions = cautions_of(points);
    let said = "depth 1: the tier did not keep up at this depth (200 of 2,000 calls/s, 0 unfinished)";
    assert!(cautions.iter().any(|line| line.ends_with(said)), "{cautions:?}");
}

#[test]
fn points_without_evidence_for_the_same_reason_have_one_caution() {
    let entries = [4096, 8192, 16_384].map(|block_bytes| Entry::new(&Point::reads("disk", block_bytes), 0));
    let mut points = summaries(&entries);
    let reasons = ["foreign processes used 63 %", "foreign processes used 9 %", "not cold"];
    for (summary, reason) in points.iter_mut().zip(reasons) {
        summary.verdict = Verdict::Unknown(reason.to_owned());
        summary.left_out = 2;
    }
    let cautions = cautions_of(points);
    let count = |text: &str| cautions.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("no evidence about the tier: 2, such as"), 1, "{cautions:?}");
    assert_eq!(count("no evidence about the tier: 1, such as"), 1, "{cautions:?}");
    assert_eq!(count("disturbed repeats left out: 6 "), 1, "{cautions:?}");
}

#[test]
fn a_peer_that_fails_in_every_repeat_has_one_caution_for_the_point() {
    let entry = |(block_bytes, repeat): (u64, u32)| Entry {
        peer_faults: vec![format!("fio --bs={block_bytes} --randseed={repeat}: exit status: 1")],
        ..Entry::new(&Point::reads("disk", block_bytes), repeat)
    };
    let repeats = [(4096, 0), (4096, 1), (4096, 2), (8192, 0)];
    let mut cautions = cautions_of(summaries(&repeats.map(entry)));
    cautions.retain(|line| line.contains("a peer failed"));
    let [first, second] = cautions.as_slice() else {
        panic!("{cautions:?}");
    };
    assert!(
        first.ends_with("(repeats: 3), such as: fio --bs=4096 --randseed=0: exit status: 1"),
        "{first}"
    );
    assert!(second.contains("(repeats: 1)"), "{second}");
}

/// Kinds of access of `configs/storage/beside-fio.toml`.
fn kinds() -> Vec<Point> {
    let kind = |operation, way, cache| Point {
        operation,
        way,
        cache,
        ..Point::reads("disk", 4096)
    };
    let mut all = vec![
        kind(Operation::Read, Way::Direct, CacheState::Bypassed),
        kind(Operation::Read, Way::Buffered, CacheState::Cold),
        kind(Operation::Read, Way::Buffered, CacheState::Warm),
        kind(Operation::Read, Way::Pread, CacheState::Warm),
    ];
    for operation in [Operation::Write, Operation::Mixed] {
        all.push(kind(operation, Way::Pread, CacheState::Cold));
        all.push(kind(operation, Way::PreadDirect, CacheState::Bypassed));
    }
    all
}

/// A repeat beside fio; `speed` is the rate and the inverse of the latency.
fn entry_beside_fio(point: &Point, repeat: u32, speed: u64) -> Entry {
    let mut latencies = hdrhistogram::Histogram::<u64>::new(3).unwrap();
    latencies.record_n(4_000_000_000 / speed, speed).unwrap();
    let bytes = speed * point.block_bytes;
    let measured = serde_json::json!({
        "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": speed, "ended": speed, "writes": 0, "asked_bytes": bytes,
        "ended_bytes": bytes, "wire_bytes": bytes, "requests": speed, "retries": 0, "unfinished": 0, "via": "direct",
        "machine": {"own_cpu_s": 0.3}
    });
    let fio = PeerFigures {
        iops: 1.1 * speed as f64,
        mb_per_s: 1.1 * bytes as f64 / 1e6,
        p50_us: Some(20.5),
        p99_us: Some(95.0),
        cpu_us_per_call: Some(3.5),
        command: format!("fio --name=job --bs={} --iodepth={}", point.block_bytes, point.depth),
    };
    Entry {
        measured: serde_json::from_value(measured).unwrap(),
        peers: BTreeMap::from([(FIO.to_owned(), fio)]),
        ..Entry::new(point, repeat)
    }
}

/// A run like that of `configs/storage/beside-fio.toml`: 72 points, the later kinds of access faster.
fn figures_beside_fio() -> Figures {
    let mut entries = Vec::new();
    for (kind, first) in (0_u64..).zip(kinds()) {
        for (block_bytes, depth) in [4096, 65_536, 1 << 20]
            .into_iter()
            .flat_map(|block| [1, 8, 32].map(|at| (block, at)))
        {
            let point = Point {
                block_bytes,
                depth,
                ..first.clone()
            };
            let speed = 30_000 + 1_000 * kind + 10 * u64::from(depth);
            entries.extend([0, 1, 2].map(|repeat| entry_beside_fio(&point, repeat, speed + u64::from(7 * repeat))));
        }
    }
    Figures {
        peer_notes: Vec::new(),
        points: summaries(&entries),
        seconds: Vec::new(),
        agents: None,
    }
}

#[test]
fn the_answer_of_72_points_fits_a_terminal_and_a_mail() {
    let (run, figures) = (run_facts(), figures_beside_fio());
    assert_eq!(figures.points.len(), 72);
    let page = page(&run, &Access::default(), &figures);
    let text = page.text(Path::new("results/test"), "points.csv");
    assert!(text.lines().count() <= 25, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(
        text.starts_with("disk by pread-direct: random mixed, not synced, 1 MiB, depth 32 moves the most,"),
        "{text}"
    );
    assert!(text.contains("calls/s are 0.909–0.909 times fio's."), "{text}");
    let path = "report:  results/test/report.html (beside it: report.md, points.csv, run.json)";
    assert!(text.ends_with(&format!("{path}\n")), "{text}");
    let markdown = page.markdown("points.csv");
    let words = markdown.split_whitespace().count();
    assert!(words <= 800, "{words} words:\n{markdown}");
    for kind in kinds() {
        let name = kind.group_text();
        assert!(text.contains(&format!("\n{name} ")), "{name} in\n{text}");
        assert!(markdown.contains(&format!("\n| {name} | ")), "{name} in\n{markdown}");
    }
    assert!(markdown.contains("`report.html`") && markdown.contains("`points.csv`"));
}

#[test]
fn the_fastest_point_has_the_number_of_those_whose_intervals_overlap_its_own() {
    let point = |depth| Point {
        depth,
        ..Point::reads("disk", 4096)
    };
    let answer_of = |speeds: &[[u64; 2]]| {
        let of_repeat = |(depth, repeat, speed)| entry_beside_fio(&point(depth), repeat, speed);
        let all = (1..).zip(speeds);
        let all = all.flat_map(|(depth, [first, second])| [(depth, 0, *first), (depth, 1, *second)]);
        answer(&summaries(&Vec::from_iter(all.map(of_repeat))))
    };
    let text = answer_of(&[[100, 101], [30_000, 30_001], [200, 201]]);
    assert!(
        text.contains("depth 2 moves the most, 123 [") && text.contains("not significantly slower: 0"),
        "{text}"
    );
    let text = answer_of(&[[29_000, 31_100], [30_000, 31_000], [200, 201]]);
    assert!(text.contains("other points not significantly slower: 1"), "{text}");
}

#[test]
fn families_are_ranked_within_each_kind_of_access() {
    let ways = |families: Vec<Family>| -> Vec<(Operation, Way)> {
        families
            .iter()
            .map(|family| (family[0].point.operation, family[0].point.way))
            .collect()
    };
    let expected = [
        (Operation::Read, Way::Pread),
        (Operation::Read, Way::Buffered),
        (Operation::Read, Way::Buffered),
        (Operation::Read, Way::Direct),
        (Operation::Write, Way::PreadDirect),
        (Operation::Write, Way::Pread),
        (Operation::Mixed, Way::PreadDirect),
        (Operation::Mixed, Way::Pread),
    ];
    assert_eq!(ways(families(&figures_beside_fio().points)), expected);
    // Points that are not valid say nothing about the speed.
    let mut points = figures_beside_fio().points;
    for summary in points.iter_mut().filter(|one| one.point.way == Way::Pread) {
        summary.verdict = Verdict::Unknown("not cold".to_owned());
    }
    let without = ways(families(&points));
    assert_eq!(without[3], (Operation::Read, Way::Pread), "{without:?}");
    assert!(!answer(&points).contains("by pread:"), "{}", answer(&points));
}

#[test]
fn the_page_opens_with_the_answer_and_its_contents_link_every_section() {
    let (run, mut figures) = (run_facts(), figures_beside_fio());
    for summary in &mut figures.points {
        summary.drift = vec!["p50 moved".to_owned()];
    }
    let html = page(&run, &Access::default(), &figures).html();
    let (first_screen, rest) = html.split_once("<nav class=\"contents\"").unwrap();
    let place = |what: &str| first_screen.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(place("class=\"said\"") < place("class=\"brief ranking\""));
    assert!(place("class=\"brief ranking\"") < place("<figure"));
    assert_eq!(first_screen.matches("<figure").count(), 1);
    // Cautions about each of 72 points are too long for it.
    assert_eq!(first_screen.matches("p50 moved").count(), 5);
    assert!(!first_screen.contains("<h3>") && !first_screen.contains("<h4>"));
    let links = rest.split("</nav>").next().unwrap().split(" href=\"#").skip(1);
    let links: Vec<&str> = links.map(|link| link.split('"').next().unwrap()).collect();
    let sections = rest.split("<details class=\"part\" id=\"").skip(1);
    let sections: Vec<&str> = sections.map(|section| section.split("\">").next().unwrap()).collect();
    assert_eq!(links, sections);
    for title in ["Findings", "Latency", "Every point", "fio's commands", "The plan"] {
        assert!(rest.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(rest.contains("fio's CPU us") && rest.contains("fio --name=job --bs=65536 --iodepth=8"));
}
