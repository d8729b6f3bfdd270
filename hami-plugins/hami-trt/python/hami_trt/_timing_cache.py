"""The timing cache: a file with the measurements of a build, for later builds. Without it a build only takes longer."""

from __future__ import annotations

import logging
from typing import Any

from hami_trt._atomic_write import write_atomically
from hami_trt._build_options import BuildOptions

_log = logging.getLogger("hami.trt")


class TimingCache:
    """The file that option `timing_cache` names; does nothing if there is none. No failure of it fails the build."""

    def __init__(self, options: BuildOptions) -> None:
        self._owner = options.owner
        self._path = options.timing_cache
        if self._path is not None and not options.library.has_timing_cache:
            _log.warning("%s: %s has no timing cache; timing_cache is ignored", self._owner, options.library)
            self._path = None

    def load_into(self, config: Any) -> None:
        """Give the content of the file to a builder configuration, to which the build adds its measurements."""
        if self._path is None:
            return
        try:
            content = self._path.read_bytes() if self._path.is_file() else b""
        except OSError as error:
            self._warn(f"cannot be read ({error}); a new one is used instead")
            content = b""
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            self._warn("is damaged or of another version; a new one is used instead")
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def save_from(self, config: Any) -> None:
        """Write the measurements of a builder configuration to the file."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, bytes(config.get_timing_cache().serialize()))
        except OSError as error:  # the engine is built, which is worth more than a faster next build
            self._warn(f"cannot be written ({error})")

    def _warn(self, problem: str) -> None:
        _log.warning('%s: the timing cache "%s" %s', self._owner, self._path, problem)
