"""ci/prose: each banned phrase is found where it is prose, on its line, and correct English passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _lib import prose

SAMPLES = [
    line
    for line in Path(__file__).with_name("prose_samples.txt").read_text("utf-8").splitlines()
    if line.startswith(("+ ", "- "))
]
WRONG = [tuple(line[2:].split(" | ", 1)) for line in SAMPLES if line.startswith("- ")]
RIGHT = [line[2:] for line in SAMPLES if line.startswith("+ ")]
ANEW = "an" + "ew"  # the shortest banned phrase


def found(text: str) -> list[str]:
    lines = tuple(range(1, text.count("\n") + 2))
    return [finding.phrase for finding in prose.check_text(prose.Text(text, lines), "x")]


@pytest.mark.parametrize(("phrase", "text"), WRONG)
def test_a_banned_phrase_is_found(phrase: str, text: str) -> None:
    assert any(each.lower().startswith(phrase.lower()) for each in found(text))


@pytest.mark.parametrize("text", RIGHT)
def test_correct_english_passes(text: str) -> None:
    assert found(text) == []


def test_every_rule_has_a_sample() -> None:
    used = {rule.pattern for rule in prose.RULES for _, text in WRONG if next(rule.found_in(text), None)}
    assert [rule.pattern.pattern for rule in prose.RULES if rule.pattern not in used] == []


def test_a_phrase_may_be_broken_over_two_lines() -> None:
    assert found("It waits " + "for\n" + "ever.") == [" ".join(("for", "ever"))]


@pytest.fixture
def lines_of(tmp_path: Path) -> Iterator:
    """lines_of(file name, text) -> the lines with a phrase."""

    def check(name: str, text: str) -> list[int]:
        (tmp_path / name).write_text(text, "utf-8")
        return [finding.line for finding in prose.check_file(tmp_path / name, name)]

    return check


PYTHON = '''\
"""A module.

It begins {0}.
"""

name = "{0}"  # a string without a space is data
# It begins {0}.
message = f"of {{name}} {0}"
parts = (
    "one part and "
    "another {0}"
)
code = f"""
    it starts {0}
"""
documented = "`begins {0}` is code"
'''
C = """\
// It begins {0}.
#include "{0}"
const char* word = "{0}";
const char* one = "it begins {0}";
const char* both = "it begins "
                   "{0}";
const char* raw = R"(it
begins {0})";
/* A block
 * that begins {0}. */
char quote = '"'; int {0} = 1;  // then {0}
"""
MARKDOWN = """\
# Title {0}

`{0}` and [a link](a/{0}.md)

```python
print("{0}")
```

| cell | {0} |
"""
TOML = """\
# It begins {0}
key = "it begins {0}"  # {0}
other = "# not a comment {0}"
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("x.py", PYTHON, [3, 7, 8, 11, 14]),
        ("x.cpp", C, [1, 4, 6, 8, 10, 11]),
        ("x.md", MARKDOWN, [1, 9]),
        ("x.toml", TOML, [1, 2]),
        ("x.txt", TOML, []),
    ],
)
def test_prose_is_told_from_code(lines_of, name: str, text: str, lines: list[int]) -> None:
    assert lines_of(name, text.format(ANEW)) == lines


def test_a_script_without_a_suffix_is_read_by_its_first_line(lines_of) -> None:
    assert lines_of("run", f'#!/usr/bin/env python3\nprint("it begins {ANEW}")\n') == [2]
    assert lines_of("run", f'#!/bin/sh\necho "it begins {ANEW}"\n# {ANEW}\n') == [3]


def test_a_template_is_read_as_what_it_becomes(lines_of) -> None:
    assert lines_of("x.py.in", f"import @MODULE@\n# {ANEW}\n") == [2]


def test_a_finding_names_place_phrase_and_suggestion() -> None:
    finding = next(prose.check_text(prose.Text(f"begins {ANEW}", (7,)), "docs/x.md"))
    assert str(finding) == f'docs/x.md:7: "{ANEW}" -> "again"'
