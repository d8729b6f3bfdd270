"""What users read when a backend's name leads nowhere, or to a plugin that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from hami import _core
from hami._errors import BackendNotFound, PluginError

LIST_ALL = "  (list all: hami backends)"
OWN = "a class of your own is known once its module is imported; on the command line: --import FILE"


def describe_exception(error: BaseException) -> str:
    """Say in one line what went wrong while code of a plugin ran."""
    lines = str(error).strip().splitlines()
    text = lines[0][:300] if lines else ""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({text})"
    if isinstance(error, ImportError) or type(error).__module__.startswith("hami."):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def join_or(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def join_and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def install_hint(distribution: str) -> str:
    return f"it is provided by {distribution}, which is not installed: pip install {distribution}"


def not_installed(name: str, distribution: str) -> BackendNotFound:
    return BackendNotFound(f'backend "{name}" not found', install_hint(distribution))


def unknown(name: str, owners: dict[str, str]) -> BackendNotFound:
    """`owners`: every name that could have been meant, with the distribution it belongs to."""
    cased = [known for known in owners if known.lower() == name.lower()]
    if cased:
        shown = join_or([f"{known} ({owners[known]})" if owners[known] else known for known in cased])
        return BackendNotFound(f'backend "{name}" not found; names are case-sensitive: {shown}')
    near = _core.did_you_mean(_core.near_names(name, list(owners)))
    return BackendNotFound(f'backend "{name}" not found{near}{LIST_ALL}', "" if near else OWN)


def missing_hook_answer(name: str, answer: str) -> BackendNotFound:
    return BackendNotFound(f'backend "{name}" not found', answer)


def unknown_in(name: str, distribution: str, names: Sequence[str]) -> BackendNotFound:
    near = _core.did_you_mean(_core.near_names(name, list(names)))
    return BackendNotFound(f'backend "{name}" not found in {distribution}{near}', f"it has: {', '.join(names)}")


def no_such_distribution(
    name: str, distribution: str, installed: Sequence[str], *, first_party: bool
) -> BackendNotFound:
    headline = f'backend "{name}" not found in {distribution}'
    if first_party:
        return BackendNotFound(headline, f"{distribution} is not installed: pip install {distribution}")
    near = _core.did_you_mean(_core.near_names(distribution, list(installed)))
    return BackendNotFound(headline, f"no installed package of that name has hami backends{near}")


def conflict(name: str, owners: Sequence[str]) -> PluginError:
    """`owners` in the order shown; the last one is the example."""
    last = owners[-1]
    written = "" if "/" in last else f"write {last}::{name}, or "  # a library of HAMI_PLUGIN_PATH is not an identifier
    return PluginError(
        f'backend "{name}" is provided by {join_and(owners)}; {written}set [providers] {name} = "{last}"'
    )


def name_of_the_core(name: str, distribution: str) -> str:
    return f'backend "{name}" is one of the core; that of {distribution} is {distribution}::{name}'


def blocked(name: str, distribution: str, setting: str) -> PluginError:
    return _unusable(name, distribution, f"is blocked by HAMI_PLUGINS={setting}")


def failed(name: str, distribution: str, version: str, error: str) -> PluginError:
    return _unusable(name, _owner(distribution, version), f"failed to load: {error}")


def refused(name: str, distribution: str, version: str, reason: str) -> PluginError:
    return _unusable(name, _owner(distribution, version), reason)


def _unusable(name: str, owner: str, reason: str) -> PluginError:
    error = PluginError(f'backend "{name}" is provided by {owner}, which {reason}')
    error.cause = f"{owner} {reason}"
    return error


def _owner(distribution: str, version: str) -> str:
    return f"{distribution} {version}" if version else distribution  # a bare library has no version before it is loaded


def slow(seconds: float) -> str:
    return f"loading it took {seconds:.1f} s: name the classes in the entry module, and import what is heavy in `init`"


def pipeline_not_found(name: str, pipelines: Sequence[str], backends: Sequence[str]) -> BackendNotFound:
    near = _core.did_you_mean(_core.near_names(name, [*pipelines, *backends]))
    here = f"packaged pipelines here: {', '.join(pipelines)}" if pipelines else "no packaged pipelines are installed"
    return BackendNotFound(
        f'"{name}" is neither a packaged pipeline nor a backend{near}{LIST_ALL}', here if near else f"{here}; {OWN}"
    )


def pipeline_not_installed(name: str, distribution: str) -> BackendNotFound:
    return BackendNotFound(f'pipeline "{name}" not found', install_hint(distribution))


def pipeline_conflict(name: str, owners: Sequence[str]) -> PluginError:
    return PluginError(f'pipeline "{name}" is provided by {join_and(owners)}; write {owners[-1]}::{name} to choose one')


def pipeline_failed(name: str, distribution: str, version: str, error: str) -> PluginError:
    return PluginError(f'pipeline "{name}" is provided by {distribution} {version}, which failed to load: {error}')
