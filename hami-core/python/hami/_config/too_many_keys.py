"""The error of a TOML file with more keys than a configuration may have."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from hami import _core
from hami._config.document import MAX_KEYS, document_of
from hami._config.problems import Problems
from hami._config.reader import read_document
from hami._config.toml_lines import key_lines, tomllib
from hami._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHECKED = 1000  # keys; a mistake of a program repeats, so that the first keys show it
_PAIR = re.compile(r"^[ \t]*[A-Za-z0-9_.-]+[ \t]*=", re.M)


def too_many_keys(text: str, keys: int, label: str) -> Exception:
    """Return the error of a text with that many keys, with those of its first keys that no backend uses."""
    headline = f"{label}: a configuration has at most {MAX_KEYS} keys and tables, got {keys}"
    return ConfigError.of([ConfigError(headline), *_unused_keys(text, label)])


def _unused_keys(text: str, label: str) -> Iterator[Exception]:
    """Return what the core says of unused keys among the first ones. Other errors may be due to the missing rest."""
    after = next(islice(_PAIR.finditer(text), MAX_CHECKED, None), None)
    beginning = text[: after.start() if after else 0]
    try:
        document = document_of(tomllib.loads(beginning), Problems(), label, key_lines(beginning))
    except ValueError:  # the text is not TOML, or it was cut inside a value of several lines
        return
    if document.size <= MAX_KEYS:  # a line may have many keys
        for problem in _core.check(read_document(document, Problems())):
            unused = re.match(r'nothing uses the key "(.*)"', str(problem))
            if unused and f"${{{unused[1]}}}" not in text:
                yield problem
