"""What users name, a plugin or one of its backends, as requirements for the installer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hami import PluginError
from hami.cli import did_you_mean, printable
from hami.packages import normalised

# A name with extras and bounds, such as hami-trt[cu13]>=2.0.
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._,\s-]*\])?\s*((?:[<>=!~][^;@\s]*\s*)*)", re.ASCII
)


def requirements(
    asked: Sequence[str], backends: Mapping[str, Sequence[str]], distributions: Sequence[str]
) -> list[str]:
    """Return a requirement for each name of a plugin or of a backend, without duplicates.

    `backends` maps names of backends to the plugins that provide them. A name with capital letters that is neither a
    backend nor a plugin is an error: it is more likely a misspelled backend than a package, and the owner of a
    package of that name could run code here.
    """
    return list(dict.fromkeys(_requirement(name, backends, distributions) for name in asked))


def _requirement(asked: str, backends: Mapping[str, Sequence[str]], distributions: Sequence[str]) -> str:
    if owners := backends.get(asked):
        if len(owners) > 1:
            raise PluginError(f'backend "{asked}" is provided by {" and ".join(owners)}; name one of them')
        return owners[0]
    found = _REQUIREMENT.fullmatch(asked)
    if not found:
        raise PluginError(
            f'"{printable(asked)}" is not the name of a plugin or of a backend; expected a name such as hami-onnx or '
            "OnnxTensor. For files and addresses use pip install"
        )
    name, extras, bounds = found.groups()
    if name != name.lower() and normalised(name) not in distributions:
        near = did_you_mean(name, [*backends, *distributions])
        raise PluginError(
            f'no known plugin or backend is named "{name}"{near or "; list all: hami search"}\n'
            f"  a package that is not in the catalogue is given in lower case: {normalised(name)}"
        )
    return f"{normalised(name)}{(extras or '').replace(' ', '')}{bounds.replace(' ', '')}"
