"""Tests of scripts/prices on offer files in the format of AWS's price list. The prices in them are invented."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "prices"
SHIPPED = SCRIPT.parent.parent / "configs" / "prices.toml"
FILE = """# What things cost.
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
"""
BIG = {"instanceType": "t9.big", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "regionCode": "us-east-1"}


def used(usage: str, region: str = "us-east-1") -> dict:
    return {"usagetype": usage, "regionCode": region}


def offer(code: str, *products: tuple[dict, list[tuple[str, str, str]]]) -> str:
    """Offer file of products, each with its attributes and its prices as (unit, begin, USD)."""
    listed, terms = {}, {}
    for number, (attributes, prices) in enumerate(products):
        sku = f"SKU{number}"
        listed[sku] = {"sku": sku, "productFamily": "Storage", "attributes": attributes}
        dimensions = {
            f"{sku}.T.{rate}": {"unit": unit, "beginRange": begin, "endRange": "Inf", "pricePerUnit": {"USD": usd}, "appliesTo": []}
            for rate, (unit, begin, usd) in enumerate(prices)
        }
        terms[sku] = {f"{sku}.T": {"sku": sku, "priceDimensions": dimensions, "termAttributes": {}}}
    reserved = {"SKU0": {"SKU0.R": {"priceDimensions": {"X": {"unit": "Hrs", "pricePerUnit": {"USD": "0.001"}}}}}}
    return json.dumps({
        "formatVersion": "v1.0", "offerCode": code, "publicationDate": "2026-10-11T12:13:14Z",
        "products": listed, "terms": {"OnDemand": terms, "Reserved": reserved},
    })


EC2 = offer(
    "AmazonEC2",
    (BIG, [("Hrs", "0", "1.7500000000")]),
    (BIG | {"operatingSystem": "Windows"}, [("Hrs", "0", "9.0")]),
    (BIG | {"regionCode": "eu-west-1"}, [("Hrs", "0", "8.0")]),
    (used("EBS:VolumeP-Throughput.gp3"), [("GiBps-mo", "0", "51.2")]),
)
S3 = offer(
    "AmazonS3",
    (used("USE1-TimedStorage-ByteHrs"), [("GB-Mo", "0", "0.25"), ("GB-Mo", "51200", "0.125")]),
    (used("Requests-Tier2"), [("Requests", "0", "0.0000007000")]),
    (used("Tables-Requests-Tier2"), [("Requests", "0", "0.4")]),
    (used("EUC1-Requests-Tier2", "eu-central-1"), [("Requests", "0", "0.5")]),
)


class Prices(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.offers = Path(folder.name) / "offers"
        self.offers.mkdir()
        self.file = Path(folder.name) / "prices.toml"
        self.write(FILE)

    def write(self, text: str):
        self.file.write_bytes(text.encode())

    def read(self) -> str:
        return self.file.read_bytes().decode()

    def run_script(self, *more: str, **offers: str) -> subprocess.CompletedProcess:
        for name, text in offers.items():
            (self.offers / f"{name}.json").write_text(text)
        command = [sys.executable, SCRIPT, "--prices", self.file, *more, self.offers]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def expected(self) -> str:
        ec2, s3 = json.dumps(str(self.offers / "ec2.json")), json.dumps(str(self.offers / "s3.json"))
        text = FILE.replace("as_of = \"2025-06\"", "as_of = \"2026-10\"", 3)
        for old, new in [
            ("usd_per_hour = 1.5 # an hour", "usd_per_hour = 1.75 # an hour"),
            ("usd_per_1000_get_requests = 0.1", "usd_per_1000_get_requests = 0.0007"),
            ("usd_per_gb_month = 7", "usd_per_gb_month = 0.25"),
            ("usd_per_provisioned_mbps_month = 0.5", "usd_per_provisioned_mbps_month = 0.05"),
            ("checked = false", "checked = true"),
            ('"https://example.org/a" # where', f"{ec2} # where"),
            ('"https://example.org/b"', s3),
            ('"https://example.org/c"', ec2),
        ]:
            text = text.replace(old, new)
        return text

    def test_prices_change_and_comments_and_layout_stay(self):
        check = self.run_script("--check", ec2=EC2, s3=S3)
        self.assertEqual((check.returncode, self.read()), (1, FILE), check.stderr)
        written = self.run_script()
        self.assertEqual(written.returncode, 0, written.stderr)
        self.assertEqual(written.stdout, check.stdout)
        self.assertEqual(self.read(), self.expected())
        self.assertIn('instances."aws/t9.big": usd_per_hour 1.5 -> 1.75 (list of 2026-10)', written.stdout)
        self.assertIn("storage.s3-standard: usd_per_1000_get_requests 0.1 -> 0.0007, usd_per_gb_month 7.0 -> 0.25", written.stdout)
        self.assertIn("storage.mine: skipped: no known product for `usd_per_hour`", written.stdout)
        self.assertEqual([path.name for path in self.file.parent.iterdir() if path.is_file()], ["prices.toml"])
        again = self.run_script("--check")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout.count("unchanged"), 3, again.stdout)

    def test_line_endings_stay(self):
        self.write(FILE.replace("\n", "\r\n"))
        self.assertEqual(self.run_script(ec2=EC2, s3=S3).returncode, 0)
        self.assertEqual(self.read(), self.expected().replace("\n", "\r\n"))

    def test_small_prices_are_written_without_an_exponent(self):
        express = FILE.replace("s3-standard", "s3-express-one-zone").replace("usd_per_gb_month = 7\n", "")
        self.write(express)
        price = (used("Requests-XZ-Tier2"), [("Requests", "0", "0.0000000300")])
        self.assertEqual(self.run_script(s3=offer("AmazonS3", price)).returncode, 0)
        self.assertIn("usd_per_1000_get_requests = 0.00003\n", self.read())

    def test_an_entry_with_a_missing_price_is_skipped(self):
        half = offer("AmazonS3", (used("Requests-Tier2"), [("Requests", "0", "0.5")]))
        ended = self.run_script(s3=half)
        self.assertEqual((ended.returncode, self.read()), (1, FILE), ended.stderr)
        self.assertIn("storage.s3-standard: skipped: no price for `usd_per_gb_month`", ended.stdout)
        self.assertIn("AmazonS3", ended.stderr)

    def test_ambiguous_prices_and_unknown_units_are_skipped(self):
        for prices, reason in [
            ([("GiBps-mo", "0", "51.2"), ("GiBps-mo", "0", "40.96")], "several prices for `usd_per_provisioned_mbps_month`: 0.05, 0.04"),
            ([("Firkins", "0", "51.2")], "unknown unit of `usd_per_provisioned_mbps_month`: Firkins"),
            ([("GiBps-mo", "0", "0.0000000000")], "no price for `usd_per_provisioned_mbps_month`"),
        ]:
            ended = self.run_script(ec2=offer("AmazonEC2", (used("EBS:VolumeP-Throughput.gp3"), prices)))
            self.assertEqual((ended.returncode, self.read()), (1, FILE), reason)
            self.assertIn(f"storage.gp3: skipped: {reason}", ended.stdout)

    def test_unusable_input_ends_with_2(self):
        self.assertEqual(self.run_script().returncode, 2, "an empty folder")
        head = '{"offerCode": "X", "publicationDate": "2026-10-11", "terms": {"OnDemand": {}}, '
        for text in ["", "[]", "{}", "3", head + '"products": 3}', head + '"products": {"A": 3}}']:
            ended = self.run_script(ec2=text)
            self.assertEqual(ended.returncode, 2, text)
            self.assertTrue(ended.stderr.startswith("prices: not an offer file"), ended.stderr)
        for text in ["[instances", FILE.replace("[storage.gp3]", "[storage]\n[[storage.gp3]]"), "instances = 3", FILE.replace("s3-standard]", "s3-standard]\nextra = 1\nextra = 2")]:
            self.write(text)
            ended = self.run_script(ec2=EC2)
            self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
            self.assertTrue(ended.stderr.startswith("prices: "), ended.stderr)
        self.file.unlink()
        self.assertEqual(self.run_script().returncode, 2, "no prices file")

    def test_entries_that_cannot_be_edited_in_place_are_refused(self):
        gp3 = FILE.split("[storage.gp3]\n")[1].split("\n\n")[0]
        inline = "gp3 = { " + ", ".join(gp3.splitlines()) + " }\n"
        text = FILE.replace(f"[storage.gp3]\n{gp3}\n", "").replace("# Objects.\n", f"[storage]\n{inline}\n")
        self.write(text)
        ended = self.run_script(ec2=EC2)
        self.assertEqual((ended.returncode, self.read()), (2, text), ended.stdout)
        self.assertIn("one key a line", ended.stderr)

    def test_the_shipped_file_can_be_updated(self):
        self.write(SHIPPED.read_text())
        gp3 = (used("EBS:VolumeUsage.gp3"), [("GB-Mo", "0", "123.5")])
        ended = self.run_script(ec2=offer("AmazonEC2", gp3))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("staging: usd_per_gb_month 0.08 -> 123.5", ended.stdout)
        differing = [new for old, new in zip(SHIPPED.read_text().splitlines(), self.read().splitlines(), strict=True) if old != new]
        self.assertEqual(differing[:2], ["usd_per_gb_month = 123.5", 'as_of = "2026-10"'])


if __name__ == "__main__":
    unittest.main()
