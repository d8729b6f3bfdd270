"""Version bounds agree with packaging, the library that pip uses, on generated versions and specifiers."""

from __future__ import annotations

import pytest
from hami._plugins.requirements import parse_requirement, satisfies

pytest.importorskip("hypothesis", reason="hypothesis generates the versions")
# Up to packaging 25, ">2rc1" rejects 2.post1 and "<1.post1" rejects 1rc1, which the specification does not ask for.
pytest.importorskip("packaging", "26.1", reason="the bounds are compared with packaging 26.1 or newer")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

NUMBERS = st.sampled_from(["0", "1", "2", "10", "01"])
SEPARATORS = st.sampled_from(["", ".", "-", "_"])
PRE_NAMES = st.sampled_from(["a", "alpha", "b", "beta", "c", "rc", "pre", "preview", "RC", "Beta"])
POST_NAMES = st.sampled_from(["post", "rev", "r", "Post"])
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "~="])


def optional(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), part)


def concatenated(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


def named(names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return spellings such as rc1, -RC.1 and .rc."""
    return concatenated(SEPARATORS, names, SEPARATORS, NUMBERS) | concatenated(SEPARATORS, names)


RELEASES = st.lists(NUMBERS, min_size=1, max_size=4).map(".".join)
PUBLIC = concatenated(
    optional(st.just("v")),
    optional(NUMBERS.map("{}!".format)),
    RELEASES,
    optional(named(PRE_NAMES)),
    optional(named(POST_NAMES) | NUMBERS.map("-{}".format)),
    optional(named(st.sampled_from(["dev", "DEV"]))),
)
LOCALS = st.lists(st.sampled_from(["0", "1", "10", "01", "cu12", "CU12", "abc"]), min_size=1, max_size=3).map(".".join)
VERSIONS = concatenated(PUBLIC, optional(LOCALS.map("+{}".format)))
# Versions that are likely to be equal or neighbors.
CLOSE = concatenated(
    st.sampled_from(["1", "1.0", "1.0.0", "1.1", "2"]),
    optional(st.sampled_from(["a1", "rc1", ".post1", ".dev1", "a1.dev1", "rc1.post1", ".post1.dev1", ".post0", "a0"])),
    optional(st.sampled_from(["+1", "+cu12", "+cu12.1", "+1.0"])),
)
ANY_VERSION = VERSIONS | CLOSE
WILDCARDS = concatenated(
    st.sampled_from(["==", "!="]), optional(NUMBERS.map("{}!".format)), RELEASES, st.just(".*")
) | concatenated(st.sampled_from(["==", "!="]), PUBLIC, st.just(".*"))
BOUNDS = WILDCARDS | concatenated(OPERATORS, optional(st.just(" ")), ANY_VERSION)


def packaging_says(version: str, bounds: str) -> bool | None:
    """Return whether packaging accepts the version; None if it rejects the text of the version or of the bounds."""
    try:
        return SpecifierSet(bounds).contains(Version(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return None


def hami_says(version: str, bounds: str) -> bool | None:
    try:
        return satisfies(version, parse_requirement(f"x{bounds}")[1])
    except ValueError:
        return None


@settings(max_examples=500, deadline=None)
@given(version=ANY_VERSION, bounds=st.lists(BOUNDS, min_size=1, max_size=3).map(",".join))
@example("1.0", ">=1.0+cu12")  # these differed once
@example("1.0", "==1.0rc1.*")
@example("1.0", "!=1.0.post1.*")
@example("1.0rc1", "<1.0.post1")
@example("2.0.post1", ">2.0rc1")
@example("1.0+01.1", "==1.0+1.01")
@example("1.0", ">=1.\N{ARABIC-INDIC DIGIT ZERO}")
@example("1.0po\N{LATIN SMALL LETTER LONG S}t1", ">=1.0")
def test_bounds_agree_with_packaging(version: str, bounds: str) -> None:
    assert hami_says(version, bounds) == packaging_says(version, bounds)
