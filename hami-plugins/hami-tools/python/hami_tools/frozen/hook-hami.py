"""Hook of PyInstaller: packs hami, and every installed plugin with its metadata, modules, libraries and data.

HAMI_PLUGINS restricts the plugins, as it does when a program runs.
"""

from __future__ import annotations

import importlib.metadata as metadata

import hami
from hami.packages import GROUPS
from PyInstaller.utils.hooks import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    collect_data_files,
    collect_dynamic_libs,
    collect_submodules,
    copy_metadata,
)

packages = {"hami": "hami-core"}
for plugin in hami.plugins():
    if plugin.version and plugin.state != "disabled":  # a bare library of HAMI_PLUGIN_PATH has no version
        declared = metadata.distribution(plugin.distribution).entry_points
        packages |= {each.module.partition(".")[0]: plugin.distribution for each in declared if each.group in GROUPS}

hiddenimports: list[str] = []
datas: list[tuple[str, str]] = []  # codespell:ignore datas
binaries: list[tuple[str, str]] = []
for package, distribution in packages.items():
    hiddenimports += collect_submodules(package, filter=lambda name: ".frozen." not in name)
    datas += [*copy_metadata(distribution), *collect_data_files(package)]  # codespell:ignore datas
    binaries += collect_dynamic_libs(package, search_patterns=["*.so"])
