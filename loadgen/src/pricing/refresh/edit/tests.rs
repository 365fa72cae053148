//! Offer files in the format of AWS's bulk price list, made up by hand: no price in them is one.

use super::*;
use std::io::Cursor;

/// A product of an offer: its SKU, attributes, and its prices by unit, where they begin, and dollars.
struct Listed<'a>(&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str, &'a str)]);

fn offer_text(code: &str, products: &[Listed<'_>]) -> String {
    let mut listed = serde_json::Map::new();
    let mut on_demand = serde_json::Map::new();
    for Listed(sku, attributes, prices) in products {
        let attributes: serde_json::Map<String, serde_json::Value> = attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        let family = "Storage";
        listed.insert(
            (*sku).into(),
            serde_json::json!({"sku": sku, "productFamily": family, "attributes": attributes}),
        );
        let dimensions: serde_json::Map<String, serde_json::Value> = (0..)
            .zip(*prices)
            .map(|(number, (unit, begin, usd))| {
                let rate = format!("{sku}.JRTCKXETXF.{number}");
                let dimension = serde_json::json!({
                    "rateCode": rate, "description": "made up", "unit": unit, "beginRange": begin, "endRange": "Inf",
                    "pricePerUnit": {"USD": usd}, "appliesTo": []
                });
                (rate, dimension)
            })
            .collect();
        let term = format!("{sku}.JRTCKXETXF");
        on_demand.insert(
            (*sku).into(),
            serde_json::json!({term: {
                "offerTermCode": "JRTCKXETXF", "sku": sku, "effectiveDate": "2026-10-01T00:00:00Z",
                "priceDimensions": dimensions, "termAttributes": {}
            }}),
        );
    }
    serde_json::json!({
        "formatVersion": "v1.0", "disclaimer": "made up", "offerCode": code, "version": "20261011",
        "publicationDate": "2026-10-11T12:13:14Z", "products": listed,
        "terms": {"OnDemand": on_demand, "Reserved": {"X": {"X.Y": {"priceDimensions": {}}}}}
    })
    .to_string()
}

fn offer(code: &str, products: &[Listed<'_>]) -> Offer {
    let text = offer_text(code, products);
    Offer::read(&format!("{code}.json"), || Ok(Cursor::new(text.as_bytes()))).unwrap()
}

fn box_of<'a>(region: &'a str, kind: &'a str, system: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("instanceType", kind),
        ("operatingSystem", system),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
        ("regionCode", region),
    ]
}

fn used<'a>(usage: &'a str, region: &'a str) -> [(&'a str, &'a str); 2] {
    [("usagetype", usage), ("regionCode", region)]
}

const FILE: &str = r#"# What things cost.
[instances."aws/t9.big"]
usd_per_hour = 1.5 # an hour
provider = "AWS"
region = "us-east-1"
as_of = "2025-06"
checked = false
source = "https://example.org/a" # where

# Objects.
[storage.s3-standard]
usd_per_1000_get_requests = 0.1
usd_per_gb_month = 7
provider = "AWS"
region = "us-east-1"
as_of = "2025-06"
checked = false
source = "https://example.org/b"

[storage.gp3]
usd_per_provisioned_mbps_month = 0.5
included_mbps = 125
provider = "AWS"
region = "us-east-1"
as_of = "2025-06"
checked = false
source = "https://example.org/c"

[storage.mine]
usd_per_hour = 2.0
provider = "us"
region = "here"
as_of = "2025-06"
checked = true
source = "https://example.org/d"

[tiers]
s3 = "s3-standard"
"#;

fn ec2() -> Offer {
    let linux = box_of("us-east-1", "t9.big", "Linux");
    let products = [
        Listed("A1", &linux, &[("Hrs", "0", "1.7500000000")]),
        Listed("A2", &box_of("us-east-1", "t9.big", "Windows"), &[("Hrs", "0", "9.0")]),
        Listed("A3", &box_of("eu-west-1", "t9.big", "Linux"), &[("Hrs", "0", "8.0")]),
        Listed(
            "A4",
            &used("EBS:VolumeP-Throughput.gp3", "us-east-1"),
            &[("GiBps-mo", "0", "51.2")],
        ),
    ];
    offer("AmazonEC2", &products)
}

