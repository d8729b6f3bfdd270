"""The messages about names of backends that are not found, and about plugins that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from hami._errors import BackendNotFound, PluginError, module_of, name_of, text_of
from hami._text import did_you_mean, printable

MAX_LINE = 300  # characters of an exception
LIST_ALL = "  (list all: hami backends)"
IMPORT_FIRST = "to use a class of your own, import its module first; on the command line: --import FILE"


def describe_exception(error: BaseException) -> str:
    """Return an exception that code of a plugin raised as one line of at most 300 characters."""
    lines = (text_of(error) or "").strip().splitlines()
    if isinstance(error, ImportError) and len(lines) > 1 and isinstance(error.__cause__, ImportError):
        lines = (text_of(error.__cause__) or "").strip().splitlines()  # NumPy begins with advice
    text = printable(lines[0][:MAX_LINE]) if lines else ""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({text})"
    if isinstance(error, ImportError) or module_of(error).startswith("hami."):
        return text or name_of(error)
    return f"{name_of(error)}: {text}" if text else name_of(error)


def _join(names: Sequence[str], word: str) -> str:
    """Join names as "A, B and C"."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _install_hint(distributions: Sequence[str]) -> str:
    names, which = _join(distributions, "or"), "which is" if len(distributions) == 1 else "which are"
    return f"it is provided by {names}, {which} not installed: {install_command(distributions[0])}"


def install_command(distribution: str) -> str:
    """Return the command that installs a distribution."""
    return f"pip install {distribution}"


def not_installed(name: str, distributions: Sequence[str]) -> BackendNotFound:
    return BackendNotFound(f'backend "{name}" not found', _install_hint(distributions))


def unknown(name: str, owners: dict[str, str]) -> BackendNotFound:
    """`owners` has every known name, with its distribution."""
    cased = [known for known in owners if known.lower() == name.lower()]
    if cased:
        shown = _join([f"{known} ({owners[known]})" if owners[known] else known for known in cased], "or")
        return BackendNotFound(f'backend "{name}" not found; names are case-sensitive: {shown}')
    near = did_you_mean(name, owners)
    return BackendNotFound(f'backend "{name}" not found{near}{LIST_ALL}', "" if near else IMPORT_FIRST)


def not_found_with_advice(name: str, advice: str) -> BackendNotFound:
    error = BackendNotFound(f'backend "{name}" not found', advice)
    error.advice = advice
    return error


def not_searched(error: BackendNotFound, plugins: Sequence[tuple[str, str]], seconds: float) -> BackendNotFound:
    """Add the plugins that may have the name, but whose import did not end within `seconds`.

    `plugins` has the distribution and the version of each.
    """
    if not plugins:
        return error
    names = _join([_owner(*plugin) for plugin in plugins], "and")
    imports = "imports have not ended and continue" if len(plugins) > 1 else "import has not ended and continues"
    return with_unsearched(
        error, f"not searched: {names}, whose {imports}; HAMI_SEARCH_TIMEOUT={seconds:g}s limits the wait"
    )


def with_unsearched(error: BackendNotFound, unsearched: str) -> BackendNotFound:
    """Return an error with the hint of another one about plugins that were not searched; empty: the error itself."""
    if not unsearched:
        return error
    found = BackendNotFound(error.headline, "\n  ".join(filter(None, [error.hint, unsearched])))
    found.unsearched = unsearched
    return found


def invalid_timeout(text: str) -> PluginError:
    return PluginError(f'HAMI_SEARCH_TIMEOUT takes a duration such as "10s", got "{text}"')


def no_device(name: str, device: str, distribution: str = "") -> BackendNotFound:
    """`distribution` is the plugin for this kind of memory, if the catalogue has one that is not installed."""
    hint = (
        f"{install_command(distribution)}, or move the data to the CPU" if distribution else "move the data to the CPU"
    )
    return BackendNotFound(f"no installed plugin has {name} for {device}", hint)


def unknown_in(name: str, distribution: str, names: Sequence[str]) -> BackendNotFound:
    near = did_you_mean(name, names)
    return BackendNotFound(
        f'backend "{name}" not found in {distribution}{near}',
        f"backends of {distribution}: {', '.join(names)}" if names else "",
    )


def no_such_distribution(
    name: str, distribution: str, installed: Sequence[str], *, first_party: bool
) -> BackendNotFound:
    headline = f'backend "{name}" not found in {distribution}'
    if first_party:
        return BackendNotFound(headline, f"{distribution} is not installed: {install_command(distribution)}")
    near = did_you_mean(distribution, installed)
    return BackendNotFound(headline, f"no installed package of that name provides backends{near}")


def conflict(name: str, owners: Sequence[str]) -> PluginError:
    """`owners` is in the order of the message, which proposes the last one."""
    last = owners[-1]
    written = "" if "/" in last else f"write {last}::{name}, or "  # the path of a bare library cannot qualify a name
    return PluginError(
        f'backend "{name}" is provided by {_join(owners, "and")}; {written}set [providers] {name} = "{last}"'
    )


def names_of_core(names: Sequence[str], distribution: str) -> str:
    if len(names) == 1:
        return f'the core has a backend "{names[0]}" too; write {distribution}::{names[0]} for that of {distribution}'
    return f"the core has {_join(names, 'and')} too; write {distribution}::{names[0]} for that of {distribution}"


def disabled(name: str, distribution: str, reason: str) -> PluginError:
    return _unusable(name, distribution, f"is disabled by {reason}")


def failed(name: str, distribution: str, version: str, error: str) -> PluginError:
    return _unusable(name, _owner(distribution, version), f"failed to load: {error}")


def incompatible(name: str, distribution: str, version: str, reason: str) -> PluginError:
    return _unusable(name, _owner(distribution, version), reason)


def _unusable(name: str, owner: str, reason: str) -> PluginError:
    error = PluginError(f'backend "{name}" is provided by {owner}, which {reason}')
    error.cause = f"{owner} {reason}"
    return error


def _owner(distribution: str, version: str) -> str:
    return (
        f"{distribution} {version}" if version else distribution
    )  # a bare library has a version only when it is loaded


def slow(seconds: float) -> str:
    return f"loading it took {seconds:.1f} s; register classes by name, and import large packages in `init`"


def pipeline_not_found(name: str, advice: str, pipelines: Sequence[str], backends: Sequence[str]) -> BackendNotFound:
    if advice:
        return BackendNotFound(f'"{name}" is neither a packaged pipeline nor a backend', advice)
    near = did_you_mean(name, [*pipelines, *backends])
    here = f"packaged pipelines here: {', '.join(pipelines)}" if pipelines else "no packaged pipelines are installed"
    return BackendNotFound(
        f'"{name}" is neither a packaged pipeline nor a backend{near}{LIST_ALL}',
        here if near else f"{here}; {IMPORT_FIRST}",
    )


def pipeline_not_installed(name: str, distributions: Sequence[str]) -> BackendNotFound:
    return BackendNotFound(f'pipeline "{name}" not found', _install_hint(distributions))


def pipeline_conflict(name: str, owners: Sequence[str]) -> PluginError:
    return PluginError(
        f'pipeline "{name}" is provided by {_join(owners, "and")}; write {owners[-1]}::{name} to choose one'
    )


def pipeline_failed(name: str, distribution: str, version: str, error: str) -> PluginError:
    return PluginError(f'pipeline "{name}" is provided by {distribution} {version}, which failed to load: {error}')
