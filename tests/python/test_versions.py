"""Version bounds have the same meaning as in pip."""

from __future__ import annotations

import pytest
from hami._plugins.requirements import parse_requirement, satisfies

MET = [
    ("0.3.1", "x>=0.3"),
    ("0.3", "x >= 0.3.0"),
    ("1.0", "x==1.0.0"),
    ("1.0+cu12", "x==1.0"),
    ("1.0+cu12", "x==1.0+cu12"),
    ("1.2.3", "x==1.2.*"),
    ("1.3", "x!=1.2.*"),
    ("1.9", "x>=1,<2"),
    ("0.3.5", "x~=0.3.1"),
    ("0.9", "x~=0.3"),
    ("1.0a1", "x<1.0b1"),
    ("1.0.dev1", "x<=1.0"),
    ("2.0.post1", "x>=2.0"),
    ("1!0.1", "x>5"),
    ("v1.0-RC1", "x==1.0c1"),
    ("1.0", "x"),
]
MISSED = [
    ("0.2.9", "x>=0.3"),
    ("0.3.0rc1", "x>=0.3"),
    ("0.4", "x~=0.3.1"),
    ("1.0", "x~=0.3"),
    ("1.0.post1", "x>1.0"),
    ("2.0rc1", "x<2"),
    ("1.0.dev1", "x<1.0"),
    ("1.2.3", "x!=1.2.*"),
    ("1.0", "x==1.0+cu12"),
    ("2", "x>=1,<2"),
    ("1.0.1", "x==1.0"),
]


@pytest.mark.parametrize(("version", "requirement"), MET)
def test_a_bound_is_met(version: str, requirement: str) -> None:
    assert satisfies(version, parse_requirement(requirement)[1])


@pytest.mark.parametrize(("version", "requirement"), MISSED)
def test_a_bound_is_not_met(version: str, requirement: str) -> None:
    assert not satisfies(version, parse_requirement(requirement)[1])


@pytest.mark.parametrize(("version", "requirement"), [*MET, *MISSED])
def test_packaging_agrees(version: str, requirement: str) -> None:
    requirements = pytest.importorskip("packaging.requirements")
    specifiers = requirements.Requirement(requirement).specifier
    assert satisfies(version, parse_requirement(requirement)[1]) == specifiers.contains(version, prereleases=True)


@pytest.mark.parametrize("text", ["", ">=1", "x>=", "x>=1;python", "x[a]>=1", "x 1", "x~=1", "x>=1.*", "x>=1,", "x=1"])
def test_an_invalid_requirement_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (its text is not shown)
        parse_requirement(text)
