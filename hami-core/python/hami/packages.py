"""Records of installed plugins and of backends, for commands and tools.

>>> import hami
>>> import hami.packages
>>> isinstance(hami.backends()["Identity"], hami.packages.BackendInfo)
True
"""

from __future__ import annotations

from hami._plugins.records import BackendInfo, PluginRecord

__all__ = ["BackendInfo", "PluginRecord"]
