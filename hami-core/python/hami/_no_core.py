"""Explains why the binary of the core cannot be imported. Uses only features of Python 3.6: any Python may run it."""

import glob
import os
import platform
import struct
import sys
import sysconfig


def explain(error: ImportError) -> str:
    """Return a message that names this Python, the installed binary, and what to install."""
    bits = struct.calcsize("P") * 8
    running = f"{platform.python_implementation()} {platform.python_version()}, {bits} bits"
    if platform.python_implementation() != "CPython" or sys.version_info < (3, 10) or bits != 64:
        return f"hami-core needs CPython 3.10 or newer, 64 bits; this is {running}: {sys.executable}"
    folder = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(folder):
        archive = folder
        while not os.path.exists(archive):
            archive = os.path.dirname(archive)
        return (
            f"hami-core is inside an archive, {archive}, from which Python cannot load its binary; unpack it: "
            f"{sys.executable} -m zipfile -e {archive} folder"
        )
    needed = f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    if os.path.exists(os.path.join(folder, needed)):
        return f"the binary of hami-core in {folder} cannot be loaded: {error}"
    found = [os.path.basename(path) for path in sorted(glob.glob(os.path.join(folder, "_core.*.so")))]
    return (
        f"hami-core in {folder} has {', '.join(found) or 'no binary'}, but this Python ({running}) needs {needed}; "
        f"install it with: {sys.executable} -m pip install --force-reinstall hami-core"
    )
