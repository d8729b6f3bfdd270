"""The allow list of this process: files with native code that configurations may name."""

from __future__ import annotations

import os

from hami import _core


def allow_library(path: os.PathLike[str] | str) -> None:
    """Allow configurations of this process to load a file with native code, or any file in a folder.

    >>> hami.allow_library("/opt/acme/lib")
    >>> hami.check_library("/opt/acme/lib/libengine.so", "library of Engine")

    The environment variable HAMI_ALLOWED_LIBRARIES, files and folders separated by `:`, does the same for a program.

    Args:
        path: A file, a folder, or a name without a slash that the system's loader searches for.
    """
    _core.allow_library(os.fsencode(path))


def check_library(path: os.PathLike[str] | str, what: str) -> None:
    """Check that a configuration may load a file with native code; for backends in Python.

    >>> hami.check_library("beside/the/configuration.so", "library of Engine")
    Traceback (most recent call last):
    hami.ConfigError: library of Engine loads native code, which a configuration may do only from allowed files; …

    A native backend declares a parameter of the type `library` instead, which the core checks. Symbolic links and `..`
    are resolved before paths are compared.

    Args:
        path: The file, as configured.
        what: The parameter and its backend, for the message.

    Raises:
        ConfigError: The file is not allowed.
    """
    _core.check_library(os.fsencode(path), what)
