"""Good and bad plugins, built by pip and installed into one environment: each is listed with its state and reason."""

from __future__ import annotations

import json
from pathlib import Path

import hami
from conftest import HERE
from temporary_environment import TemporaryEnvironment

PURE = ("acme-good", "acme-broken", "acme-native", "acme-cv", "acme-slow", "acme-atexit")
NATIVE = ("acme-major", "acme-minor")
# Stops the clock that measures loading; acme-slow advances it. A .pth file, because the Python of Debian has its own
# sitecustomize, which has precedence.
CLOCK = "import time; time.perf_counter = lambda: 0.0\n"

DUPLICATE = (
    'backend "AcmeAdd" is provided by acme-cv and acme-good; '
    'write acme-good::AcmeAdd, or set [providers] AcmeAdd = "acme-good"'
)
SERVES = f"hami-core {hami.__version__} serves 1.1"
ABSENT = "cannot open shared object file: No such file or directory"
TABLE = """\
plugin  package      version  abi  cores  state         time
atexit  acme-atexit  0.1.0                ok            0 ms
broken  acme-broken  0.3.1                failed        0 ms     No module named 'acme_engine_runtime'
cv      acme-cv      2.0.0                ok            0 ms     DUPLICATE
good    acme-good    1.2.0                ok            0 ms     DUPLICATE
major   acme-major   3.0.0                incompatible  0 ms     it needs hami ABI 2.0; SERVES: pip install -U hami-core
minor   acme-minor   0.9.0                incompatible  0 ms     it needs hami ABI 1.4; SERVES: pip install -U hami-core
native  acme-native  0.9.0                failed        0 ms     SITE/libacme_native.so: ABSENT
slow    acme-slow    0.1.0                ok            2500 ms  SLOW
pipeline acme-twice from acme-good
"""
SLOW = "loading it took 2.5 s; register classes by name, and import large packages in `init`"


def test_every_plugin_is_listed_with_its_state_and_reason(
    environment: TemporaryEnvironment, builder: TemporaryEnvironment, native: Path, tmp_path: Path
) -> None:
    built = tmp_path / "built"
    projects = [str(HERE / name) for name in PURE] + [str(native / name) for name in NATIVE]
    builder.pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(built), *projects)
    environment.pip("install", "--no-index", "--find-links", str(built), *PURE, *NATIVE)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (site / "clock.pth").write_text(CLOCK)

    done = environment.hami("plugins", "--load")
    assert done.returncode == 1
    known = {"DUPLICATE": DUPLICATE, "SERVES": SERVES, "SITE": str(site), "ABSENT": ABSENT, "SLOW": SLOW}
    expected = TABLE
    for word, text in known.items():
        expected = expected.replace(word, text)
    assert done.stdout == expected
    # Python itself prints the exception that a plugin raises at exit; the exit code does not change.
    assert "acme_atexit.py" in done.stderr
    assert done.stderr.rstrip().endswith("RuntimeError: nothing to clean up")

    done = environment.hami("plugins", "--load", "--json")
    assert done.returncode == 1
    records = {record["distribution"]: record for record in json.loads(done.stdout)}
    assert {name: record["state"] for name, record in records.items() if record["state"] != "ok"} == {
        "acme-broken": "failed",
        "acme-major": "incompatible",
        "acme-minor": "incompatible",
        "acme-native": "failed",
    }
    assert records["acme-cv"]["remarks"] == [DUPLICATE]

    # No plugin hides another.
    assert environment.hami("run", "AcmeEcho", "--data", "41").stdout == "41\n"
    assert environment.hami("run", "acme-cv::AcmeAdd", "--data", "1").stdout == "101\n"
    assert environment.hami("run", "AcmeSlow", "--data", "2").stdout == "2\n"
    assert environment.hami("run", "AcmeAtExit", "--data", "3").stdout == "3\n"
