"""Writes a file whole: its readers find the content before, or all of the new one."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hami import ConfigError
from hami.cli import printable


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a new file, which takes the place of `path` when the block ends; of a link, that of its file.

    It is empty, and has the mode of the file whose place it takes.

    Raises:
        ConfigError: `path` is a folder, a device or a pipe, or its folder cannot be written.
    """
    given = Path(path)  # of "", the folder
    if os.path.exists(given) and not os.path.isfile(given):
        raise ConfigError(f'cannot write "{printable(path)}": it is not a regular file; give the name of a file')
    file = Path(os.path.realpath(path))
    new = file.with_name(f".{secrets.token_hex(8)}.part")  # short: the name of the file may be as long as can be
    try:
        new.touch(exist_ok=False)
        with suppress(FileNotFoundError):
            shutil.copymode(file, new)
        yield new
        new.replace(file)
    except OSError as error:
        if error.filename not in (new, str(new), file, str(file)):
            raise
        raise ConfigError(
            f'cannot write "{printable(path)}": {error.strerror}; give the name of a file that can be written'
        ) from error
    finally:
        with suppress(OSError):
            new.unlink()
