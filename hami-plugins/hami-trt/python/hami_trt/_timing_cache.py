"""What a build measured, kept in a file for later builds; a file that cannot be used costs time, nothing else."""

from __future__ import annotations

import logging
from typing import Any

from hami_trt._files import replace
from hami_trt._options import Options

_log = logging.getLogger("hami.trt")


class TimingCache:
    """The file that `timing_cache` names, if it does."""

    def __init__(self, options: Options) -> None:
        self._owner = options.owner
        self._path = options.timing_cache
        if self._path is not None and not options.library.times_tactics:
            _log.warning("%s: %s has no timing cache; timing_cache is left out", self._owner, options.library)
            self._path = None

    def give_to(self, config: Any) -> None:
        """Let a build use what is in the file, and add to it."""
        if self._path is None:
            return
        try:
            content = self._path.read_bytes() if self._path.is_file() else b""
        except OSError as error:
            _log.warning('%s: the timing cache "%s" cannot be read, it begins anew: %s', *self._shown(), error)
            content = b""
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            _log.warning('%s: the timing cache "%s" is of another version or damaged; it begins anew', *self._shown())
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def keep(self, config: Any) -> None:
        """Write what the build added."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace(self._path, bytes(config.get_timing_cache().serialize()))
        except OSError as error:  # the engine is built, and worth more than what makes the next one faster
            _log.warning('%s: the timing cache "%s" cannot be written: %s', *self._shown(), error)

    def _shown(self) -> tuple[str, Any]:
        return self._owner, self._path
