"""Tests of scripts/check-structure on small made-up crates: python3 -m unittest discover -s scripts/tests"""
import importlib.util
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True

_loader = SourceFileLoader("check_structure", str(SCRIPTS / "check-structure"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_structure", _loader))
_loader.exec_module(check)


class Rules(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.src = Path(kept.name).resolve()

    def write(self, files: dict[str, str]):
        for name, text in files.items():
            path = self.src / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def crate(self, name, imports=(), libraries=()):
        crate = check.Crate.__new__(check.Crate)
        crate.name, crate.imports, crate.libraries = name, list(imports), list(libraries)
        crate.folder = self.src.parent
        return crate

    def test_each_way_to_break_the_crate_rules_is_told(self):
        faults = check.crate_faults(
            [
                self.crate("tierlab-server", ["tierlab-storage"], ["tokio"]),
                self.crate("tierlab-loadgen", ["tierlab-server"]),
                self.crate("tierlab-analysis", [], ["tokio"]),
                self.crate("tierlab-new"),
            ]
        )
        self.assertEqual(len(faults), 3)
        self.assertIn("tierlab-loadgen must not depend on tierlab-server", faults[0])
        self.assertIn("tierlab-analysis must not depend on tokio: it computes", faults[1])
        self.assertIn("tierlab-new is new", faults[2])

    def test_every_crate_of_the_rules_is_in_the_rules(self):
        self.assertLessEqual(set().union(*check.MAY_IMPORT.values()), set(check.MAY_IMPORT))

    def test_rooms_that_import_each_other_in_a_circle_are_told(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src
        self.write({
            "src/lib.rs": "use crate::a::A;", "src/a/mod.rs": "use crate::{b::B, c};", "src/b.rs": "// crate::a\nuse crate::c::C;\n",
            "src/c/mod.rs": "mod deep;", "src/c/deep.rs": "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n", "src/c/tests.rs": "use crate::b::B;",
        })
        self.assertEqual(check.circle_faults([crate]), [])
        self.write({"src/c/deep.rs": "use crate::a::A;"})
        [fault] = check.circle_faults([crate])
        self.assertRegex(fault, "^tierlab-x: .*c -> a.*: move what both need")

    def test_files_of_a_room_that_import_each_other_in_a_circle_are_told(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src
        self.write({
            "src/a/mod.rs": "mod b;\npub use b::B;\nuse crate::a::c::deep::D;", "src/a/b.rs": "use super::{A, c::{self, deep::{D, E}}};",
            "src/a/c/deep.rs": "use super::super::A;\nfn f(d: crate::d::D) {}", "src/d.rs": "",
        })
        self.assertEqual(check.circle_faults([crate]), [])
        self.write({"src/a/c/deep.rs": "fn f(b: &super::super::b::B) {}"})
        [fault] = check.circle_faults([crate])
        self.assertRegex(fault, "^tierlab-x: .*a/b -> a/c/deep.*: move what both need")

    def test_what_the_map_names_must_be_there(self):
        crate = self.crate("tierlab-x")
        crate.folder = self.src / "x"
        self.write({"x/src/there/f.rs": "", "ARCHITECTURE.md": "`x/src/`, `there/f.rs`, `there/`\n`x/gone.rs` and `some words`, `a::b`"})
        self.assertEqual(check.map_faults([crate], self.src), ["ARCHITECTURE.md:2: there is no x/gone.rs; what has moved has another name here too"])


if __name__ == "__main__":
    unittest.main()
