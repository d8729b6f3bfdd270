"""apt with package lists and archives of our own: it looks at no system package list, and needs no root."""

from __future__ import annotations

import shutil
from pathlib import Path

from .steps import Failure, environment, run

RETRIES = 8  # each waits longer than the last: a mirror may be away for a minute


def private(work: Path, *sources: str) -> list[str | Path]:
    """The start of an apt-get command that keeps all it fetches in the new folder `work`; `sources` replace those of
    the system."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise Failure("there is no apt-get here; this needs Debian or Ubuntu")
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
    """Where this system's Debian packages come from."""
    try:
        lines = run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], log="apt-mirror", env=environment())
    except Failure as failure:
        raise Failure(f"{failure}\nThis needs a Debian whose apt-get knows a mirror") from failure
    places = [line.rstrip("/") for line in lines.splitlines() if line.rstrip("/").endswith("/debian")]
    if not places:
        raise Failure("apt-get knows no mirror of Debian here")
    return places[0]
