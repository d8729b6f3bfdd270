"""Names of classes from a file."""

from __future__ import annotations

import hami
import pytest

from hami_tensor.labels import read_labels


def test_each_line_is_the_name_of_a_class(tmp_path):
    (tmp_path / "labels.txt").write_text("Katze\nHühnerhund\n", "utf-8")
    assert read_labels(tmp_path / "labels.txt", "Acme") == ["Katze", "Hühnerhund"]


def test_only_line_breaks_end_a_name(tmp_path):
    names = ["a\x0cb", "c\u2028d", "e\x85f", "", "g"]
    (tmp_path / "labels.txt").write_text("\ufeff" + "\r\n".join(names) + "\r\n", "utf-8", newline="")
    assert read_labels(tmp_path / "labels.txt", "Acme") == names


def test_a_path_that_no_file_can_have_is_an_error_of_the_backend():
    with pytest.raises(hami.ConfigError, match=r'^Acme: "a\\x00b" cannot be read: ') as caught:
        read_labels("a\0b", "Acme")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["absent", "not UTF-8"])
def test_a_file_that_cannot_be_read_is_an_error_of_the_backend(tmp_path, content):
    path = tmp_path / "labels.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(hami.ConfigError, match=r'^Acme: ".*labels.txt" cannot be read: '):
        read_labels(path, "Acme")