fn s3() -> Offer {
    let products = [
        Listed(
            "B1",
            &used("TimedStorage-ByteHrs", "us-east-1"),
            &[("GB-Mo", "0", "0.25"), ("GB-Mo", "51200", "0.125")],
        ),
        Listed(
            "B2",
            &used("Requests-Tier2", "us-east-1"),
            &[("Requests", "0", "0.0000007000")],
        ),
        Listed(
            "B3",
            &used("EUC1-Requests-Tier2", "eu-central-1"),
            &[("Requests", "0", "0.5")],
        ),
    ];
    offer("AmazonS3", &products)
}

fn refreshed(offers: &[Offer]) -> Refreshed {
    refresh(Path::new("prices.toml"), FILE, offers).unwrap()
}

#[test]
fn numbers_change_and_layout_and_comments_stay() {
    let found = refreshed(&[ec2(), s3()]);
    let expected = FILE
        .replace("usd_per_hour = 1.5 # an hour", "usd_per_hour = 1.75 # an hour")
        .replace("usd_per_1000_get_requests = 0.1", "usd_per_1000_get_requests = 0.0007")
        .replace("usd_per_gb_month = 7", "usd_per_gb_month = 0.25")
        .replace(
            "usd_per_provisioned_mbps_month = 0.5",
            "usd_per_provisioned_mbps_month = 0.05",
        )
        .replace("checked = false", "checked = true")
        .replace("\"https://example.org/a\" # where", "\"AmazonEC2.json\" # where")
        .replace("\"https://example.org/b\"", "\"AmazonS3.json\"")
        .replace("\"https://example.org/c\"", "\"AmazonEC2.json\"");
    // All but the last, which no list has.
    let expected = expected.replacen("as_of = \"2025-06\"", "as_of = \"2026-10\"", 3);
    assert_eq!(found.text, expected);
    assert_eq!(found.refreshed.len(), 3, "{:?}", found.refreshed);
    assert!(found.refreshed[0].contains("usd_per_hour 1.5 -> 1.75, by the list of 2026-10"));
    assert_eq!(found.left.len(), 1);
    assert!(found.left[0].contains("storage.mine"), "{:?}", found.left);
    // Once more changes nothing, and says so.
    let again = refresh(Path::new("prices.toml"), &found.text, &[ec2(), s3()]).unwrap();
    assert_eq!(again.text, found.text);
    assert!(
        again.refreshed.iter().all(|line| line.contains("as it was")),
        "{:?}",
        again.refreshed
    );
}

#[test]
fn an_entry_is_refreshed_as_a_whole_or_left() {
    let half = [Listed(
        "B2",
        &used("Requests-Tier2", "us-east-1"),
        &[("Requests", "0", "0.5")],
    )];
    let found = refreshed(&[offer("AmazonS3", &half)]);
    assert_eq!(found.text, FILE);
    let why = found
        .left
        .iter()
        .find(|line| line.starts_with("storage.s3-standard"))
        .unwrap();
    assert!(why.contains("usd_per_gb_month was not found (offer AmazonS3)"), "{why}");
}

#[test]
fn what_is_listed_twice_or_in_another_unit_is_left() {
    let usage = used("EBS:VolumeP-Throughput.gp3", "us-east-1");
    for (prices, expected) in [
        (
            vec![("GiBps-mo", "0", "51.2"), ("GiBps-mo", "0", "40.96")],
            "more than once: 0.0",
        ),
        (vec![("Firkins", "0", "51.2")], "per Firkins"),
        (vec![("GiBps-mo", "0", "0.0000000000")], "was not found"),
    ] {
        let found = refreshed(&[offer("AmazonEC2", &[Listed("A4", &usage, &prices)])]);
        let why = found.left.iter().find(|line| line.starts_with("storage.gp3")).unwrap();
        assert!(why.contains(expected), "{why}");
        assert_eq!(found.text, FILE);
    }
}

#[test]
fn what_is_no_offer_is_refused() {
    for text in [
        "",
        "[]",
        "{}",
        "{\"offerCode\": 3}",
        "{\"offerCode\": \"X\", \"publicationDate\": \"2026\", \"products\": 3}",
    ] {
        let read = Offer::read("it", || Ok(Cursor::new(text.as_bytes())));
        assert!(
            read.unwrap_err().to_string().starts_with("it is no offer file"),
            "{text}"
        );
    }
    let error = refresh(Path::new("p.toml"), "[instances", &[]).unwrap_err().to_string();
    assert!(error.contains("p.toml"), "{error}");
}

#[test]
fn only_what_may_be_wanted_is_kept() {
    assert_eq!(ec2().products.len(), 3, "not the one with Windows");
    assert_eq!((ec2().code.as_str(), ec2().month.as_str()), ("AmazonEC2", "2026-10"));
}
