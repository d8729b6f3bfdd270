"""What backends name in annotations: the types of their parameters, and of objects that the core gives them."""

from __future__ import annotations

from hami._core import BackendHandle, DictView, Opaque, RequestStore

__all__ = [
    "Alias",
    "BackendHandle",
    "ByteSize",
    "DictView",
    "Duration",
    "FilePath",
    "Key",
    "Opaque",
    "RequestStore",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias

    Duration: TypeAlias = float
    ByteSize: TypeAlias = int
    FilePath: TypeAlias = Path
else:

    class Duration(float):
        """Annotate a parameter that is a duration: the attribute is a float in seconds.

        Configurations and expressions give a number with a unit, such as "5ms" or "2s".

        >>> @hami.register
        ... class Wait(hami.Backend):
        ...     limit: hami.types.Duration = 0.5
        ...     def forward(self, batch):
        ...         for item in batch:
        ...             item["result"] = self.limit
        >>> with hami.pipe("Wait(limit=20ms)") as pipe:
        ...     pipe({"data": None})["result"]
        0.02
        """

    class ByteSize(int):
        """Annotate a parameter that is a size in bytes: the attribute is an int.

        Configurations and expressions give a number of bytes, or a number with a unit, such as "64MiB" or "2GB".

        >>> @hami.register
        ... class Cache(hami.Backend):
        ...     space: hami.types.ByteSize = 1024
        ...     def forward(self, batch):
        ...         for item in batch:
        ...             item["result"] = self.space
        >>> with hami.pipe("Cache(space=64KiB)") as pipe:
        ...     pipe({"data": None})["result"]
        65536
        """

    class FilePath:
        """Annotate a parameter that is a file which must exist: the attribute is a pathlib.Path.

        A relative path in a configuration file is relative to the folder of that file. `hami.pipe` and `hami check`
        report a file that does not exist.

        >>> @hami.register
        ... class Words(hami.Backend):
        ...     file: hami.types.FilePath
        ...     def forward(self, batch):
        ...         for item in batch:
        ...             item["result"] = len(self.file.read_text().split())
        >>> hami.pipe("Words(file='none.txt')")
        Traceback (most recent call last):
        hami.ConfigError: parameter "file" of Words: file "none.txt" does not exist (looked for …
        """


class Key(str):
    """Give a parameter a name that its attribute cannot have, such as the name of a trait.

    >>> from typing import Annotated
    >>> @hami.register
    ... class Limit(hami.Backend):
    ...     most: Annotated[int, hami.types.Key("max")] = 4
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = self.most
    >>> with hami.pipe("Limit(max=2)") as pipe:
    ...     pipe({"data": None})["result"]
    2
    """

    __slots__ = ()


class Alias(str):
    """Give a parameter another spelling that configurations and expressions may use.

    >>> from typing import Annotated
    >>> @hami.register
    ... class Scale(hami.Backend):
    ...     width: Annotated[int, hami.types.Alias("resize_w")]
    ...     def forward(self, batch):
    ...         for item in batch:
    ...             item["result"] = self.width
    >>> with hami.pipe({"backend": "Scale", "resize_w": 224}) as pipe:
    ...     pipe({"data": None})["result"]
    224

    A node that uses both spellings is an error.
    """

    __slots__ = ()
