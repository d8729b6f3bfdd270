"""What a configuration may choose for a child: modules that it imports, and variables of its environment.

Both can make a process run other code, so that a configuration alone chooses only from the lists of this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import hami

MODULES = "HAMI_ALLOWED_MODULES"
VARIABLES = "HAMI_ALLOWED_VARIABLES"
# They choose devices, and numbers and places of threads. Not on the list: LD_PRELOAD, HAMI_PLUGIN_PATH,
# OMP_TOOL_LIBRARIES and many others, by which a library or the interpreter loads code.
HARMLESS = frozenset(
    (
        "CUDA_DEVICE_ORDER",
        "CUDA_MODULE_LOADING",
        "CUDA_VISIBLE_DEVICES",
        "GOMP_CPU_AFFINITY",
        "HIP_VISIBLE_DEVICES",
        "KMP_AFFINITY",
        "KMP_BLOCKTIME",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OMP_PLACES",
        "OMP_PROC_BIND",
        "OMP_WAIT_POLICY",
        "OPENBLAS_NUM_THREADS",
        "PYTORCH_CUDA_ALLOC_CONF",
        "ROCR_VISIBLE_DEVICES",
        "TOKENIZERS_PARALLELISM",
        "ZE_AFFINITY_MASK",
    )
)


def check_modules(names: Iterable[str]) -> None:
    """Raise ConfigError for a module that neither the program has imported nor HAMI_ALLOWED_MODULES names."""
    for name in names:
        if name not in sys.modules and name not in _listed(MODULES):
            raise hami.ConfigError(
                f"preload: the module {name!r} is not allowed: importing it runs code, which a configuration alone "
                f"cannot choose. Import it in the program too, or set the environment variable {MODULES}={name}"
            )


def check_variable(name: str) -> None:
    """Raise ConfigError for a variable that is neither harmless nor named by HAMI_ALLOWED_VARIABLES."""
    if name not in HARMLESS and name not in _listed(VARIABLES):
        raise hami.ConfigError(
            f"environment: the variable {name!r} is not allowed: a variable may load code, which a configuration alone "
            f"cannot choose. Set it for the program, or allow it by the environment variable {VARIABLES}={name}"
        )


def _listed(variable: str) -> set[str]:
    return {entry.strip() for entry in os.environ.get(variable, "").split(",")}
