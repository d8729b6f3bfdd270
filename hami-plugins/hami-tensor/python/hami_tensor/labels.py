"""read_labels: the names of a model's classes, one in each line of a file."""

from __future__ import annotations

import os

import hami
from hami.cli import printable, visible


def read_labels(path: str | os.PathLike[str], backend: str) -> list[str]:
    """Return the lines of a file, which end at LF, CR LF or CR; a name may contain other separators.

    Raises:
        hami.ConfigError: The file cannot be read, or is not text in UTF-8.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            return [line.removesuffix("\n") for line in file]
    except (OSError, ValueError) as error:  # text of another encoding, or a name of a file with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise hami.ConfigError(f'{backend}: "{visible(printable(path))}" cannot be read: {reason}') from error
