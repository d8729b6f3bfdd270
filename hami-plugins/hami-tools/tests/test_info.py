"""`hami info`: the machine, its limits, GPUs and engines."""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import pytest
from hami.cli import main

from hami_tools import info, machine


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["info", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_info_shows_the_machine_and_its_limits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.5)
    monkeypatch.setattr(machine, "memory_limit", lambda: 1 << 30)
    found = facts(capsys)
    assert set(found) == {"software", "cpu", "memory", "gpu", "engine"}
    assert found["cpu"]["allowed"] == machine.allowed_cpus()
    assert found["cpu"]["container limit"] == found["cpu"]["usable"] == 0.5
    assert found["memory"]["container limit"] == "1.0 GiB"
    assert found["software"]["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert main(["info"]) == 0
    assert "cpu: container limit" in capsys.readouterr().out


def test_what_cannot_be_read_is_shown_and_does_not_raise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("damaged driver")

    monkeypatch.setattr(machine, "allowed_cpus", broken)
    monkeypatch.setattr(os, "getloadavg", broken)
    assert facts(capsys)["cpu"]["error"] == "RuntimeError: damaged driver"


class Error(Exception):
    pass


def nvml(**functions: Any) -> Any:
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = Error
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def test_gpus_are_read_with_nvml(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = nvml(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"570.1",
        nvmlSystemGetCudaDriverVersion=lambda: 12080,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: types.SimpleNamespace(free=60 << 30, total=80 << 30),
        nvmlDeviceGetName=lambda device: "H100",
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert facts(capsys)["gpu"] == {
        "driver": "570.1",
        "CUDA of the driver": "12.8",
        "0": "H100, 60.0 of 80.0 GiB free",
    }


def test_a_machine_without_a_driver_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Error("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=fail))
    assert facts(capsys)["gpu"] == {"none": "Driver Not Loaded"}


def test_an_engine_without_its_module_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "ENGINES", {"pluggy": "hami_missing_module", "hami-missing": "pluggy"})
    engines = facts(capsys)["engine"]
    assert engines["pluggy"].endswith("but the module hami_missing_module is missing")
    assert "hami-missing" not in engines
