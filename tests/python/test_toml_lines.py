"""Line numbers of the keys of a TOML text."""

from __future__ import annotations

from pathlib import Path

import hami
import pytest
from hami._config.toml_lines import key_lines

CASES = {
    "empty": ("", {}),
    "comments only": ("# a = 1\n\n   # [b]\n", {}),
    "keys": ("a = 1\n\nb = 'x' # c = 2\n", {("a",): 1, ("b",): 3}),
    "tables": ("[a]\nb = 1\n[ c . d ]\ne = 2", {("a",): 1, ("a", "b"): 2, ("c", "d"): 3, ("c", "d", "e"): 4}),
    "dotted keys": ("a.b.c = 1\na.d = 2", {("a",): 1, ("a", "b"): 1, ("a", "b", "c"): 1, ("a", "d"): 2}),
    "quoted keys": ('"a b".\'c\' = 1\n"\\u0064" = 2', {("a b",): 1, ("a b", "c"): 1, ("d",): 2}),
    "inline tables": ("[n]\na = {b = 1, c = {d = 2}}\ne = 3", {
        ("n",): 1, ("n", "a"): 2, ("n", "a", "b"): 2, ("n", "a", "c"): 2, ("n", "a", "c", "d"): 2, ("n", "e"): 3,
    }),
    "arrays over lines": ("a = [\n  1, # ]\n  [2, 'x]'],\n]\nb = 2", {("a",): 1, ("b",): 5}),
    "multi-line text": ('a = """\nb = 1\n\\"""\n"""\nc = 2', {("a",): 1, ("c",): 5}),
    "multi-line text that ends in quotes": ('a = """x"""""\nc = 2', {("a",): 1, ("c",): 2}),
    "literal text": ("a = '''\n[t]\n'''\nc = '\\'\nd = 1", {("a",): 1, ("c",): 4, ("d",): 5}),
    "hash in text": ("a = \"#'\"\nb = '#\"'\nc = 1", {("a",): 1, ("b",): 2, ("c",): 3}),
    "dates": ("a = 1979-05-27 07:32:00 # x\nb = 1", {("a",): 1, ("b",): 2}),
    "arrays of tables": ("[[a]]\nb = 1\n[[a]]\nb = 2", {("a",): 1, ("a", "b"): 2}),
    "no space": ("[a]\nb=1\nc=[]\nd={}", {("a",): 1, ("a", "b"): 2, ("a", "c"): 3, ("a", "d"): 4}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_each_key_has_the_right_line(text: str, expected: dict[tuple[str, ...], int]) -> None:
    assert key_lines(text) == expected


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_text('backend = "Identity"\ncolour = 1\n', encoding="utf-8-sig")
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(path)
    assert f'nothing uses the key "colour"\n  in  colour = 1   (node "default", {path}:2)' in str(caught.value)


def test_the_error_for_another_format_names_toml(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("backend: Identity\n")
    with pytest.raises(hami.ConfigError) as caught:
        hami.pipe(path)
    assert str(caught.value).splitlines()[0].endswith("; a configuration file must be TOML")


def test_every_key_that_tomllib_reads_has_a_line() -> None:
    from hami._config.toml_lines import tomllib

    def paths(table: dict, prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
        found = set()
        for key, value in table.items():
            found.add((*prefix, key))
            if isinstance(value, dict):
                found |= paths(value, (*prefix, key))
        return found

    values = ["1", "'a'", '"b\\"]"', "[1,[2]]", "{x = 1, y = [{}]}", '"""\n"""', "-inf", "07:32:00.5", "0x1f", "true"]
    keys = ["k", '"k k"', "'#'", "a.b", 'x."y.z"']
    for table in ("", "[t]\n", "[ 't t' . u ]\n"):
        for number, value in enumerate(values):
            text = table + "".join(f"{key}.n{number} = {value}\n" for key in keys)
            missing = paths(tomllib.loads(text)) - set(key_lines(text))
            assert missing <= {("t t",)}, text  # a table that only the header of another table implies
