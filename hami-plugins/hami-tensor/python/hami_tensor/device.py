"""`hami_tensor.Device`: the one table of spellings for devices."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hami import ConfigError

SPELLINGS = {"cuda": ("cuda", "cuda:N", "N"), "cpu": ("cpu",), "mps": ("mps",)}


class Device:
    """A device that a backend runs on, in one spelling.

    >>> from hami_tensor import Device
    >>> Device(" CUDA:1 "), Device("1"), Device(0), Device("cuda"), Device("cpu")
    (Device('cuda:1'), Device('cuda:1'), Device('cuda:0'), Device('cuda:0'), Device('cpu'))
    >>> Device("cuda:1").kind, Device("cuda:1").index
    ('cuda', 1)

    Equal devices are equal and have the same hash. `str(device)` is the spelling that engines take.
    """

    __slots__ = ("index", "kind")

    kind: str
    """"cuda", "cpu" or "mps"."""
    index: int
    """The number of the device among those of its kind that the process sees; 0 for "cpu" and "mps"."""

    def __init__(
        self, given: Device | str | int, kinds: Iterable[str] = ("cuda", "cpu", "mps"), owner: str = ""
    ) -> None:
        """Read a spelling.

        Args:
            given: "cpu", "mps", "cuda" (the first one), "cuda:N", "N" or N; case and spaces around it do not matter.
            kinds: The kinds that are accepted.
            owner: The name of the backend, for the error.

        Raises:
            ConfigError: It is another spelling, or another kind.
        """
        if isinstance(given, Device):
            self.kind, self.index = given.kind, given.index
        else:
            self.kind, self.index = _read(given)
        if self.kind not in kinds:
            *others, last = (spelling for kind in kinds for spelling in SPELLINGS[kind])
            allowed = f"{', '.join(others)} or {last}" if others else last
            shown = given if isinstance(given, int) and not isinstance(given, bool) else f'"{given}"'
            raise ConfigError(f'{owner}{": " if owner else ""}"device" must be {allowed}, got {shown}')

    def require(self, available: Iterable[str], owner: str = "") -> Device:
        """Return this device if it is one of those that exist.

        >>> Device("cuda:1").require(["cuda:0"], "Blur")
        Traceback (most recent call last):
        hami.ConfigError: Blur: device "cuda:1" is not available: this process sees cuda:0; use one of these

        Raises:
            ConfigError: There is no such device. The error names those that there are.
        """
        there = [str(Device(one)) for one in available]
        if str(self) in there:
            return self
        prefix = f"{owner}: " if owner else ""
        seen = f"sees {', '.join(there)}; use one of these" if there else "sees no such device"
        raise ConfigError(f'{prefix}device "{self}" is not available: this process {seen}')

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind

    def __repr__(self) -> str:
        return f"Device('{self}')"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def _read(given: object) -> tuple[str, int]:
    """Return kind and index; the kind is "" if the spelling is unknown."""
    if isinstance(given, int) and not isinstance(given, bool):
        return ("cuda", given) if given >= 0 else ("", 0)
    text = given.strip().lower() if isinstance(given, str) else ""
    if text in ("cpu", "mps"):
        return text, 0
    found = re.fullmatch(r"(?:cuda|(?:cuda:)?([0-9]{1,4}))", text)
    return ("cuda", int(found[1] or 0)) if found else ("", 0)
