//! `prices refresh` through the real binary, on an offer file made up in the format of AWS's price list.

use crate::program::{BINARY, Ended, run};
use std::fs;
use std::path::Path;
use std::process::Command;

const PRICES: &str = "[instances.box]\nusd_per_hour = 1\nprovider = \"P\"\nregion = \"r\"\nas_of = \"2025-06\"\nchecked = true\n\
    source = \"https://example.org\"\n[storage.s3-standard]\nusd_per_gb_month = 0.5 # dollars\nprovider = \"AWS\"\n\
    region = \"us-east-1\"\nas_of = \"2025-06\"\nchecked = false\nsource = \"https://example.org\"\n[tiers]\ns3 = \"s3-standard\"\n";
const OFFER: &str = r#"{"formatVersion": "v1.0", "offerCode": "AmazonS3", "publicationDate": "2026-10-11T12:13:14Z",
    "products": {"A1": {"sku": "A1", "productFamily": "Storage",
        "attributes": {"usagetype": "TimedStorage-ByteHrs", "regionCode": "us-east-1"}}},
    "terms": {"OnDemand": {"A1": {"A1.T": {"sku": "A1", "priceDimensions": {"A1.T.1": {"unit": "GB-Mo", "beginRange": "0",
        "endRange": "Inf", "pricePerUnit": {"USD": "0.2500000000"}}}}}}}}"#;

fn refresh(folder: &Path, more: &[&str]) -> Ended {
    let mut command = Command::new(BINARY);
    command
        .args(["prices", "refresh", "--prices"])
        .arg(folder.join("prices.toml"));
    command.arg("--from").arg(folder.join("offers")).args(more);
    run(command)
}

#[test]
fn a_price_list_is_taken_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("offers")).unwrap();
    let file = folder.path().join("prices.toml");
    fs::write(&file, PRICES).unwrap();
    let empty = refresh(folder.path(), &[]);
    assert_eq!(empty.code, Some(2), "{}", empty.stderr);
    fs::write(folder.path().join("offers/s3.json"), OFFER).unwrap();
    let dry = refresh(folder.path(), &["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert!(dry.stdout.contains("usd_per_gb_month 0.5 -> 0.25"), "{}", dry.stdout);
    assert!(
        dry.stdout.contains("left as it is: instances.\"box\""),
        "{}",
        dry.stdout
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), PRICES);
    assert_eq!(refresh(folder.path(), &[]).code, Some(0));
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("usd_per_gb_month = 0.25 # dollars") && text.contains("as_of = \"2026-10\""),
        "{text}"
    );
    fs::write(
        folder.path().join("offers/s3.json"),
        OFFER.replace("us-east-1", "mars-1"),
    )
    .unwrap();
    let other = refresh(folder.path(), &[]);
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    assert!(other.stderr.contains("AmazonS3"), "{}", other.stderr);
}
