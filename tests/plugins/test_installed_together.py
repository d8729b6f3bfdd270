"""Good, bad and strange plugins built by pip and installed into one environment: each is told for what it is."""

from __future__ import annotations

import json
from pathlib import Path

import hami
from conftest import HERE
from throw_away import ThrowAway

PURE = ("acme-good", "acme-broken", "acme-native", "acme-cv", "acme-slow", "acme-atexit")
NATIVE = ("acme-major", "acme-minor")
# For all but acme-slow, which puts it forward, the clock by which loading is timed stands still.
# By a .pth: the Python of Debian has a sitecustomize of its own, which goes first.
CLOCK = "import time; time.perf_counter = lambda: 0.0\n"

DUPLICATE = (
    'backend "AcmeAdd" is provided by acme-cv and acme-good; '
    'write acme-good::AcmeAdd, or set [providers] AcmeAdd = "acme-good"'
)
SERVES = f"hami-core {hami.__version__} serves 1.0"
ABSENT = "cannot open shared object file: No such file or directory"
TABLE = """\
plugin  package      version  abi  state    time
atexit  acme-atexit  0.1.0         ok       0 ms
broken  acme-broken  0.3.1         broken   0 ms     No module named 'acme_engine_runtime'
cv      acme-cv      2.0.0         ok       0 ms     DUPLICATE
good    acme-good    1.2.0         ok       0 ms     DUPLICATE
major   acme-major   3.0.0         refused  0 ms     it needs hami ABI 2.0; SERVES: pip install -U hami-core
minor   acme-minor   0.9.0         refused  0 ms     it needs hami ABI 1.4; SERVES: pip install -U hami-core
native  acme-native  0.9.0         broken   0 ms     SITE/libacme_native.so: ABSENT
slow    acme-slow    0.1.0         ok       2500 ms  SLOW
pipeline acme-twice from acme-good
"""
SLOW = "loading it took 2.5 s: name the classes in the entry module, and import what is heavy in `init`"


def test_every_plugin_is_listed_with_its_reason(
    throw_away: ThrowAway, builder: ThrowAway, native: Path, tmp_path: Path
) -> None:
    built = tmp_path / "built"
    projects = [str(HERE / name) for name in PURE] + [str(native / name) for name in NATIVE]
    builder.pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(built), *projects)
    throw_away.pip("install", "--no-index", "--find-links", str(built), *PURE, *NATIVE)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (site / "clock.pth").write_text(CLOCK)

    done = throw_away.hami("plugins", "--load")
    assert done.returncode == 1
    known = {"DUPLICATE": DUPLICATE, "SERVES": SERVES, "SITE": str(site), "ABSENT": ABSENT, "SLOW": SLOW}
    expected = TABLE
    for word, text in known.items():
        expected = expected.replace(word, text)
    assert done.stdout == expected
    # Python itself tells of what a plugin raises at the end; by then everything is said, and the exit code stands.
    assert "acme_atexit.py" in done.stderr
    assert done.stderr.rstrip().endswith("RuntimeError: nothing to clean up")

    done = throw_away.hami("plugins", "--load", "--json")
    assert done.returncode == 1
    records = {record["distribution"]: record for record in json.loads(done.stdout)}
    assert {name: record["state"] for name, record in records.items() if record["state"] != "ok"} == {
        "acme-broken": "failed",
        "acme-major": "incompatible",
        "acme-minor": "incompatible",
        "acme-native": "failed",
    }
    assert records["acme-cv"]["remarks"] == [DUPLICATE]

    # None of them hides another.
    assert throw_away.hami("run", "AcmeEcho", "--data", "41").stdout == "41\n"
    assert throw_away.hami("run", "acme-cv::AcmeAdd", "--data", "1").stdout == "101\n"
    assert throw_away.hami("run", "AcmeSlow", "--data", "2").stdout == "2\n"
    assert throw_away.hami("run", "AcmeAtExit", "--data", "3").stdout == "3\n"
