"""What packages are made of, without building any."""
import re
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from packages import sbom, tree, wheel  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent


class Papers(unittest.TestCase):
    def test_every_link_of_a_packaged_page_leads_to_a_file_of_the_package(self):
        with tempfile.TemporaryDirectory() as folder:
            tree.papers(ROOT, Path(folder))
            doc = Path(folder) / "share/doc/tierlab"
            links = {page: re.findall(r"\]\(([^)#\s]+)", page.read_text()) for page in doc.rglob("*.md")}
            readme = links[doc / "README.md"]
            self.assertIn("docs/how-to/deploy.md", readme)
            self.assertIn("results/make-lab-2core/report.png", readme)
            dead = [
                (page.name, link)
                for page, of_page in links.items()
                for link in of_page
                if not re.match(r"\w+:", link) and not (page.parent / link).exists()
            ]
            self.assertEqual(dead, [])


class Wheel(unittest.TestCase):
    def test_same_tree_same_bytes_and_every_file_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            for name in ("bin/tierlab-server", "lib/tierlab/libonnxruntime.so.1", "share/doc/tierlab/README.md", "share/doc/tierlab/LICENSE"):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text(name)
            made = []
            for part in ("a", "b"):
                (out := Path(folder) / part).mkdir()
                made.append(wheel.build(tree, out, "1.2.3", "manylinux_2_34_x86_64", "9.9", (2026, 1, 2, 3, 4, 6)))
            self.assertEqual(made[0].name, "tierlab-1.2.3-py3-none-manylinux_2_34_x86_64.whl")
            self.assertEqual(made[0].read_bytes(), made[1].read_bytes())
            with zipfile.ZipFile(made[0]) as archive:
                names = archive.namelist()
                record = archive.read("tierlab-1.2.3.dist-info/RECORD").decode()
                metadata = archive.read("tierlab-1.2.3.dist-info/METADATA").decode()
                mode = archive.getinfo("tierlab-1.2.3.data/scripts/tierlab-server").external_attr >> 16
            self.assertEqual({line.split(",")[0] for line in record.splitlines()}, set(names))
            self.assertFalse([name for name in names if "libonnxruntime" in name], "it comes as a dependency")
            self.assertIn("Requires-Dist: onnxruntime==9.9\n", metadata)
            self.assertEqual(mode & 0o777, 0o755)


def package(name: str, program: str | None, source: str | None = None) -> dict:
    targets = [{"name": program, "kind": ["bin"]}] if program else []
    return {"id": name, "name": name, "source": source, "targets": targets}


class Programs(unittest.TestCase):
    def test_every_program_is_a_root_of_the_list_of_parts(self):
        names = [package(f"crate-of-{name}", name) for name in tree.PROGRAMS]
        nodes = [{"id": one["id"], "deps": []} for one in names]
        seen, _ = sbom.linked({"resolve": {"nodes": nodes}, "packages": names})
        self.assertEqual(len(seen), len(tree.PROGRAMS))

    def test_programs_for_development_are_not_shipped(self):
        self.assertIn("tierlab-loadgen", tree.PROGRAMS)
        self.assertNotIn("tierlab-dev", tree.PROGRAMS)
        seen, _ = sbom.linked({
            "resolve": {"nodes": [{"id": "loadgen", "deps": []}, {"id": "dev", "deps": []}]},
            "packages": [package("loadgen", "tierlab-loadgen"), package("dev", "tierlab-dev")],
        })  # fmt: skip
        self.assertEqual(seen, {"loadgen"})


class Parts(unittest.TestCase):
    def test_crates_that_only_build_or_test_are_left_out(self):
        def dep(name, kind):
            return {"pkg": name, "dep_kinds": [{"kind": kind}]}

        nodes = [
            {"id": "server", "deps": [dep("serde", None), dep("cc", "build"), dep("proptest", "dev")]},
            {"id": "serde", "deps": []}, {"id": "cc", "deps": []}, {"id": "proptest", "deps": []},
        ]  # fmt: skip
        packages = [package("server", "tierlab-server"), package("serde", None, "registry")]
        seen, _ = sbom.linked({"resolve": {"nodes": nodes}, "packages": packages})
        self.assertEqual(seen, {"server", "serde"})

    def test_an_old_way_of_writing_licences_becomes_an_expression(self):
        package = {"name": "old", "version": "1.0.0", "license": "MIT/Apache-2.0"}
        self.assertEqual(sbom.component(package, {("old", "1.0.0"): "ab"})["licenses"], [{"expression": "MIT OR Apache-2.0"}])


if __name__ == "__main__":
    unittest.main()
