"""The Python classes that a child process needs: where it finds them, and how it registers them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, NamedTuple

import hami

is_running_program = False  # whether this child runs the module of the program again
_program: ModuleType | None = None


class ClassRef(NamedTuple):
    """A class that the program has registered, by where it is."""

    name: str
    module: str
    qualname: str
    file: str | None  # of a module that may not be on the path


class Program(NamedTuple):
    """The module with which the program began, as `multiprocessing` finds it again."""

    module: str | None
    file: str | None


def refer_to(name: str, target: Any) -> ClassRef:
    """Return where the class of a backend is.

    Raises:
        ConfigError: No other process can import it.
    """
    if not isinstance(target, type):
        raise hami.ConfigError(
            f"{name} is an object of this process, and a child process can build only classes: register the class"
        )
    where = f"{target.__module__}.{target.__qualname__}"
    if "<locals>" in target.__qualname__:
        raise hami.ConfigError(
            f"{where} is defined inside a function, where a child process cannot import it: define the class of the "
            f"backend {name} at the top level of a module"
        )
    module = sys.modules.get(target.__module__)
    file = getattr(module, "__file__", None)
    if target.__module__ == "__main__" and program().file is None and program().module is None:
        raise hami.ConfigError(
            f"the class of the backend {name} is in an interactive session, where a child process cannot import it: "
            "put it in a file, and import that"
        )
    return ClassRef(name, target.__module__, target.__qualname__, file and os.path.abspath(file))


def program() -> Program:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    return Program(getattr(spec, "name", None), file and os.path.abspath(file))


def register(refs: list[ClassRef], main: Program) -> None:
    """Import these classes, and register them so that they run in this process."""
    for ref in refs:
        target: Any = _module(ref, main)
        for part in ref.qualname.split("."):
            target = getattr(target, part)
        if issubclass(target, hami.Backend) and target.thread == "process":
            members = {"thread": "dedicated", "__doc__": target.__doc__, "__module__": target.__module__}
            target = type(target.__name__, (target,), members)
        hami.register(ref.name, target)


def _module(ref: ClassRef, main: Program) -> ModuleType:
    if ref.module == "__main__":
        return _program_again(main)
    try:
        return importlib.import_module(ref.module)
    except ModuleNotFoundError as error:
        if error.name != ref.module.partition(".")[0] or ref.file is None:
            raise
    spec = importlib.util.spec_from_file_location(ref.module, ref.file)
    if spec is None or spec.loader is None:
        raise hami.ConfigError(f"the backend {ref.name} is in {ref.file}, which cannot be imported")
    module = sys.modules[ref.module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _program_again(main: Program) -> ModuleType:
    """Run the module of the program as `__mp_main__`, without its `if __name__ == "__main__"`."""
    from multiprocessing.spawn import prepare

    global is_running_program, _program
    if _program is None:
        is_running_program = True
        prepare({"init_main_from_name": main.module} if main.module else {"init_main_from_path": main.file})
        is_running_program = False
        _program = sys.modules["__main__"]
    return _program
