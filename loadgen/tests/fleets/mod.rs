//! Reports on fleets, for synthetic runs.

use crate::synthetic;
use tierlab_analysis::record::{ColdStart, ColdWay, Mode, PageCache, Point, Run, Variant};
use tierlab_report::{cold_starts_csv, markdown, table};

fn variant(name: &str, servers: u32) -> Variant {
    let plural = if servers == 1 { "" } else { "s" };
    Variant {
        name: format!("{name}-{servers}-server{plural}"),
        tier: "s3".to_owned(),
        origin: "emulated".to_owned(),
        emulated: None,
        staged: None,
        layout: None,
        cache: "cold".to_owned(),
        cache_share: 0.0,
        price: None,
        instance: None,
        servers,
        set: Vec::new(),
    }
}

/// Text without its line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fleets of a variant: for each number of servers, the synthetic tier whose points they have.
fn fleets(name: &str, sizes: &[(u32, &str)]) -> Run {
    let mut run = synthetic::run(3, 1.0);
    run.slo = None;
    let all = std::mem::take(&mut run.points);
    for &(servers, tier) in sizes {
        let variant = variant(name, servers);
        let is_of = |point: &&Point| {
            let factors = &point.factors;
            (factors.tier.as_str(), factors.cache.as_str(), factors.mode) == (tier, "cold", Mode::Realtime)
        };
        run.points.extend(all.iter().filter(is_of).map(|point| {
            let mut point = point.clone();
            point.factors.variant.clone_from(&variant.name);
            point
        }));
        run.variants.push(variant);
    }
    run.findings.clear();
    tierlab_analysis::conclude(&mut run);
    run
}

#[test]
fn more_servers_than_the_tier_bears_bring_nothing_and_the_table_says_so() {
    // s3 falls behind between 400 and 800 requests a second, and so it is the same for two servers and for four.
    let text = table(&fleets("bucket", &[(1, "s3"), (2, "s3"), (4, "s3")]));
    assert!(text.contains("Fleets\n"), "{text}");
    assert!(
        words(&text).contains("bucket: more servers than 1 add nothing: 400 rps with 1, 400 rps with 4"),
        "{text}"
    );
    let row = text
        .lines()
        .find(|line| line.starts_with("bucket ") && line.contains(" 4 "))
        .unwrap();
    for figure in ["400 rps", "1.00 times", "/s", "$"] {
        assert!(row.contains(figure), "{figure}: {row}");
    }
}

#[test]
fn what_the_plan_did_not_ask_is_not_said_of_a_fleet() {
    // nvme still keeps up at the plan's highest rate.
    let text = table(&fleets("disk", &[(1, "s3"), (2, "nvme")]));
    assert!(
        text.contains("disk: the plan's rates end below the servers' limit"),
        "{text}"
    );
    // A lower bound has no ratio, and its cost is an upper bound.
    let row = text
        .lines()
        .find(|line| line.starts_with("disk ") && line.contains(" 2 "))
        .unwrap();
    assert!(!row.contains("times") && row.contains("at most $"), "{row}");
    // One number of servers has no other beside it.
    let text = table(&fleets("bucket", &[(4, "s3")]));
    assert!(text.contains("Fleets\n") && !text.contains("add nothing"), "{text}");
    // The smallest fleet need not be one server.
    let text = table(&fleets("bucket", &[(2, "nvme"), (4, "s3")]));
    assert!(
        text.contains("of the smallest") && !text.contains("of one server"),
        "{text}"
    );
    let text = table(&synthetic::run(3, 1.0));
    assert!(!text.contains("Fleets"), "{text}");
}

fn cold_start(tier: &str, index: u32, servers: u32, in_all_s: f64) -> ColdStart {
    ColdStart {
        tier: tier.to_owned(),
        way: ColdWay::Restart,
        index,
        page_cache: PageCache::Dropped,
        servers,
        jitter_s: 0.0,
        stages_s: vec![("read".to_owned(), in_all_s / 2.0)],
        ready_s: in_all_s - 0.01,
        first_reply_s: 0.01,
        earliest_reply_s: Some(in_all_s / 2.0),
        tier_bytes: Some(u64::from(servers) << 20),
    }
}

#[test]
fn fleets_that_start_together_are_set_against_a_single_server() {
    let mut run = fleets("bucket", &[(1, "s3"), (8, "s3")]);
    for (index, weather) in (0..).zip([1.0, 1.1, 0.95, 1.0]) {
        run.cold_starts
            .push(cold_start("bucket-1-server", index, 1, 0.5 * weather));
        run.cold_starts
            .push(cold_start("bucket-8-servers", index, 8, 1.5 * weather));
        run.cold_starts.push(ColdStart {
            jitter_s: 2.0,
            ..cold_start("bucket-8-servers", index, 8, 3.0 * weather)
        });
    }
    let text = words(&table(&run));
    // Repeats take turns, and so their weather cancels.
    assert!(
        text.contains(
            "bucket by restart: the last of 8 servers that start together takes 3.00 [3.00–3.00] times as long to reply as a single server, \
             and together they read 8.00 times the bytes"
        ),
        "{text}"
    );
    assert!(
        text.contains("spread over 2 s, the last of 8 servers takes 2.00 [2.00–2.00] times as long to reply as when all start at once"),
        "{text}"
    );
    let page = markdown(&run);
    assert!(
        page.contains("## Cold starts, medians") && page.contains("| spread over s |"),
        "{page}"
    );
    let csv = String::from_utf8(cold_starts_csv(&run).unwrap()).unwrap();
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    assert_eq!(header[7..], ["servers", "jitter_s", "earliest_reply_s", "tier_bytes"]);
    assert!(csv.lines().all(|line| line.split(',').count() == header.len()), "{csv}");
    assert!(csv.contains(",8,2,1.5,8388608\n"), "{csv}");
}

#[test]
fn a_fleet_that_reads_beside_a_server_that_does_not_is_not_said_to_read_nothing() {
    let said = |fleet_bytes: u64| {
        let mut run = fleets("bucket", &[(1, "s3"), (8, "s3")]);
        for index in 0..4 {
            for (servers, bytes) in [(1, 0), (8, fleet_bytes)] {
                let plural = if servers == 1 { "" } else { "s" };
                let name = format!("bucket-{servers}-server{plural}");
                run.cold_starts.push(ColdStart {
                    tier_bytes: Some(bytes),
                    ..cold_start(&name, index, servers, 0.5 + 0.01 * f64::from(index))
                });
            }
        }
        words(&table(&run)).contains("and nothing is read from the tier")
    };
    assert_eq!((said(0), said(8 << 20)), (true, false));
}

#[test]
fn a_cold_start_of_before_there_were_fleets_still_reads() {
    let old = r#"{"tier":"nvme","way":"load","index":0,"page_cache":"dropped","stages_s":[["read",0.1]],"ready_s":0.2,
                  "first_reply_s":0.01}"#;
    let old: ColdStart = serde_json::from_str(old).unwrap();
    assert_eq!((old.servers, old.earliest_reply_s, old.tier_bytes), (1, None, None));
    let mut run = synthetic::run(3, 1.0);
    run.cold_starts.push(old);
    let text = table(&run);
    assert!(
        text.contains("Cold starts, medians") && !text.contains("spread over"),
        "{text}"
    );
}
