//! Which key of the prices' file is which product of AWS's price list.
//!
//! In: an entry's name and key, and products with their attributes. Out: whether one is the other's, and its price in the file's unit. Pure.
//!
//! Usage types are those of the providers' billing reports (*Understanding your AWS billing and usage reports*, in the user guides
//! of S3, EFS and EBS); outside of us-east-1 they have the region's billing code before them.

use super::product::Product;

/// The head of an instance's entry: `instances."aws/TYPE"`.
const AWS: &str = "aws/";

/// A product that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// The offer that it is in.
    pub(super) offer: &'static str,
    /// Its usage type without the region's code; `None` where attributes say all.
    usage: Option<&'static str>,
    attributes: Vec<(&'static str, String)>,
}

/// A price by usage type: the table of the file, its key, the offer, and the usage type.
struct ByUsage(&'static str, &'static str, &'static str, &'static str);

const S3: &str = "AmazonS3";
const EC2: &str = "AmazonEC2";
const EFS: &str = "AmazonEFS";

const BY_USAGE: [ByUsage; 16] = [
    ByUsage("s3-standard", "usd_per_gb_month", S3, "TimedStorage-ByteHrs"),
    ByUsage("s3-standard", "usd_per_1000_get_requests", S3, "Requests-Tier2"),
    ByUsage("s3-standard", "usd_per_1000_put_requests", S3, "Requests-Tier1"),
    ByUsage("s3-express-one-zone", "usd_per_gb_month", S3, "TimedStorage-XZ-ByteHrs"),
    ByUsage(
        "s3-express-one-zone",
        "usd_per_1000_get_requests",
        S3,
        "Requests-XZ-Tier2",
    ),
    ByUsage(
        "s3-express-one-zone",
        "usd_per_1000_put_requests",
        S3,
        "Requests-XZ-Tier1",
    ),
    ByUsage("s3-express-one-zone", "usd_per_gb_read", S3, "Retrieval-XZ"),
    ByUsage("efs-elastic", "usd_per_gb_month", EFS, "TimedStorage-ByteHrs"),
    ByUsage("efs-elastic", "usd_per_gb_read", EFS, "ETDataAccess-Bytes"),
    ByUsage("efs-bursting", "usd_per_gb_month", EFS, "TimedStorage-ByteHrs"),
    ByUsage("efs-provisioned", "usd_per_gb_month", EFS, "TimedStorage-ByteHrs"),
    ByUsage(
        "efs-provisioned",
        "usd_per_provisioned_mbps_month",
        EFS,
        "ProvisionedTP-MiBpsHrs",
    ),
    ByUsage("gp3", "usd_per_gb_month", EC2, "EBS:VolumeUsage.gp3"),
    ByUsage("gp3", "usd_per_provisioned_iops_month", EC2, "EBS:VolumeP-IOPS.gp3"),
    ByUsage(
        "gp3",
        "usd_per_provisioned_mbps_month",
        EC2,
        "EBS:VolumeP-Throughput.gp3",
    ),
    ByUsage("staging", "usd_per_gb_month", EC2, "EBS:VolumeUsage.gp3"),
];

/// The product of an instance's hour; `None` where the list has none such.
pub(super) fn of_instance(name: &str, region: &str) -> Option<Wanted> {
    let kind = name.strip_prefix(AWS)?;
    let fixed = [
        ("operatingSystem", "Linux"),
        ("tenancy", "Shared"),
        ("preInstalledSw", "NA"),
        ("capacitystatus", "Used"),
        ("instanceType", kind),
        ("regionCode", region),
    ];
    Some(Wanted {
        offer: EC2,
        usage: None,
        attributes: fixed.map(|(name, value)| (name, value.to_owned())).to_vec(),
    })
}

/// The product of a key of `[storage.ENTRY]`, or of `[staging]`; `None` where the list has none that is known here.
pub(super) fn of_storage(entry: &str, key: &str, region: &str) -> Option<Wanted> {
    let ByUsage(_, _, offer, usage) = BY_USAGE
        .iter()
        .find(|ByUsage(table, of, _, _)| *table == entry && *of == key)?;
    let mut attributes = vec![("regionCode", region.to_owned())];
    if *usage == "ETDataAccess-Bytes" {
        attributes.push(("accessType", "Read".to_owned()));
    }
    Some(Wanted {
        offer,
        usage: Some(usage),
        attributes,
    })
}

