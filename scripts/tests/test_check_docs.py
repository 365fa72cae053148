"""How scripts/check-docs reads the documentation, and that every page can be read so."""
import importlib.machinery
import importlib.util
import tomllib
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "check-docs"
loader = importlib.machinery.SourceFileLoader("check_docs", str(SCRIPT))
spec = importlib.util.spec_from_loader("check_docs", loader)
check_docs = importlib.util.module_from_spec(spec)
loader.exec_module(check_docs)

PAGE = """# A page

<!-- check-docs
needs: server --set a=1
where: http://server:8000 => http://127.0.0.1:8000
-->
```sh
tierlab-loadgen sweep plan.toml --url http://server:8000
```

1. In a list:

   <!-- check-docs: skip: needs a GPU -->
   ```sh
   tierlab-server
   ```

```console
$ echo one
one
```

<!-- check-docs
file: a.toml
-->
```toml
repeats = 10
```
"""


class Blocks(unittest.TestCase):
    def test_blocks_have_their_lines_languages_and_directives(self):
        first, second, third, fourth = check_docs.blocks("p.md", PAGE)
        self.assertEqual((first.line, first.language, first.one("needs")), (7, "sh", "server --set a=1"))
        self.assertEqual((second.text, second.one("skip"), second.runs), ("tierlab-server\n", "needs a GPU", False))
        self.assertEqual((third.runs, check_docs.commands(third)), (True, "echo one\n"))
        self.assertEqual((fourth.one("file"), fourth.runs), ("a.toml", False))

    def test_a_comment_that_means_nothing_is_refused(self):
        for comment, told in (
            ("<!-- check-docs: skip: -->\n```sh\nx\n```", "says nothing"),
            ("<!-- check-docs: skp: because -->\n```sh\nx\n```", "no directive"),
            ("<!-- check-docs: skip: because -->\ntext\n```sh\nx\n```", "nothing may stand between"),
            ("<!-- check-docs: skip: because -->\n", "no block follows"),
            ("<!-- check-docs\nskip: because\n", "does not end"),
            ("<!-- check-docs: where: a -->\n```sh\nx\n```", "TEXT => TEXT"),
        ):
            with self.subTest(comment=comment), self.assertRaises(check_docs.Failed) as raised:
                check_docs.blocks("p.md", comment)
            self.assertIn(told, str(raised.exception))

    def test_names_of_an_example_are_replaced_and_must_be_there(self):
        ports = {port: port + 1 for port in check_docs.PORTS}
        block = check_docs.blocks("p.md", PAGE)[0]
        text = check_docs.script([block], ports, Path("/nowhere"))
        self.assertIn("tierlab-loadgen sweep plan.toml --url http://127.0.0.1:8001\n", text)
        self.assertIn("need_server --set a=1", text)
        block.directives.append(("where", "absent => present"))
        with self.assertRaises(check_docs.Failed):
            check_docs.script([block], ports, Path("/nowhere"))

    def test_every_page_can_be_read_and_what_is_not_run_says_why(self):
        run = 0
        for page in check_docs.pages():
            for block in check_docs.read(page):
                run += block.runs
                if block.language in check_docs.SHELLS and not block.runs:
                    self.assertTrue(block.one("skip") or block.one("file"), f"{page}:{block.line}")
        self.assertGreater(run, 20)

    def test_the_plan_of_the_guide_to_other_servers_has_a_p99_at_each_rate(self):
        found = [block for block in check_docs.read("docs/how-to/endpoint.md") if block.one("file") == "mine.toml"]
        plan = tomllib.loads(found[0].text)
        for rate in (rate for load in plan["load"] for rate in load["rates"]):
            # 1,000 requests, and more than a random count of arrivals varies.
            self.assertGreater(rate * plan["step_s"] * plan["repeats"], 1_100, f"{rate}/s")


if __name__ == "__main__":
    unittest.main()
