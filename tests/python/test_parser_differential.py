"""The parser of the core agrees with the reference parser on any text: both reject it, or both return the same tree."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hami import _core
from hami._errors import ConfigError
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_parser import Refused, Tree, parse

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "expression"

# Deterministic and without files: the same examples on every machine. The fuzz targets go further.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.load_profile("same")

IDENTS = st.sampled_from(["a", "B", "_x", "S", "IoC", "key_1", "default", "or"])
TEMPLATES = st.sampled_from(["{node_name}", "{k}"])
SEGMENTS = st.lists(st.one_of(IDENTS, TEMPLATES, st.sampled_from(["1", "-", "det-1", "0"])), min_size=1, max_size=2)
PATHS = st.lists(SEGMENTS.map("".join), min_size=1, max_size=3).map(".".join)
DISTRIBUTED = st.tuples(st.sampled_from(["hami-image", "d.x_y", "0"]), IDENTS)
BARE = st.one_of(
    IDENTS, st.sampled_from(["4", "1.5", "/a/b.onnx", "{k}x{node_name}", "::", ":", "a:b", "é", "😀", "\\"])
)
QUOTABLE = st.text(alphabet="ab {}[](),;='\"\\\n\té😀", max_size=6)


def quoted(text: str, quote: str, all_escapes: bool) -> str:
    """Return a text with both kinds of quotes and line breaks in quoted form, in one of two ways."""
    text = text.replace("\\", "\\\\").replace(quote, "\\" + quote)
    if all_escapes:
        text = text.replace("\n", "\\n").replace("\t", "\\t")
    return quote + text + quote


VALUES = st.one_of(BARE, st.builds(quoted, QUOTABLE, st.sampled_from("'\""), st.booleans()))
SPACES = st.sampled_from(["", "", "", " ", "\n", "\t \r\n"])


@st.composite
def tokens(draw: st.DrawFn, depth: int = 3) -> list[str]:
    """Draw an expression as a list of tokens; white space is allowed between any two."""

    def arguments() -> list[str]:
        found = ["("]
        for index in range(draw(st.integers(1, 3))):
            found += [","] * (index > 0)
            found += [*draw(st.sampled_from([[], [f"k{index}", "="]])), draw(VALUES)]
        return [*found, ")"]

    def items() -> list[str]:
        found = ["["]
        for index in range(draw(st.integers(1, 3))):
            found += [draw(st.sampled_from([",", ";"]))] * (index > 0)
            if draw(st.integers(0, 4)) == 0:
                found += [f"k{index}", "=", draw(VALUES)]
            else:
                found += draw(st.sampled_from([[], [], [f"alias{index}", ":="]])) + draw(tokens(depth=depth - 1))
        return [*found, "]"]

    found = arguments() if draw(st.integers(0, 4)) == 0 else []
    if draw(st.integers(0, 4)) == 0:
        distribution, name = draw(DISTRIBUTED)
        found += [distribution, "::", name]
    else:
        found.append(draw(PATHS))
    if draw(st.integers(0, 2)) == 0:
        found += arguments()
    return found + items() if depth > 0 and draw(st.booleans()) else found


@st.composite
def expressions(draw: st.DrawFn) -> str:
    return "".join(draw(SPACES) + token for token in draw(tokens())) + draw(SPACES)


# Pieces of text that are inserted where a valid expression does not have them.
ODDITIES = [
    *"()[]{},;=:'\"\\. \n\t-_0a",
    "::",
    ":=",
    "(or)",
    "{k}",
    "{",
    "\\n",
    "k=1",
    "''",
    "\0",
    "\x7f",
    "é",
    "\u2028",
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a valid text with a few changes."""
    text = draw(expressions())
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 2)))
        text = text[:begin] + draw(st.sampled_from(["", *ODDITIES])) + text[end:]
    return text


SOUP = st.lists(st.sampled_from(["A", "S", "a.b", "d", *ODDITIES]), max_size=12).map("".join)


def in_core(text: str) -> Tree | None:
    try:
        return _core.parse_tree(text)
    except ConfigError:
        return None


def in_reference(text: str) -> Tree | None:
    try:
        return parse(text)
    except Refused:
        return None


