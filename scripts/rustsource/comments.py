"""What the comments of a shipped TOML file say of each key.

Comes in: the file's text and the keys that there are. Goes out: for each key its comment and the value shown. A key that is
commented out, as `# key = value`, counts; so does one of a table that is.
"""
import re
from dataclasses import dataclass, field

_TABLE = re.compile(r"^(?:#\s*)?\[\[?([A-Za-z0-9_.]+)\]\]?\s*(?:#\s*(.*))?$")
_KEY = re.compile(r"^(#\s*)?([A-Za-z0-9_]+)\s*=\s*(.*)$")


@dataclass
class Said:
    """Of one key: the comment, the value shown, and whether it is set there (not commented out)."""

    comment: str
    value: str
    is_set: bool


@dataclass
class Commented:
    """Of one file: keys by table and name, and the comment above each table."""

    keys: dict[tuple[str, str], Said] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)


def read(text: str, known: set[tuple[str, str]]) -> Commented:
    """Reads a file; `known` tells keys from prose that has a `=` in it."""
    found = Commented()
    tables = {table for table, _ in known}
    table, prose, last = "", [], None
    for line in text.splitlines():
        line = line.strip()
        heading = _TABLE.match(line)
        key = _KEY.match(line)
        if heading and heading.group(1) in tables:
            table, last = heading.group(1), None
            found.tables.setdefault(table, " ".join(prose))
            prose = []
        elif key and (table, key.group(2)) in known:
            value, comment = _without_comment(key.group(3))
            words = " ".join([*prose, comment]).strip()
            if not words and last is not None:
                words = f"See `{last}`."
            else:
                last = key.group(2) if words else None
            found.keys.setdefault((table, key.group(2)), Said(words, value, key.group(1) is None))
            prose = []
        elif line.startswith("#"):
            prose.append(line.strip("# "))
        else:
            prose, last = [], None
    return found


def _without_comment(text: str) -> tuple[str, str]:
    """A value, and the comment behind it; a `#` in a string is none."""
    quoted = False
    for at, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif letter == "#" and not quoted:
            return text[:at].strip(), text[at + 1 :].strip()
    return text.strip(), ""
