"""The tests of hami-serve with other systems, such as Ray Serve. Each system has an environment of its own.

A system NAME is tested by `tests/conformance/test_NAME.py` of hami-serve, in an environment with
`ci/requirements/serving-NAME.txt`, and by the documents about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hami_build.interpreters import Interpreter
from hami_build.steps import environment

from . import wheel_env
from .paths import CACHE, REQUIREMENTS, ROOT, content_key
from .runners import Options, pytest
from .totals import Totals

TESTS = ROOT / "hami-plugins" / "hami-serve" / "tests"
DOCUMENTS = {"ray": ROOT / "hami-core" / "docs" / "howto" / "scale-out-with-ray.md"}
DOCUMENT_TESTS = ROOT / "tests" / "python"
PASSED = CACHE / "serving"
HANGS_AFTER_S = 600
SETTINGS = {  # Ray sends no statistics, writes no token into the home folder, and waits on a machine with other tiers
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}


def systems() -> list[str]:
    return [path.stem.removeprefix("test_") for path in sorted((TESTS / "conformance").glob("test_*.py"))]


def covered(system: str, wheels: Sequence[Path]) -> list[Path]:
    """Return the files whose change the tests of a system can notice."""
    ours = [wheel for wheel in wheels if wheel.name.startswith(("hami_core-", "hami_serve-"))]
    test, requirements = TESTS / "conformance" / f"test_{system}.py", REQUIREMENTS / f"serving-{system}.txt"
    documents = [DOCUMENTS[system], *DOCUMENT_TESTS.glob("doc_*.py")] if system in DOCUMENTS else []
    used = [TESTS / "conftest.py", TESTS / "test_command.py", TESTS.parent / "deploy"]
    return [*ours, *used, test, requirements, *documents]


def check(system: str, interpreter: Interpreter, totals: Totals, options: Options) -> None:
    """Run the tests of a system, unless they have passed with the same files."""
    tier, stamp = f"serving-{system}", PASSED / system
    key = content_key(covered(system, wheel_env.usable(interpreter)), str(interpreter))
    if not options.pytest and stamp.is_file() and stamp.read_text("utf-8") == key:
        totals.skip(tier, "it has passed here, and no file that it covers has changed since")
        return
    print(f"-- {system}", flush=True)
    failed = len(totals.failed)
    python = wheel_env.ensure(tier, interpreter, ["hami-serve[test]"], ["-r", str(REQUIREMENTS / f"{tier}.txt")])
    env = environment(**SETTINGS)
    quiet = Options((*options.pytest, "-W", "ignore"))  # the other systems give warnings
    test = TESTS / "conformance" / f"test_{system}.py"
    pytest(python, [test], tier, totals, quiet, env, hangs_after_s=HANGS_AFTER_S)
    if system in DOCUMENTS and not options.pytest:
        chosen = Options(("-W", "ignore", "-k", DOCUMENTS[system].stem))
        pytest(
            python,
            [DOCUMENT_TESTS / "test_docs.py"],
            f"{tier} document",
            totals,
            chosen,
            env,
            hangs_after_s=HANGS_AFTER_S,
        )
    if len(totals.failed) == failed and not options.pytest:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(key, "utf-8")