def tree_of_both(text: str) -> Tree | None:
    """Return the tree of both parsers, or None if both reject the text; also check that printing round-trips."""
    tree = in_core(text)
    assert tree == in_reference(text)
    if tree is not None:
        printed = _core.print_expression(text)
        assert _core.parse_tree(printed) == tree
        assert _core.print_expression(printed) == printed
    return tree


@given(expressions())
@settings(max_examples=400)
def test_valid_text_gives_the_same_tree(text: str) -> None:
    assert tree_of_both(text) is not None


@given(mutated())
@settings(max_examples=500)
def test_both_parsers_agree_on_mutated_text(text: str) -> None:
    tree_of_both(text)


@given(SOUP)
@settings(max_examples=1500)
def test_both_parsers_agree_on_any_sequence_of_tokens(text: str) -> None:
    tree_of_both(text)


def test_both_parsers_agree_on_short_texts() -> None:
    """Random sequences of few characters, from a cheap generator, cover nearly every short text."""
    chance = random.Random(0)
    marks = ["A", "a", "=", ":=", "::", ",", ";", "(", ")", "[", "]", "'", "{a}", "1"]
    outcomes = [tree_of_both("".join(chance.choices(marks, k=k))) for k in range(1, 8) for _ in range(4000)]
    accepted = sum(outcome is not None for outcome in outcomes)
    assert 1000 < accepted < len(outcomes) - 1000


def test_both_parsers_agree_on_the_corpus_of_the_fuzz_target() -> None:
    texts = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    trees = [tree_of_both(text.decode()) for text in texts if is_utf8(text)]
    assert sum(tree is not None for tree in trees) >= 20


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("S[" * 200 + "A" + "]" * 200, True),
        ("S[" * 201 + "A" + "]" * 201, False),
        ("S[" * 199 + "A(1)" + "]" * 199, True),
        ("S[" * 200 + "A(1)" + "]" * 200, False),
        ("A('" + "x" * ((1 << 20) - 5) + "')", True),
        ("A('" + "x" * ((1 << 20) - 4) + "')", False),
        ("A('" + "é" * ((1 << 19) - 2) + "')", False),
        ("S[" + "A," * 9999 + "A]", True),
        ("A(" + ",".join(f"k{i}=1" for i in range(10_000)) + ")", True),
        ("A(" + ",".join(f"k{i}=1" for i in range(10_000)) + ",k77=1)", False),
        ("\0", False),
        ("A\x1f", False),
        ("A('\r\n\t')", True),
        ("A('\x7f')", False),
    ],
    ids=lambda value: str(value)[:20].replace("\0", "NUL"),
)
def test_limits_are_the_same(text: str, accepted: bool) -> None:
    assert (tree_of_both(text) is not None) == accepted


def test_text_that_is_not_utf8_is_rejected_as_such() -> None:
    with pytest.raises(TypeError):
        _core.parse_tree("A('\ud800')")


def test_a_tree_has_the_parts_of_the_text() -> None:
    def arg(key: str, value: str, plain: bool = False) -> tuple[str, str, bool]:
        return key, value, plain

    def expr(name: str, **given: Any) -> Tree:
        return {"distribution": "", "name": name, "when": [], "args": [], "phases": [], **given}

    text = "IoC [ x := d-1 :: A ( 1 , k = 'a b' ) , mode = '{k}' ; (or) node.{k}[ B ; C ] ]"
    tree = expr(
        "IoC",
        phases=[
            [
                {"alias": "x", "expr": expr("A", distribution="d-1", args=[arg("", "1"), arg("k", "a b")])},
                {"alias": "", "setting": arg("mode", "{k}", True)},
            ],
            [
                {
                    "alias": "",
                    "expr": expr(
                        "node.{k}",
                        when=[arg("", "or")],
                        phases=[[{"alias": "", "expr": expr("B")}], [{"alias": "", "expr": expr("C")}]],
                    ),
                }
            ],
        ],
    )
    assert tree_of_both(text) == tree
    assert _core.print_expression(text) == "IoC[x:=d-1::A(1,k='a b'),mode='{k}';(or)node.{k}[B;C]]"
