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
        ({}, 'a configuration needs at least one node, such as [node] with backend = "…"'),
        ({"global": {}}, 'a configuration needs at least one node, such as [node] with backend = "…"'),
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
  write a node as a table, [node], and a key for all nodes into [global]""",
        ),
        (
            {"a": {}, "global": 3},
            """global must be a table with keys for all nodes, got int 3
  in  global = 3
      ^^^^^^""",
        ),
        (
            {"a": {}, "entrypoint": 3},
            """entrypoint must be an expression, got int 3
  in  entrypoint = 3
      ^^^^^^^^^^""",
        ),
        (
            {"a": [{"backend": "Identity"}, {}]},
            """[[a]] is a list of tables, but a node is a single table
  in  a = [{…}, {…}]
      ^
  write [a]""",
        ),
        ("two.toml ", '"two.toml " ends with white space; did you mean "two.toml"?'),
        (
            {"a": {}, "providers": "x"},
            """providers must be a table such as ResizeMat = "hami-image", got "x"
  in  providers = "x"
      ^^^^^^^^^""",
        ),
        (
            {"a": {}, "providers": {"X": 3}},
            """the provider of "X" must be the name of a package, got int 3
  in  providers.X = 3
      ^^^^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": "x"},
            """requires must be a list such as ["hami-trt>=2.0"], got "x"
  in  requires = "x"
      ^^^^^^^^""",
        ),
        (
            {"a": {}, "requires": ["x y"]},
            """requires takes a package name with version bounds, such as "hami-trt>=2.0,<3", got 'x y'
  in  requires = ["x y"]
                  ^^^^^""",
        ),
        (
            {"a": {}, "requires": ["pluggy>=1", 3]},
            """requires takes a package name with version bounds, such as "hami-trt>=2.0,<3", got 3
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
        ({"a": {3: "x"}}, 'the keys of node "a" must be text, got int 3'),
        (
            {"a": {"X.k": 1, "X": {"k": 2}}},
            """"X.k" of node "a" is given twice
  in  X.k = 2   (node "a")
      ^^^""",
        ),
        (
            {"a": {"init": "I", "node_entrypoint": "N"}},
            """node "a" has both init and node_entrypoint, which are the same key
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
            """"k" of node "a" must be an int of at most 64 bits
  in  k = 9223372036854775808   (node "a")
      ^""",
        ),
        (
            {"global": {"k": "\ud800"}, "a": {}},
            """"k" of [global] is not valid text: it contains half a surrogate pair, or bytes that are not UTF-8
  in  k = "\\ud800"   ([global])
      ^""",
        ),
        ({"a": {"\udc80": 1}}, 'the keys of node "a" must be text, got "\\x80"'),
        ({"backend": "Identity", None: 1}, "the keys of a configuration must be text, got NoneType None"),
        ({"backend": "Identity", "\udc80": 1}, 'the keys of a configuration must be text, got "\\x80"'),
    ],
)
def test_an_invalid_dict_is_rejected_with_a_message(source: Any, message: str) -> None:
    with pytest.raises(hami.ConfigError) as caught:
        load(source)
    assert str(caught.value) == message
    assert caught.value.problems == [caught.value]


def test_all_problems_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'entrypiont = 1\nrequires = ["acme-none"]\n[a]\nk = 07:32:00\n["b c"]\n'
    text += '[d]\ninit = "I"\nnode_entrypoint = "N"\n'
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    expected = [
        """node "d" has both init and node_entrypoint, which are the same key
  in  init = "I"   (node "d", pipeline.toml:7)
      ^^^^
  remove one of them""",
        """"b c" is not a valid node name: use letters, digits, _ and - only
  in  [b c]   (pipeline.toml:5)
      ^^^^^""",
        """unknown top-level key "entrypiont"; did you mean "entrypoint"?
  in  entrypiont = 1   (pipeline.toml:1)
      ^^^^^^^^^^
  write a node as a table, [node], and a key for all nodes into [global]""",
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
        (b"[a]\nk = '\xff'\n", "pipeline.toml:2: TOML must be UTF-8 text, got an invalid byte at offset 9"),
        ("a = " + "[" * 100_000, "pipeline.toml: tables or arrays are nested too deeply"),
        # tomllib reads these, but the function that finds their lines recurses deeper.
        ("a = " + "{b = " * 250 + "1" + "}" * 250, "pipeline.toml: tables or arrays are nested too deeply"),
        ("a = [{b = 0x" + "f" * 5000 + "}]", "pipeline.toml: a number must have at most 4096 bits, got 20000"),
        ("", 'a configuration needs at least one node, such as [node] with backend = "…"   (pipeline.toml)'),
        ("[a]\nk = '\0'\n", "pipeline.toml:2: TOML must not contain NUL characters"),
        ("[a]\n[b]\n[a]\n", "pipeline.toml:3: Cannot declare ('a',) twice\n  [a]\n    ^"),
        ("[a]\n" + ".".join("k" * 101) + " = 1\n", "pipeline.toml:2: a key must have fewer than 100 dots"),
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
        ("nul\0.toml", 'cannot read "nul\0.toml": a path has no NUL character'),
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
        assert str(caught.value) == (
            f'"{name}" is not an expression; the name of a configuration file must end in .toml, '
            f"and no plugin opens model files that end in {Path(name).suffix}"
        )
