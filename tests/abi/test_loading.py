"""Discovery and loading of native plugins: wheels, HAMI_PLUGIN_PATH, versions, and files that are not plugins."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hami
import pytest
from conftest import GOLDEN, HERE, SHARED, TOOLCHAINS, Toolchain

Build = Callable[..., Path]
VERSIONS = HERE / "plugins" / "versions.c"
SERVES = f"hami-core {hami.__version__} serves 1.1"


def versions(toolchain: Toolchain, build: Build, major: int, minor: int, needs: int) -> Path:
    return build(toolchain, VERSIONS, f"-DMAJOR={major}", f"-DMINOR={minor}", f"-DNEEDS={needs}")


def test_a_plugin_of_a_later_minor_runs_and_sees_later_functions_as_absent(toolchain: Toolchain, build: Build) -> None:
    assert hami.native.register_plugin(versions(toolchain, build, 1, 3, 0)) == ["HasLater"]
    with hami.pipe("HasLater") as pipe:
        assert pipe({"data": 0})["result"] is False


@pytest.mark.parametrize(
    ("major", "needs", "text"),
    [
        (1, 4, f"needs hami ABI 1.4; {SERVES}: pip install -U hami-core"),
        (1, 65535, f"needs hami ABI 1.65535; {SERVES}: pip install -U hami-core"),
        (2, 0, f"needs hami ABI 2.0; {SERVES}: pip install -U hami-core"),
        (0, 7, f"needs hami ABI 0.7; {SERVES}; install a newer version of the plugin"),
    ],
)
def test_a_plugin_that_needs_another_abi_is_rejected(
    toolchain: Toolchain, build: Build, major: int, needs: int, text: str
) -> None:
    library = versions(toolchain, build, major, needs, needs)
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(library)
    assert str(caught.value) == f'the plugin "{library}" {text}'


def test_the_error_for_a_file_that_is_not_a_library_contains_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library, but long enough that the loader reads it as the header of one")
    (tmp_path / "folder.so").mkdir()
    for name, why in (
        ("text.so", '"{}" is not a shared library: it does not start as an ELF file'),
        ("folder.so", '"{}" is not a regular file'),
        ("absent.so", "{}: cannot open shared object file: No such file or directory"),
    ):
        with pytest.raises(hami.PluginError) as caught:
            hami.native.register_plugin(tmp_path / name)
        assert str(caught.value) == why.format(tmp_path / name)


def test_loading_a_library_by_path_does_not_read_installed_packages(toolchain: Toolchain, build: Build) -> None:
    library = build(toolchain, GOLDEN / "plain.c", include=GOLDEN / "include")
    script = "import sys, hami; hami.native.register_plugin(sys.argv[1]); print('importlib.metadata' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(library)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_library_without_the_entry_function_is_an_error(toolchain: Toolchain, tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("extern int other;\nint other = 1;\n")
    library = tmp_path / "other.so"
    toolchain.run(source, [*SHARED, "-o", str(library)])
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(library)
    assert str(caught.value) == f'"{library}" does not export hami_plugin_v1, so it is not a HAMi plugin'


PLAIN = """#include <hami/backend.hpp>
class Plain : public hami::Backend {
  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) item["result"] = RESULT;
  }
};
HAMI_REGISTER(Plain, NAME, "", ""); HAMI_REGISTER(Plain, NAME "Too", "", "");
HAMI_PLUGIN("plain", "0.1")
"""


def test_plugins_built_without_hidden_symbols_do_not_interfere(toolchain: Toolchain, tmp_path: Path) -> None:
    """Nor do two versions of one plugin whose classes have the same name."""
    source = tmp_path / "plain.cpp"
    source.write_text(PLAIN)
    names = [f"{toolchain.prefix}{name}" for name in ("First", "Second", "First")]
    for number, name in enumerate(names):
        library = tmp_path / f"plain{number}.so"
        macros = [f'-DNAME="{name}"', f"-DRESULT={number}"]
        # Without -O2 and -s, zig would build its C++ library again.
        toolchain.run(source, ["-O2", "-s", "-fPIC", "-shared", *macros, "-o", str(library)])
        assert hami.native.register_plugin(library) == [name, f"{name}Too"]
        with hami.pipe(f"S[{name},{name}Too]") as pipe:
            assert pipe({"data": 0})["result"] == number


def install(
    site: Path, name: str, library: Path, *backends: str, defaults: str = "None", check: str = "None", code: str = ""
) -> None:
    """Install the distribution of a native plugin like pip; `code` defines what `check` names."""
    module = name.replace("-", "_")
    (site / module).mkdir(parents=True)
    (site / module / "__init__.py").touch()
    (site / module / "plugin.py").write_text(
        "from pathlib import Path\n"
        "import pluggy\n"
        f"{code}\n"
        "@pluggy.HookimplMarker('hami')\n"
        "def hami_register(registry):\n"
        f"    registry.add_library(Path(__file__).with_name('{library.name}'), {defaults}, check={check})\n"
    )
    (site / module / library.name).write_bytes(library.read_bytes())
    folder = site / f"{module}-0.9.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9.0\n")
    lines = ["[hami]", f"{name.partition('-')[2]} = {module}.plugin", "[hami.backends]"]
    (folder / "entry_points.txt").write_text(
        "\n".join([*lines, *(f"{backend} = {module}.plugin" for backend in backends)])
    )


def record(site: Path, name: str) -> None:
    """List the files of an installed distribution in its RECORD, like pip."""
    module = name.replace("-", "_")
    folder = site / f"{module}-0.9.0.dist-info"
    lines = []
    for file in sorted((site / module).iterdir()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")
        lines.append(f"{file.relative_to(site)},sha256={digest},{file.stat().st_size}")
    (folder / "RECORD").write_text("\n".join([*lines, f"{folder.name}/RECORD,,", ""]))


def run_hami(*arguments: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    python_path = os.pathsep.join(filter(None, [str(path or ""), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "hami", *arguments]
    env = {**os.environ, "PYTHONPATH": python_path, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_a_wheel_may_set_defaults_at_runtime(build: Build, tmp_path: Path) -> None:
    plain = build(TOOLCHAINS[0], GOLDEN / "plain.c", include=GOLDEN / "include")
    install(tmp_path, "acme-golden", plain, "GccAdd", defaults="{'step': 20 + 20}")
    install(tmp_path, "acme-typo", plain, "GccSub", defaults="{'stp': 1}")
    chosen = {"path": tmp_path, "HAMI_PLUGINS": "golden,typo"}
    assert run_hami("run", "GccAdd", "--data", "2", **chosen).stdout == "42\n"
    assert run_hami("run", "GccAdd(step=1)", "--data", "2", **chosen).stdout == "3\n"
    assert run_hami("backends", "GccAdd", **chosen).stdout.splitlines()[-1] == "  step: int = 40"
    library = tmp_path / "acme_typo" / plain.name
    done = run_hami("run", "GccSub", "--data", "2", **chosen)
    assert f'no backend of "{library}" declares the parameter "stp"' in done.stderr


CHECK = """
from typing import Annotated
import hami

