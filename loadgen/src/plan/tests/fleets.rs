//! Plans of fleets of servers.

use super::*;

const FLEET: &str = "[fleet]\nservers = [1, 4]\nrequests_per_s = 100\n";
const VARIANT: &str = "[[variant]]\nname = \"a\"\ntier = \"s3\"\nemulated = \"s3-standard\"\n";

#[test]
fn every_variant_is_measured_with_every_number_of_servers() {
    let text = format!("{HEAD}{FLEET}{VARIANT}staged = [\"none\", \"empty\"]\n{LOAD}{LAB}");
    let lab = parse(&text).unwrap().lab.unwrap();
    let fleets: Vec<(&str, u32)> = lab
        .variants
        .iter()
        .map(|variant| (variant.label(), variant.servers))
        .collect();
    let expected = [
        ("a-unstaged-1-server", 1),
        ("a-unstaged-4-servers", 4),
        ("a-stage-empty-1-server", 1),
        ("a-stage-empty-4-servers", 4),
    ];
    assert_eq!(fleets, expected);
    assert!(
        lab.variants
            .iter()
            .all(|variant| variant.shared == ["requests_per_s=100"])
    );
    let cold = "[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\njitter_s = [0, 1.5]\n";
    let lab = parse(&format!("{text}{cold}")).unwrap().lab.unwrap();
    assert_eq!(lab.cold_start.unwrap().jitter_s, [0.0, 1.5]);
}

#[test]
fn a_volume_is_of_each_server_of_a_fleet() {
    let variant = VARIANT.replace(
        "tier = \"s3\"\nemulated = \"s3-standard\"",
        "tier = \"nvme\"\nemulated = \"gp3\"",
    );
    let plan = parse(&format!("{HEAD}{FLEET}{variant}{LOAD}{LAB}")).unwrap();
    for variant in plan.lab.unwrap().variants {
        assert!(!variant.shares_service() && variant.shared.is_empty(), "{variant:?}");
    }
}

#[test]
fn nonsense_fleets_are_refused_by_key() {
    let cold = |more: &str| format!("[lab.cold_start]\nrepeats = 2\nways = [\"restart\"]\n{more}\n");
    let variant = |fleet: &str| format!("{HEAD}{fleet}{VARIANT}{LOAD}{LAB}");
    for (text, named) in [
        (variant("[fleet]\nservers = []\n"), "`fleet.servers` is an empty list"),
        (variant("[fleet]\nservers = [0]\n"), "`fleet.servers[0]`"),
        (variant("[fleet]\nservers = [65]\n"), "`fleet.servers[0]`"),
        (variant("[fleet]\nservers = [2, 2]\n"), "duplicate entry: 2"),
        (variant("[fleet]\nserver = [2]\n"), "server"),
        (
            variant("[fleet]\nservers = [1]\nrequests_per_s = 0\n"),
            "`fleet.requests_per_s`",
        ),
        (
            variant("[fleet]\nservers = [1, 2]\n").replace("s3-standard", "s3-express"),
            "variant `a-2-servers` emulates `s3-express`, which has no limit",
        ),
        // The path of a recorded profile, whose file is not read here.
        (
            variant("[fleet]\nservers = [1, 2]\n")
                .replace("s3-standard", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
            "/Cargo.toml`, which has no limit that its servers could share",
        ),
        (
            variant("").replace("tier = \"s3\"", "tier = \"s3\"\nstaged = \"shared\""),
            "`variant[0].staged`",
        ),
        (
            format!("{HEAD}{FLEET}{LOAD}"),
            "only allowed with servers that a lab starts",
        ),
        (format!("{HEAD}{FLEET}{LOAD}{LAB}"), "`[[variant]]`"),
        (
            format!("{HEAD}{FLEET}[[load]]\nmode = \"concurrency\"\nusers = [1]\n{VARIANT}{LAB}"),
            "`fleet`",
        ),
        (
            format!("{}{}", variant(""), cold("jitter_s = [1]")),
            "`lab.cold_start.jitter_s` is only allowed with a `[fleet]`",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = []")),
            "`lab.cold_start.jitter_s` is an empty list",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = [-1]")),
            "`lab.cold_start.jitter_s[0]`",
        ),
        (
            format!("{}{}", variant(FLEET), cold("jitter_s = [1, 1]")),
            "duplicate entry: 1",
        ),
        (
            format!("{HEAD}{VARIANT}staged = \"empty\"\n{LOAD}{LAB}[lab.cold_start]\nrepeats = 2\nways = [\"load\"]\n"),
            "measure it by `restart`",
        ),
    ] {
        let message = refusal(&text);
        assert!(message.contains(named), "{named}: {message}");
    }
}
