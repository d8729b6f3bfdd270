"""The hooks for prose in .pre-commit-config.yaml find each banned phrase, and correct English passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from _lib.paths import ROOT

SAMPLES = [
    line
    for line in Path(__file__).with_name("prose_samples.txt").read_text("utf-8").splitlines()
    if line.startswith(("+ ", "- "))
]
WRONG = [line.split(" | ", 1)[1] for line in SAMPLES if line.startswith("- ")]
RIGHT = [line[2:] for line in SAMPLES if line.startswith("+ ")]
FLAGS = {"--ignore-case": re.IGNORECASE, "--multiline": re.MULTILINE | re.DOTALL}


def patterns() -> list[re.Pattern[bytes]]:
    """The expressions, compiled as pre-commit compiles them."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = [hook for hook in repository["hooks"] if hook.get("alias") == "prose"]
    return [re.compile(hook["entry"].encode(), sum(FLAGS[each] for each in hook.get("args", []))) for hook in hooks]


PATTERNS = patterns()


def found(text: str) -> bool:
    return any(pattern.search(text.encode()) for pattern in PATTERNS)


@pytest.mark.parametrize("text", WRONG)
def test_a_banned_phrase_is_found(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", RIGHT)
def test_correct_english_passes(text: str) -> None:
    assert not found(text)


def test_a_phrase_may_be_broken_over_two_lines() -> None:
    assert found("It waits " + "for\n" + "ever.")