class Check(hami.Backend):
    step: int = 0
    most: Annotated[int, "largest step"] = 10

    def init(self, options):
        if self.step > self.most:
            raise hami.ConfigError(f"step {self.step} of instance {options['instance']} is above {self.most}")

    def close(self):
        print("checked")

    def forward(self, batch): ...
"""


def test_a_check_in_python_runs_before_a_native_backend(build: Build, tmp_path: Path) -> None:
    plain = build(TOOLCHAINS[0], GOLDEN / "plain.c", include=GOLDEN / "include")
    install(tmp_path, "acme-golden", plain, "GccAdd", defaults="{'step': 7}", check="Check", code=CHECK)
    chosen = {"path": tmp_path, "HAMI_PLUGINS": "golden"}
    assert run_hami("run", "GccAdd", "--data", "2", **chosen).stdout == "checked\n9\n"
    assert run_hami("run", "GccAdd(step=20,most=20)", "--data", "2", **chosen).stdout == "checked\n22\n"
    assert "step 20 of instance 0 is above 10" in run_hami("run", "GccAdd(step=20)", "--data", "2", **chosen).stderr
    assert run_hami("backends", "GccAdd", **chosen).stdout.splitlines()[-2:] == [
        "  step: int = 7",
        "  most: int = 10  largest step",
    ]


def test_native_plugins_in_wheels_are_found_and_loaded(build: Build, tmp_path: Path) -> None:
    gcc = TOOLCHAINS[0]
    install(tmp_path, "acme-golden", build(gcc, GOLDEN / "plain.c", include=GOLDEN / "include"), "GccAdd")
    install(tmp_path, "acme-later", versions(gcc, build, 1, 4, 4), "HasLater")
    chosen = {"path": tmp_path, "HAMI_PLUGINS": "golden,later"}
    assert run_hami("run", "GccAdd(step=3)", "--data", "4", **chosen).stdout == "7\n"
    done = run_hami("run", "HasLater", "--data", "4", **chosen)
    assert done.returncode == 1
    reason = f"needs hami ABI 1.4; {SERVES}: pip install -U hami-core"
    assert f'backend "HasLater" is provided by acme-later 0.9.0, which {reason}\n' in done.stderr
    done = run_hami("plugins", "--load", "--json", **chosen)
    assert done.returncode == 1
    records = {record["plugin"]: record for record in json.loads(done.stdout)}
    golden, later = records["golden"], records["later"]
    assert (golden["state"], golden["abi"], golden["error"], golden["backends"]) == ("ok", "1.0", None, ["GccAdd"])
    assert (later["state"], later["abi"], later["error"]) == ("incompatible", None, reason)
    assert (golden["since"], later["since"]) == ("2.0.0", None)
    assert re.search(
        r"^golden +acme-golden +0\.9\.0 +1\.0 +since 2\.0\.0 +ok ", run_hami("plugins", "--load", **chosen).stdout, re.M
    )
    assert run_hami("backends", "GccAdd", **chosen).stdout == (
        "GccAdd  (acme-golden, thread concurrent, non-blocking)\n  Adds `step` to an integer.\n  step: int = 1\n"
    )


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def changed(content: bytes) -> bytes:
    """Return a library with the same size and headers, and other bytes in its code or data."""
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0xFF for byte in content[middle : middle + 64]) + content[middle + 64 :]


def foreign(content: bytes) -> bytes:
    return content[:18] + bytes([0xF3, 0]) + content[20:]  # e_machine of RISC-V


@pytest.mark.parametrize(
    ("damage", "recorded", "reason"),
    [
        (
            truncated,
            False,
            "is truncated: it has {half} bytes, and its headers describe at least {size}; install it again",
        ),
        (foreign, False, "is built for another machine: riscv, 64 bits; this process is {machine}, 64 bits: "),
        (truncated, True, "is damaged: it has {half} bytes, and {size} were installed; reinstall it: {command}"),
        (changed, True, "is damaged: its content is not what was installed; reinstall it: {command}"),
    ],
)
def test_a_damaged_library_is_an_error_of_its_plugin(
    build: Build, tmp_path: Path, damage: Callable[[bytes], bytes], recorded: bool, reason: str
) -> None:
    plain = build(TOOLCHAINS[0], GOLDEN / "plain.c", include=GOLDEN / "include")
    install(tmp_path, "acme-golden", plain, "GccAdd")
    if recorded:
        record(tmp_path, "acme-golden")
    chosen = {"path": tmp_path, "HAMI_PLUGINS": "golden"}
    assert run_hami("run", "GccAdd", "--data", "4", **chosen).stdout == "5\n"
    library = tmp_path / "acme_golden" / plain.name
    content = library.read_bytes()
    library.write_bytes(damage(content))
    command = f"pip install --upgrade --no-deps --target {tmp_path} acme-golden"
    sizes = {"half": len(content) // 2, "size": len(content)}
    expected = f'"{library}" ' + reason.format(command=command, machine=platform.machine(), **sizes)
    done = run_hami("run", "GccAdd", "--data", "4", **chosen)
    assert done.returncode == 1
    assert f'error: backend "GccAdd" is provided by acme-golden 0.9.0, which failed to load: {expected}' in done.stderr
    done = run_hami("plugins", "--load", "--json", **chosen)
    (found,) = (one for one in json.loads(done.stdout) if one["plugin"] == "golden")
    assert (done.returncode, found["state"], found["error"][: len(expected)]) == (1, "failed", expected)
    done = run_hami("doctor", "--json", **chosen)
    assert done.returncode == 1
    assert any(expected in problem for problem in json.loads(done.stdout)["problems"])


def test_a_library_is_found_if_its_path_is_not_utf8(build: Build, tmp_path: Path) -> None:
    library = build(TOOLCHAINS[0], GOLDEN / "plain.c", include=GOLDEN / "include")
    folder = tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"lib\xfe.so")).write_bytes(library.read_bytes())
    assert hami.native.register_plugin(folder / os.fsdecode(b"lib\xfe.so")) == ["GccAdd"]
    absent = tmp_path / os.fsdecode(b"none\xff")
    chosen = {"HAMI_PLUGIN_PATH": f"{folder}:{absent}"}
    assert run_hami("run", "GccAdd", "--data", "4", **chosen).stdout == "5\n"
    done = run_hami("doctor", "--json", **chosen)
    report = json.loads(done.stdout)
    assert report["facts"][f"{tmp_path}/odd\\xff/lib\\xfe.so 1.0"] == "ok, plugin ABI 1.0"
    assert f"HAMI_PLUGIN_PATH contains {tmp_path}/none\\xff, which is not a folder" in report["problems"]


def test_the_error_for_a_path_that_is_not_utf8_shows_it_escaped(tmp_path: Path) -> None:
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin(tmp_path / os.fsdecode(b"absent\xff.so"))
    reason = "cannot open shared object file: No such file or directory"
    assert str(caught.value) == f"{tmp_path}/absent\\xff.so: {reason}"
    with pytest.raises(hami.PluginError) as caught:
        hami.native.register_plugin("half\ud800.so")
    assert str(caught.value) == (
        "the path of a library must be text that can name a file, got 'half\\ud800.so': surrogates not allowed"
    )


def test_libraries_in_hami_plugin_path_are_found_and_loaded(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "libraries"
    folder.mkdir()
    library = build(TOOLCHAINS[0], GOLDEN / "plain.c", include=GOLDEN / "include")
    (folder / "libgood.so").write_bytes(library.read_bytes())
    (folder / "bad.so").write_text("no library")
    (folder / "folder.so").mkdir()
    chosen = {"HAMI_PLUGINS": "good,bad,folder", "HAMI_PLUGIN_PATH": f"{folder}:{tmp_path / 'absent'}"}
    assert run_hami("run", "GccAdd", "--data", "4", **chosen).stdout == "5\n"
    done = run_hami("plugins", "--load", "--json", **chosen)
    assert done.returncode == 1
    records = {record["plugin"]: record for record in json.loads(done.stdout)}
    assert [records[name]["state"] for name in ("bad", "folder", "good")] == ["failed", "failed", "ok"]
    assert records["good"]["distribution"] == str(folder / "libgood.so")
    assert (records["good"]["version"], records["good"]["abi"]) == ("1.0", "1.0")
    bad = f'"{folder / "bad.so"}" is not a shared library: it does not start as an ELF file'
    assert records["bad"]["error"] == bad
    (folder / "twin.so").write_bytes(library.read_bytes())
    done = run_hami("run", "GccAdd", "--data", "4", **{**chosen, "HAMI_PLUGINS": "good,twin"})
    owners = f"{folder / 'libgood.so'} and {folder / 'twin.so'}"
    choice = f'set [providers] GccAdd = "{folder / "twin.so"}"'
    assert f'error: backend "GccAdd" is provided by {owners}; {choice}\n' in done.stderr
    (tmp_path / "chosen.toml").write_text(f'[node]\nbackend = "GccAdd"\n[providers]\nGccAdd = "{folder / "twin.so"}"\n')
    twin = {**chosen, "HAMI_PLUGINS": "good,twin"}
    assert run_hami("run", str(tmp_path / "chosen.toml"), "--data", "4", **twin).stdout == "5\n"
    done = run_hami("doctor", "--json", **chosen)
    assert (
        f"HAMI_PLUGIN_PATH contains {tmp_path / 'absent'}, which is not a folder" in json.loads(done.stdout)["problems"]
    )
