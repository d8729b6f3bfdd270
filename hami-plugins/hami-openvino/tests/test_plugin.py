"""The package as a plugin: it finds OpenVINO without importing it, or reports why it cannot."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import hami
import numpy as np
import openvino
import pytest
from hami_build.testing import check_backend

from hami_openvino import _openvino, plugin

SOURCE = Path(__file__).resolve().parents[1] / "src" / "openvino_c.hpp"
HEADERS = Path(openvino.__file__).parent / "include" / "openvino" / "c"


def test_the_plugin_is_found():
    states = {record.plugin: (record.distribution, record.state) for record in hami.plugins(load=True)}
    assert states["openvino"] == ("hami-openvino", "ok")
    info = hami.backends()["OpenvinoTensor"]
    assert (info.owner, info.thread) == ("hami-openvino", "serialized")


def test_loading_the_plugin_neither_imports_nor_loads_openvino():
    code = (
        "import sys, hami; hami.backends()['OpenvinoTensor']; "
        "print(sorted({'openvino', 'numpy'} & set(sys.modules)), 'libopenvino.so' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"


def test_a_program_can_exit_with_an_open_model(models):
    code = (
        "import hami, numpy, sys\n"
        f"pipe = hami.pipe({{'backend': 'OpenvinoTensor', 'model': {str(models.double())!r}, 'instance_num': 2}})\n"
        "print(hami.to_numpy(pipe({'data': numpy.ones((1, 2), numpy.float32)})['result']).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[2.0, 2.0]]\n", "")


def test_building_a_pipe_in_a_fork_of_a_process_that_used_openvino_is_an_error(models):
    """OpenVINO would wait in the child for threads that only the parent has."""
    code = (
        "import hami, os, signal, sys\n"
        f"node = {{'backend': 'OpenvinoTensor', 'model': {str(models.double())!r}}}\n"
        "hami.pipe(node).close()\n"
        "if child := os.fork(): sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "signal.alarm(60)\n"
        "try: hami.pipe(node)\n"
        "except hami.ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "OpenVINO was in use when this process was forked" in done.stdout


def test_a_program_can_exit_while_requests_run(models):
    code = (
        "import hami, numpy, threading\n"
        f"pipe = hami.pipe({{'backend': 'OpenvinoTensor', 'model': {str(models.double())!r}, 'instance_num': 2}})\n"
        "completed = threading.Event()\n"
        "def call():\n"
        "    while True:\n"
        "        pipe({'data': numpy.ones((1, 2), numpy.float32)})\n"
        "        completed.set()\n"
        "for _ in range(4): threading.Thread(target=call, daemon=True).start()\n"
        "completed.wait()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_native_library_by_itself_needs_the_path_of_openvino(models):
    code = (
        "import hami, hami_openvino, numpy, sys\n"
        "from pathlib import Path\n"
        "hami.native.register_plugin(Path(hami_openvino.__file__).with_name('openvino_tensor.so'))\n"
        f"config = {{'backend': 'OpenvinoTensor', 'model': {str(models.double())!r}}}\n"
        "try: hami.pipe(config)\n"
        "except hami.Error as error: print(str(error).splitlines()[0])\n"
        f"library = {str(_openvino.find_library())!r}\n"
        "hami.native.allow_library(library)\n"
        "with hami.pipe({**config, 'library': library}) as pipe:\n"
        "    print(hami.to_numpy(pipe({'data': numpy.ones((1, 2), numpy.float32)})['result']).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        'OpenvinoTensor: parameter "library" is missing; set it to the path of libopenvino_c.so, or install '
        "hami-openvino, which finds the library of the openvino package",
        "[[2.0, 2.0]]",
    ]


def test_the_backend_passes_the_checks_of_hami_testing(models):
    data = {"data": np.ones((1, 2), np.float32)}
    check_backend("OpenvinoTensor", {"model": str(models.double())}, data)


def test_the_report_names_the_library():
    report = plugin.hami_report()
    assert report["openvino"] == metadata.version("openvino")
    assert Path(report["openvino library"]).is_file()


def site(folder: Path, version: str, *, libraries: tuple[str, ...] = ()) -> Path:
    """Create a folder with an openvino package of this version, as pip installs it."""
    (folder / "openvino" / "libs").mkdir(parents=True)
    (folder / "openvino" / "__init__.py").write_text("raise RuntimeError('imported')")
    for library in libraries:
        (folder / "openvino" / "libs" / library).touch()
    info = folder / f"openvino-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: openvino\nVersion: {version}\n")
    return folder


@pytest.fixture
def search_only(monkeypatch):
    """search_only(folder): Python finds packages in this folder only."""

    def use(folder: Path) -> None:
        monkeypatch.delitem(sys.modules, "openvino", raising=False)
        monkeypatch.setattr(sys, "path", [str(folder)])

    return use


def test_the_library_of_the_installed_package_is_found(tmp_path, search_only):
    search_only(site(tmp_path, "2024.3.0", libraries=("libopenvino_c.so.2430", "libopenvino.so.2430")))
    assert _openvino.find_library() == tmp_path / "openvino" / "libs" / "libopenvino_c.so.2430"


def test_a_missing_openvino_is_an_error(tmp_path, search_only):
    search_only(tmp_path)
    with pytest.raises(hami.PluginError) as error:
        _openvino.find_library()
    assert str(error.value) == "OpenVINO is not installed: pip install openvino"


def test_an_openvino_that_is_too_old_is_an_error(tmp_path, search_only):
    search_only(site(tmp_path, "2023.3.0", libraries=("libopenvino_c.so.2330",)))
    with pytest.raises(hami.PluginError) as error:
        _openvino.find_library()
    assert str(error.value) == "openvino 2023.3.0 is too old; 2024.0 or newer is required: pip install -U openvino"


def test_an_openvino_without_the_c_library_is_an_error(tmp_path, search_only):
    search_only(site(tmp_path, "2024.1.0", libraries=("libopenvino.so.2410",)))
    with pytest.raises(hami.PluginError) as error:
        _openvino.find_library()
    assert str(error.value) == (
        f"openvino 2024.1.0 in {tmp_path / 'openvino'} does not contain libs/libopenvino_c.so; wheels contain it "
        "since 2024.3: pip install -U openvino"
    )


def test_using_the_backend_reports_what_is_missing():
    code = (
        "import hami, hami_openvino._openvino as finder\n"
        "finder.find_spec = lambda name: None\n"
        "try: hami.pipe('OpenvinoTensor(model=x)')\n"
        "except hami.Error as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == (
        f'backend "OpenvinoTensor" is provided by hami-openvino {metadata.version("hami-openvino")}, '
        "which failed to load: OpenVINO is not installed: pip install openvino"
    )


def declarations_of_the_plugin() -> dict[str, tuple[str, list[str]]]:
    found = re.findall(r"F\(([\w* ]+), (ov_\w+),\s*\(([^)]*)\)\)", SOURCE.read_text().replace("\\\n", " "))
    return {name: (result, arguments.replace(" ", "").split(",")) for result, name, arguments in found}


def declarations_of_openvino() -> dict[str, tuple[str, list[str]]]:
    text = "".join(header.read_text() for header in HEADERS.glob("ov_*.h"))
    found = re.findall(r"OPENVINO_C_API\(([\w* ]+)\)\s*(ov_\w+)\(([^)]*)\);", text)
    bare = {}
    for result, name, arguments in found:
        types = [re.sub(r"\w+$", "", argument.strip()).replace(" ", "") for argument in arguments.split(",")]
        bare[name] = (result, types)
    return bare


def test_function_declarations_match_those_of_openvino():
    theirs = declarations_of_openvino()
    ours = declarations_of_the_plugin()
    assert len(ours) > 30
    assert ours == {name: theirs[name] for name in ours}


@pytest.mark.parametrize(
    "struct", ["ov_version_t", "ov_available_devices_t", "ov_dimension_t", "ov_shape_t", "ov_partial_shape_t"]
)
def test_structs_match_those_of_openvino(struct):
    name = struct.removesuffix("_t")
    text = "".join(header.read_text() for header in HEADERS.glob("ov_*.h"))
    theirs = re.search(rf"typedef struct (?:{name} )?{{([^}}]*)}} {struct};", text)
    ours = re.search(rf"struct {struct} {{([^}}]*)}};", SOURCE.read_text())
    assert theirs is not None
    assert ours is not None
    assert fields(ours.group(1)) == [field.replace("ov_rank_t", "ov_dimension_t") for field in fields(theirs.group(1))]


def fields(body: str) -> list[str]:
    lines = (re.sub(r"//.*", "", line).strip() for line in body.splitlines())
    return [re.sub(r"\s+", " ", line) for line in lines if line]


def test_batch_invariant_is_refused_with_what_to_set_instead(models):
    with pytest.raises(hami.ConfigError, match=r"only OnnxTensor has batch_invariant; .* set batched = false"):
        hami.pipe({"backend": "OpenvinoTensor", "model": str(models.double()), "batch_invariant": True})
