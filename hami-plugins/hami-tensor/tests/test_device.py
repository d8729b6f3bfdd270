"""Device: spellings, equality, and errors."""

from __future__ import annotations

import re
from typing import Any

import hami
import pytest

from hami_tensor import Device


@pytest.mark.parametrize(
    ("given", "spelling"),
    [
        ("cuda:1", "cuda:1"),
        (" cuda:0 ", "cuda:0"),
        ("CUDA", "cuda:0"),
        ("0", "cuda:0"),
        (1, "cuda:1"),
        ("cpu", "cpu"),
        ("MPS", "mps"),
        (Device("cuda:3"), "cuda:3"),
    ],
)
def test_spellings(given: Any, spelling: str) -> None:
    """Each has one spelling and equals the others of it."""
    device = Device(given)
    assert str(device) == spelling
    assert device == Device(spelling)
    assert hash(device) == hash(Device(spelling))
    assert repr(device) == f"Device('{spelling}')"


def test_devices_differ() -> None:
    """By kind and index; a text is not a device."""
    assert len({Device(one) for one in ("cpu", "mps", 0, 1, "cuda", "cuda:1")}) == 4
    assert Device("cpu") != "cpu"


@pytest.mark.parametrize(
    "given", ["gpu", "cuda:", "cuda:x", "cuda:-1", "-1", "", "cuda:0:0", "cpu:0", None, -1, True, 1.5]
)
def test_other_spellings_are_errors(given: Any) -> None:
    """The error names the accepted ones."""
    shown = "-1" if given == -1 else f'"{given}"'
    with pytest.raises(hami.ConfigError) as raised:
        Device(given, owner="Resize")
    assert str(raised.value) == f'Resize: "device" must be cuda, cuda:N, N, cpu or mps, got {shown}'


def test_a_backend_accepts_some_kinds() -> None:
    """Another kind is an error, also if the spelling is right."""
    assert str(Device(1, ["cuda"])) == "cuda:1"
    with pytest.raises(hami.ConfigError, match=re.escape('"device" must be cuda, cuda:N or N, got "cpu"')):
        Device("cpu", ["cuda"])
    with pytest.raises(hami.ConfigError, match=re.escape('"device" must be cpu, got 0')):
        Device(0, ["cpu"])


def test_a_device_that_does_not_exist() -> None:
    """The error names those that there are."""
    device = Device("cuda:1")
    assert device.require(["cuda", "1"]) is device
    with pytest.raises(
        hami.ConfigError, match=r'^Resize: device "cuda:1" is not available: this process sees cuda:0, cpu; use'
    ):
        device.require(["cuda:0", "cpu"], "Resize")
    with pytest.raises(hami.ConfigError, match=r'^device "cuda:1" is not available: this process sees no such device$'):
        device.require([])
