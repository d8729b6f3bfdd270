"""The settings of pip and uv for downloads: indexes, folders, proxy, certificates."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Mapping

from hami_build.errors import Failure
from hami_build.steps import environment, run

DEFAULT_INDEX = "https://pypi.org/simple"
TRUE = ("1", "true", "yes", "on")
# Variables of uv, and pip's settings that they stand for. Those of uv are used where pip has no such setting.
OF_UV = {
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX_URL": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_INSECURE_HOST": "trusted-host",
}


def parse_config(text: str, command: str) -> dict[str, str]:
    """Return the settings that apply to a command of pip, from what `pip config list` prints."""
    settings: dict[str, str] = {}
    for place in ("global", command, ":env:"):  # the later one applies
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{place}."):
                settings[name.removeprefix(f"{place}.")] = ast.literal_eval(value)
    return settings


def settings() -> dict[str, str]:
    """Return pip's settings for downloads, by their names on its command line; those of uv where pip has none."""
    env = environment()
    try:
        found = parse_config(
            run([sys.executable, "-m", "pip", "config", "list"], log="pip-config", env=env), "download"
        )
    except Failure:  # environments that uv has made are without pip
        found = {k.removeprefix("PIP_").lower().replace("_", "-"): v for k, v in env.items() if k.startswith("PIP_")}
    for variable, name in OF_UV.items():
        if value := os.environ.get(variable):
            found.setdefault(name, value)
    return found


def places(of: Mapping[str, str], project: str) -> list[str]:
    """Return where files of a project may be: the folders and pages of `find-links`, and its page of each index."""
    found = of.get("find-links", "").split()
    if of.get("no-index", "").lower() not in TRUE:
        page = re.sub(r"[-_.]+", "-", project).lower()
        for index in [of.get("index-url", DEFAULT_INDEX), *of.get("extra-index-url", "").split()]:
            address = re.sub(r"^[\w-]+=", "", index)  # uv also has NAME=ADDRESS
            found.append(f"{address.rstrip('/')}/{page}/")
    return list(dict.fromkeys(found))


def without_password(address: str) -> str:
    """Return an address for messages: a user and password in it are secrets."""
    return re.sub(r"(?<=://)[^/\s]*@", "", address)
