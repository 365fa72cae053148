"""Tests of scripts/bench/dlio on a shard by hand and on invented figures."""
import importlib.machinery
import importlib.util
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "bench/dlio"
LOADER = importlib.machinery.SourceFileLoader("dlio", str(SCRIPT))
dlio = importlib.util.module_from_spec(importlib.util.spec_from_loader("dlio", LOADER))
LOADER.exec_module(dlio)


class Dlio(unittest.TestCase):
    def test_each_record_is_found_with_its_frame(self):
        shard = b"".join(len(record).to_bytes(8, "little") + b"crc_" + record + b"crc_" for record in [b"", b"abc", b"0123456789"])
        with tempfile.NamedTemporaryFile() as file:
            file.write(shard)
            file.flush()
            offsets, sizes = dlio.records(file.name)
        self.assertEqual((list(offsets), list(sizes)), ([0, 16, 35], [16, 19, 26]))
        self.assertEqual(shard[35 + 12:35 + 26 - 4], b"0123456789")

    def test_medians_ratios_and_the_highest_demand_that_is_fed(self):
        slow = [{"ours": 99, "quiet": 90, "dlio": 45}, {"ours": 99, "quiet": 99, "dlio": 50}, {"ours": 98, "quiet": 49, "dlio": 40}]
        fast = [{"ours": 91, "quiet": 60, "dlio": 10}]
        found = dlio.summarise({"64": slow, "8": fast})
        self.assertEqual(found["utilisation"]["64"], {"ours": 99, "quiet": 90, "dlio": 45})
        self.assertAlmostEqual(found["ratio"]["64"], 1.1)
        self.assertEqual(found["fed_per_s"], {"ours": 8000, "quiet": 1000, "dlio": 0})
        page = dlio.text({"when": "now", "cores": 2, "load_before": 0, "load_after": 1, "rounds": 3, "seconds": 2, **found})
        self.assertIn("rows/s fed at 90 %", page)


if __name__ == "__main__":
    unittest.main()