/// Whether any key could want a product: a list has hundreds of thousands.
pub(super) fn is_of_interest(product: &Product) -> bool {
    let is = |name: &str, value: &str| product.attributes.get(name).is_some_and(|is| is == value);
    let by_usage = BY_USAGE.iter().any(|ByUsage(_, _, _, usage)| has_usage(product, usage));
    by_usage || (is("operatingSystem", "Linux") && is("tenancy", "Shared") && is("capacitystatus", "Used"))
}

impl Wanted {
    pub(super) fn is(&self, product: &Product) -> bool {
        let has = |(name, value): &(&str, String)| product.attributes.get(*name) == Some(value);
        self.usage.is_none_or(|usage| has_usage(product, usage)) && self.attributes.iter().all(has)
    }
}

fn has_usage(product: &Product, usage: &str) -> bool {
    let Some(said) = product.attributes.get("usagetype") else {
        return false;
    };
    // `EUC1-Requests-Tier2`; but `Tables-Requests-Tier2` is another product.
    let is_code = |code: &str| {
        code.bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    };
    said == usage
        || said
            .strip_suffix(usage)
            .and_then(|before| before.strip_suffix('-'))
            .is_some_and(is_code)
}

/// A price of the list in the unit of the file; `None` for a unit that is not known.
pub(super) fn in_unit_of(key: &str, usd: f64, unit: &str) -> Option<f64> {
    let per = match (key, unit.to_ascii_lowercase().as_str()) {
        ("usd_per_hour", "hrs")
        | ("usd_per_gb_month", "gb-mo")
        | ("usd_per_gb_read", "gb")
        | ("usd_per_provisioned_iops_month", "iops-mo")
        | ("usd_per_provisioned_mbps_month", "mibps-mo" | "mbps-mo") => 1.0,
        ("usd_per_provisioned_mbps_month", "gibps-mo") => 1.0 / 1_024.0,
        ("usd_per_1000_get_requests" | "usd_per_1000_put_requests", "requests") => 1_000.0,
        _ => return None,
    };
    // The list has ten decimals; a product of one with a thousand has none beyond them.
    format!("{:.11e}", usd * per).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(attributes: &[(&str, &str)]) -> Product {
        let attributes = attributes.iter();
        Product {
            attributes: attributes
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn a_product_is_known_by_usage_type_and_region() {
        let wanted = of_storage("s3-standard", "usd_per_1000_get_requests", "us-east-1").unwrap();
        let is = |usage, region| wanted.is(&product(&[("usagetype", usage), ("regionCode", region)]));
        assert!(is("Requests-Tier2", "us-east-1") && is("USE1-Requests-Tier2", "us-east-1"));
        for (usage, region) in [
            ("Requests-Tier2", "eu-central-1"),
            ("Requests-Tier1", "us-east-1"),
            ("Requests-SIA-Tier2", "us-east-1"),
            ("Tables-Requests-Tier2", "us-east-1"),
        ] {
            assert!(!is(usage, region), "{usage} {region}");
        }
        assert_eq!(of_storage("mine", "usd_per_gb_month", "us-east-1"), None);
        assert_eq!(of_instance("mine/box", "us-east-1"), None);
    }

    #[test]
    fn prices_are_turned_into_the_files_units() {
        assert_eq!(in_unit_of("usd_per_1000_get_requests", 4e-7, "Requests"), Some(0.0004));
        assert_eq!(
            in_unit_of("usd_per_provisioned_mbps_month", 40.96, "GiBps-mo"),
            Some(0.04)
        );
        assert_eq!(in_unit_of("usd_per_gb_month", 0.023, "GB-Mo"), Some(0.023));
        assert_eq!(in_unit_of("usd_per_gb_month", 0.023, "GB-Hours"), None);
    }
}
