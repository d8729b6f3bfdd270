"""apt with its own package lists and archives: it does not read those of the system, and does not need root."""

from __future__ import annotations

import shutil
from pathlib import Path

from hami_build.steps import Failure, environment, run

RETRIES = 8  # each waits longer than the one before: a mirror may be unreachable for a minute


def private(work: Path, *sources: str) -> list[str | Path]:
    """Return the start of an apt-get command that keeps everything in the new folder `work`.

    `sources` replace the package sources of the system.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Failure("apt-get is not installed; this needs Debian or Ubuntu")
    shutil.rmtree(work, ignore_errors=True)
    (work / "state" / "lists" / "partial").mkdir(parents=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True)
    options: dict[str, object] = {
        "Acquire::Retries": RETRIES,
        "Dir::State": work / "state",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "",
    }
    if sources:
        (work / "sources.list").write_text("".join(f"{source}\n" for source in sources))
        options |= {"Dir::Etc::sourcelist": work / "sources.list", "Dir::Etc::sourceparts": "-"}
    return ["apt-get", "--quiet", *(f"-o{key}={value}" for key, value in options.items())]


def mirror() -> str:
    """Return the mirror that this system's Debian packages come from."""
    try:
        lines = run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], log="apt-mirror", env=environment())
    except Failure as failure:
        raise Failure(f"{failure}\nThis needs a Debian system with a mirror configured for apt-get") from failure
    places = [line.rstrip("/") for line in lines.splitlines() if line.rstrip("/").endswith("/debian")]
    if not places:
        raise Failure("no mirror of Debian is configured for apt-get")
    return places[0]
