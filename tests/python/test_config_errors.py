"""Errors of invalid configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hami
import pytest
from hami._config import load, read


def problems_of(source: Any) -> list[str]:
    return [str(problem) for problem in read(source)[1]]


def write(folder: Path, text: str | bytes, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, got int"),
        (["a"], "hami.pipe takes a path, a dict, an expression or the name of a packaged pipeline, got list"),
        ({}, 'a configuration needs at least one node, as [node] with backend = "…"'),
        ({"global": {}}, 'a configuration needs at least one node, as [node] with backend = "…"'),
        (
            {"a b": {}},
            """"a b" is not a valid node name: use letters, digits, _ and - only
  in  [a b]
      ^^^^^""",
        ),
        (
            {"a.b": {}},
            """"a.b" is not a valid node name: use letters, digits, _ and - only
  in  [a.b]
      ^^^^^""",
        ),
        (
            {"": {}},
            """"" is not a valid node name: use letters, digits, _ and - only
  in  [""]
      ^^^^""",
        ),
        (
            {3: {}},
            """3 is not a valid node name: use letters, digits, _ and - only
  in  [3]
      ^^^""",
        ),
        (
            {"a": {}, "provider": {}, "globl": "E"},
            """unknown top-level key "globl"; did you mean "global"?
  in  globl = "E"
      ^^^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        ),
        (
            {"a": {}, "zzz": 1},
            """unknown top-level key "zzz"
  in  zzz = 1
      ^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        ),
        (
            {"a": {}, "global": 3},
            """global is a table of keys for all nodes, got int 3
  in  global = 3
      ^^^^^^""",
        ),
        (
            {"a": {}, "entrypoint": 3},
            """entrypoint is an expression, got int 3
  in  entrypoint = 3
      ^^^^^^^^^^""",
        ),
        (
            {"a": [{"backend": "Identity"}, {}]},
            """[[a]] is a list of tables, and a node is one table
  in  a = [{…}, {…}]
      ^
  write [a]""",
        ),
        ("two.toml ", '"two.toml " ends in white space; did you mean "two.toml"?'),
        (
            {"a": {}, "providers": "x"},
            """providers is a table, as ResizeMat = "hami-image", got "x"
  in  providers = "x"
      ^^^^^^^^^""",
        ),
        (
            {"a": {}, "providers": {"X": 3}},
            """providers: "X" is given the name of a package, got int 3
  in  providers.X = 3
      ^^^^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": "x"},
            """requires is a list, as ["hami-trt>=0.3"], got "x"
  in  requires = "x"
      ^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": ["x y"]},
            """requires takes a package and version bounds, as "hami-trt>=0.3,<2", got 'x y'
  in  requires = ["x y"]
                  ^^^^^""",
        ),
        (
            {"a": {}, "requires": ["pluggy>=1", 3]},
            """requires takes a package and version bounds, as "hami-trt>=0.3,<2", got 3
  in  requires = ["pluggy>=1", 3]
                               ^""",
        ),
        (
            {"a": {}, "requires": ["acme-none>=0.3"]},
            """requires acme-none>=0.3, which is not installed: pip install "acme-none>=0.3"
  in  requires = ["acme-none>=0.3"]
                  ^^^^^^^^^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": ["hami_core>=99"]},
            f"""requires hami_core>=99, but hami_core {hami.__version__} is installed: pip install "hami_core>=99"
  in  requires = ["hami_core>=99"]
                  ^^^^^^^^^^^^^^^""",
        ),
        ({"a": {3: "x"}}, 'a key of node "a" is not text: int 3'),
        (
            {"a": {"X.k": 1, "X": {"k": 2}}},
            """"X.k" of node "a" is given twice
  in  X.k = 2   (node "a")
      ^^^""",
        ),
        (
            {"a": {"init": "I", "node_entrypoint": "N"}},
            """node "a" has init and node_entrypoint, which are the same key
  in  init = "I"   (node "a")
      ^^^^
  remove one of them""",
        ),
        (
            {"a": {"k": {1, 2}}},
            """"k" of node "a" takes text, numbers, booleans or lists of them, got set {1, 2}
  in  k = {1, 2}   (node "a")
      ^""",
        ),
        (
            {"a": {"k": b"x" * 61}},
            f""""k" of node "a" takes text, numbers, booleans or lists of them, got bytes
  in  k = b'{"x" * 61}'   (node "a")
      ^""",
        ),
        (
            {"a": {"k": 1 << 63}},
            """"k" of node "a" has more than the 64 bits of a whole number
  in  k = 9223372036854775808   (node "a")
      ^""",
        ),
        (
            {"global": {"k": "\ud800"}, "a": {}},
            """"k" of [global] contains half a surrogate pair, which is not valid text
  in  k = "\\ud800"   ([global])
      ^""",
        ),
        ({"a": {"\udc80": 1}}, 'a key of node "a" is not text: "\\udc80"'),
        ({"backend": "Identity", None: 1}, "a key is not text: NoneType None"),
        ({"backend": "Identity", "\udc80": 1}, 'a key is not text: "\\udc80"'),
    ],
)
def test_an_invalid_dict_is_rejected_with_a_message(source: Any, message: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    assert str(caught.value) == message
    assert caught.value.problems == [caught.value]


def test_all_problems_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'speed = 1\nrequires = ["acme-none"]\n[a]\nk = 07:32:00\n["b c"]\n[d]\ninit = "I"\nnode_entrypoint = "N"\n'
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    expected = [
        """node "d" has init and node_entrypoint, which are the same key
  in  init = "I"   (node "d", pipeline.toml:7)
      ^^^^
  remove one of them""",
        """"b c" is not a valid node name: use letters, digits, _ and - only
  in  [b c]   (pipeline.toml:5)
      ^^^^^""",
        """unknown top-level key "speed"
  in  speed = 1   (pipeline.toml:1)
      ^^^^^
  a node is a table, [node]; a key for all nodes goes into [global]""",
        """requires acme-none, which is not installed: pip install "acme-none"
  in  requires = ["acme-none"]   (pipeline.toml:2)
                  ^^^^^^^^^^^""",
        """"k" of node "a" takes text, numbers, booleans or lists of them, got time datetime.time(7, 32)
  in  k = datetime.time(7, 32)   (node "a", pipeline.toml:4)
      ^""",
    ]
    assert problems_of("pipeline.toml") == expected
    with pytest.raises(hami.ConfigError) as caught:
        load("pipeline.toml")
    assert str(caught.value) == "\n\n".join(["5 problems in the configuration", *expected])
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[a]\nbackend "X"\n',
            "pipeline.toml:2: Expected '=' after a key in a key/value pair\n  backend \"X\"\n          ^",
        ),
        ("[a\n", "pipeline.toml:1: Expected ']' at the end of a table declaration\n  [a\n    ^"),
        ("a = 1\na = 2", "pipeline.toml:2: Cannot overwrite a value"),
        ("[a]\nk = [1\n", "pipeline.toml:2: Unclosed array"),
        (b"[a]\nk = '\xff'\n", "pipeline.toml:2: not UTF-8 text, which TOML files are (byte 9)"),
        ("a = " + "[" * 100_000, "pipeline.toml: nested too deeply"),
        ("", 'a configuration needs at least one node, as [node] with backend = "…"   (pipeline.toml)'),
        ("[a]\nk = '\0'\n", "pipeline.toml:2: a NUL character, which TOML files never have"),
        ("[a]\n[b]\n[a]\n", "pipeline.toml:3: Cannot declare ('a',) twice\n  [a]\n    ^"),
        ("[a]\n" + ".".join("k" * 101) + " = 1\n", "pipeline.toml:2: a key has 100 dots or more"),
    ],
)
def test_invalid_toml_is_reported_with_its_position(
    text: str | bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hami.ConfigError) as caught:
        load("pipeline.toml")
    assert str(caught.value).rstrip() == message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "", "pipeline.toml")
    (tmp_path / "folder.toml").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, message in [
        ("pipelin.toml", 'cannot read "pipelin.toml": No such file or directory; did you mean "pipeline.toml"?'),
        (
            "none/x.toml",
            f'cannot read "none/x.toml": No such file or directory (looked for {tmp_path}/none/x.toml)',
        ),
        (f"{tmp_path}/x.toml", f'cannot read "{tmp_path}/x.toml": No such file or directory'),
        ("folder.toml", 'cannot read "folder.toml": Is a directory'),
        ("nul\0.toml", 'cannot read "nul\0.toml": embedded null byte'),
    ]:
        with pytest.raises(hami.ConfigError) as caught:
            load(name)
        assert str(caught.value) == message


def test_a_file_name_without_the_suffix_toml_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "{}", "pipeline.json")
    (tmp_path / "conf").mkdir()
    write(tmp_path / "conf", "{}", "p.yaml")
    monkeypatch.chdir(tmp_path)
    for name in ("pipeline.json", "conf/p.yaml"):
        with pytest.raises(hami.ConfigError) as caught:
            load(name)
        assert str(caught.value) == f'"{name}" is not an expression; a configuration file ends in .toml'
