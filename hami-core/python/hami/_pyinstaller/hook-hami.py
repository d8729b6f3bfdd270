"""Hook of PyInstaller: packs hami, and every installed plugin with its metadata, modules, libraries and data.

HAMI_PLUGINS restricts the plugins, as it does when a program runs.
"""

from __future__ import annotations

import os

from PyInstaller.utils.hooks import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    collect_data_files,
    collect_dynamic_libs,
    collect_submodules,
    copy_metadata,
)

from hami._plugins.index import Index

packages = {"hami": "hami-core"}
for plugin in Index(os.environ.get("HAMI_PLUGINS")).plugins:
    if plugin.distribution and plugin.module and not plugin.disabled_by:
        packages[plugin.module.partition(".")[0]] = plugin.distribution

hiddenimports: list[str] = []
datas: list[tuple[str, str]] = []  # codespell:ignore datas
binaries: list[tuple[str, str]] = []
for package, distribution in packages.items():
    hiddenimports += collect_submodules(package, filter=lambda name: "._pyinstaller" not in name)
    datas += [*copy_metadata(distribution), *collect_data_files(package)]  # codespell:ignore datas
    binaries += collect_dynamic_libs(package, search_patterns=["*.so"])
