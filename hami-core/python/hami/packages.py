"""Installed plugins, the catalogue and the policy of the machine, for commands and tools.

>>> import hami
>>> import hami.packages
>>> isinstance(hami.backends()["Identity"], hami.packages.BackendInfo)
True
>>> hami.packages.first_party().owners("commands")["schema"]
['hami-tools']
"""

from __future__ import annotations

from hami._backends.description import check_name
from hami._plugins import policy
from hami._plugins.catalog import SNAPSHOT, Catalog, CatalogEntry, first_party, load_local
from hami._plugins.catalog import VARIABLE as CATALOG_VARIABLE
from hami._plugins.catalog import damaged as damaged_catalog
from hami._plugins.catalog import parse as parse_catalog
from hami._plugins.distributions import GROUPS
from hami._plugins.files import Incomplete, bounded, distributions, make_private, open_file, read_file
from hami._plugins.lookup import devices
from hami._plugins.messages import install_command
from hami._plugins.plugin import CORE, normalised
from hami._plugins.recorded_files import digest, own_folders, reinstall
from hami._plugins.records import BackendInfo, PluginRecord

__all__ = [
    "CATALOG_VARIABLE",
    "CORE",
    "GROUPS",
    "SNAPSHOT",
    "BackendInfo",
    "Catalog",
    "CatalogEntry",
    "Incomplete",
    "PluginRecord",
    "bounded",
    "check_name",
    "damaged_catalog",
    "devices",
    "digest",
    "distributions",
    "first_party",
    "install_command",
    "load_local",
    "make_private",
    "normalised",
    "open_file",
    "own_folders",
    "parse_catalog",
    "policy",
    "read_file",
    "reinstall",
]
