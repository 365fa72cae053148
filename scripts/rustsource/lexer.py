"""Rust source as a list of tokens. White space and comments are left out, documentation too unless it is asked for; a string
keeps its content.

Comes in: the text of one file. Goes out: tokens. Knows nothing of modules or paths.
"""
import re
from typing import NamedTuple


class Token(NamedTuple):
    """`kind` is "ident", "string", "punct" or "doc"; numbers, characters and lifetimes are "other"."""

    kind: str
    text: str
    line: int


# Order matters: raw strings before identifiers, characters before lifetimes.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>(?:br|cr|r)(?P<hashes>\#*)"(?P<raw_text>.*?)"(?P=hashes))
    | (?P<string>[bc]?"(?P<string_text>(?:\\.|[^"\\])*)")
    | (?P<char>b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'])')
    | (?P<lifetime>'[A-Za-z_]\w*)
    | (?P<ident>(?:r\#)?[^\W\d]\w*)
    | (?P<number>\d\w*)
    | (?P<punct>::|->|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def _block_comment_end(text: str, start: int) -> int:
    """The end of the block comment that opens at `start`; block comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def tokens(text: str, docs: bool = False) -> list[Token]:
    """The tokens of a Rust file; with `docs`, each line of `///` is one."""
    found = []
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind = match.lastgroup
        end = match.end()
        # An inner group (the content of a string) may be the last that matched.
        if match.group("raw") is not None:
            found.append(Token("string", match.group("raw_text"), line))
        elif match.group("string") is not None:
            found.append(Token("string", match.group("string_text"), line))
        elif kind == "comment" and docs and match.group().startswith("///"):
            found.append(Token("doc", match.group()[3:].strip(), line))
        elif kind == "block":
            end = _block_comment_end(text, at)
        elif kind == "ident":
            found.append(Token("ident", match.group().removeprefix("r#"), line))
        elif kind == "punct":
            found.append(Token("punct", match.group(), line))
        elif kind in ("char", "lifetime", "number"):
            found.append(Token("other", match.group(), line))
        line += text.count("\n", at, end)
        at = end
    return found
