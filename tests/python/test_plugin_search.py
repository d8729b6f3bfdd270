"""The search of plugins for a name that none declares has a time limit for each import; declared names have none."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import hami
import hami._plugins.loading
import pytest
from conftest import Run, Site
from fake_site import write_plugin
from hami._plugins.manager import PluginManager
from running import TIMEOUT, Gate

REGISTERS_MORE = """
@pluggy.HookimplMarker("hami")
def hami_register(registry):
    registry.add("{name}", "{module}:Echo")
"""


def write_undeclared(site: Site, distribution: str, name: str, first: str = "") -> None:
    """Write a plugin that registers a name without declaring it; `first` is run when it is imported."""
    write_plugin(site.folder, distribution, "1.0")
    module = f"{distribution.replace('-', '_')}_plugin"
    file = site.folder / f"{module}.py"
    file.write_text(f"{first}\n{file.read_text()}{REGISTERS_MORE.format(name=name, module=module)}")
    (site.folder / f"{distribution.replace('-', '_')}-1.0.dist-info" / "entry_points.txt").write_text(
        f"[hami]\n{distribution.partition('-')[2]} = {module}\n"
    )


def end_of_import(module: str) -> None:
    """Wait until the search has imported a module."""
    for thread in threading.enumerate():
        if thread.name == f"hami: import of {module}":
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Return the gate at which `import hanging` waits."""
    module: Any = types.ModuleType("hanging_gate")
    module.gate = Gate()
    monkeypatch.setitem(sys.modules, "hanging_gate", module)
    yield module.gate
    module.gate.open()
    end_of_import("acme_hang_plugin")  # before the fixture `site` removes the module


HANG = "import hanging_gate; hanging_gate.gate.enter()"
UNSEARCHED = (
    "not searched: acme-hang 1.0, whose import has not ended and continues; HAMI_SEARCH_TIMEOUT=0.001s limits the wait"
)


def environment(timeout: str) -> dict[str, str]:
    return {"HAMI_SEARCH_TIMEOUT": timeout}


def test_the_error_for_an_unknown_name_names_a_plugin_whose_import_hangs(site: Site, gate: Gate) -> None:
    write_undeclared(site, "acme-hang", "AcmeHidden", HANG)
    manager = PluginManager(environment("1ms"))
    with pytest.raises(hami.BackendNotFound) as caught:
        manager.find("Identitty")
    assert str(caught.value).splitlines()[0] == (
        'backend "Identitty" not found; did you mean Identity?  (list all: hami backends)'
    )
    assert caught.value.hint.splitlines()[-1].strip() == UNSEARCHED
    with pytest.raises(hami.BackendNotFound) as caught:
        manager.find("AcmeHidden", "acme-hang")
    assert str(caught.value) == f'backend "AcmeHidden" not found in acme-hang\n  {UNSEARCHED}'


def test_an_import_that_ends_after_the_limit_is_used(site: Site, gate: Gate) -> None:
    write_undeclared(site, "acme-hang", "AcmeHidden", HANG)
    manager = PluginManager(environment("0ms"))
    with pytest.raises(hami.BackendNotFound):
        manager.find("AcmeHidden")
    gate.open()
    end_of_import("acme_hang_plugin")
    assert manager.find("AcmeHidden").owner == "acme-hang"


def test_a_later_look_up_waits_for_a_pending_import_as_long_as_its_own_limit_allows(site: Site, gate: Gate) -> None:
    write_undeclared(site, "acme-hang", "AcmeHidden", HANG)
    settings = environment("1ms")
    manager = PluginManager(settings)
    with pytest.raises(hami.BackendNotFound):
        manager.find("AcmeHidden")
    settings["HAMI_SEARCH_TIMEOUT"] = "1000h"
    found = []
    thread = threading.Thread(target=lambda: found.append(manager.find("AcmeHidden").owner), daemon=True)
    thread.start()
    gate.wait_for_arrival()
    thread.join(0.1)  # in which a look-up that does not wait ends
    assert thread.is_alive()
    gate.open()
    thread.join(TIMEOUT)
    assert found == ["acme-hang"]


def test_an_import_that_has_taken_the_limit_is_not_waited_for_again(
    site: Site, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that waits for the whole limit again would not end in this test; so the clock is set forward."""
    write_undeclared(site, "acme-hang", "AcmeHidden", HANG)
    settings = environment("1ms")
    manager = PluginManager(settings)
    with pytest.raises(hami.BackendNotFound):
        manager.find("AcmeHidden")
    later = time.monotonic() + 3600
    monkeypatch.setattr(hami._plugins.loading, "monotonic", lambda: later)
    settings["HAMI_SEARCH_TIMEOUT"] = "1h"
    with pytest.raises(hami.BackendNotFound):
        manager.find("AcmeHidden")


def test_other_plugins_are_searched_in_spite_of_one_that_hangs(site: Site, gate: Gate) -> None:
    write_undeclared(site, "acme-hang", "AcmeHidden", HANG)
    write_undeclared(site, "acme-later", "AcmeExtra")
    manager = PluginManager(environment("0ms"))
    with pytest.raises(hami.BackendNotFound):
        manager.find("Absent")
    end_of_import("acme_later_plugin")
    assert manager.find("AcmeExtra").owner == "acme-later"


def test_a_declared_name_has_no_limit(site: Site, gate: Gate) -> None:
    write_plugin(site.folder, "acme-slow", "1.0", "AcmeSlow")
    file = site.folder / "acme_slow_plugin.py"
    file.write_text(f"{HANG}\n{file.read_text()}")
    manager = PluginManager(environment("0ms"))
    found = []
    thread = threading.Thread(target=lambda: found.append(manager.find("AcmeSlow").owner))
    thread.start()
    gate.wait_for_arrival()
    gate.open()
    thread.join(TIMEOUT)
    assert found == ["acme-slow"]


def test_a_keyboard_interrupt_of_a_searched_plugin_is_raised(site: Site) -> None:
    write_undeclared(site, "acme-stop", "AcmeStop", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        PluginManager({}).find("AcmeStop")


def test_a_searched_plugin_may_set_signal_handlers(site: Site) -> None:
    """Which Python allows only in the main thread."""
    write_undeclared(
        site, "acme-signals", "AcmeSignals", "import signal; signal.signal(signal.SIGUSR2, signal.SIG_DFL)"
    )
    assert PluginManager({}).find("AcmeSignals").owner == "acme-signals"


@pytest.mark.parametrize("text", ["5", "soon", "-1s"])
def test_a_limit_that_is_not_a_duration_is_an_error(site: Site, text: str) -> None:
    with pytest.raises(hami.PluginError) as caught:
        PluginManager(environment(text)).find("Absent")
    assert str(caught.value) == f'HAMI_SEARCH_TIMEOUT takes a duration such as "10s", got "{text}"'


def test_the_commands_name_a_plugin_whose_import_hangs(site: Site, hami_command: Run) -> None:
    write_undeclared(site, "acme-hang", "AcmeHidden", "import time; time.sleep(3600)")
    for command in (("run", "--data", "1", "S[Absent]"), ("run", "--data", "1", "Absent"), ("backends", "Absent")):
        done: subprocess.CompletedProcess[str] = hami_command(
            *command, site=site.folder, HAMI_PLUGINS="hang", HAMI_SEARCH_TIMEOUT="1ms"
        )
        assert (done.returncode, done.stderr.splitlines()[-1].strip()) == (1, UNSEARCHED)
