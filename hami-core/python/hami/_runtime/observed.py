"""What a pipe shows of itself: its nodes, their statistics, its queues and its store, and a timeline."""

from __future__ import annotations

from hami._errors import PipeClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from hami._core import Pipe, Queue, RequestStore
    from hami.observe.description import PipeDescription
    from hami.observe.node_stats import NodeStats
    from hami.observe.trace import Trace


class Observed:
    """The part of `hami.Pipe` that runs no request."""

    _core: Pipe

    def describe(self) -> PipeDescription:
        """Return the nodes of the pipe with their backends, parameters and edges, as dicts and lists for JSON.

        >>> with hami.pipe({"double": {"backend": "S[Identity,Identity]", "max": 8}}) as pipe:
        ...     node = pipe.describe()["nodes"]["double"]
        >>> node["backends"][0]["name"], node["batching"]["max"], node["next"]
        ('S', 8, [])

        The keys are listed in the reference, under "Description of a pipe". Durations are in seconds.
        """
        return self._core.describe()

    def set_label(self, label: str) -> None:
        """Name the pipe for `hami top`, which shows the pipes of other processes.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe.set_label("detect")

        Args:
            label: A name, such as that of the model that the pipe runs.

        Raises:
            PipeClosed: Another pipe has taken the place of its backends.
        """
        self._core.set_label(label)

    def stats(self) -> dict[str, NodeStats]:
        """Return the statistics of each node since the pipe was built, by the name of the node.

        >>> with hami.pipe("Identity") as pipe:
        ...     request = pipe({"data": 1})
        ...     pipe.stats()["default"].completed
        1
        """
        from hami.observe.node_stats import NodeStats

        return {name: NodeStats(values) for name, values in self._core.stats().items()}

    def remarks(self) -> list[str]:
        """Return what backends remarked about their nodes, such as why requests run one by one.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe.remarks()
        []

        Each is one sentence that begins with the name of its node. `hami_tools.explain` adds what limits the
        throughput.
        """
        return [f"{node}: {remark}" for node, remarks in self._core.remarks().items() for remark in remarks]

    def trace(self, path: str | os.PathLike[str], *, last: float | None = None, slow: float | None = None) -> Trace:
        """Record a timeline into a file that [Perfetto](https://ui.perfetto.dev) shows, until the trace is stopped.

        >>> with hami.pipe("Identity") as pipe:
        ...     with pipe.trace("run.pftrace"):
        ...         request = pipe({"data": 1})

        It shows each request from its submission to its outcome, how long it waited in which queue, the batches with
        their requests, and the time in each backend, on the thread where it ran. All pipes of the process are in it.

        Args:
            path: The file, which is replaced.
            last: Seconds of events to keep in memory, at most a million events, instead of writing all of them. The
                file shows the latest slow request: it is replaced at most once in `last` seconds.
            slow: Seconds from which on a request is slow.

        Returns:
            The trace: use it in a `with` statement, or call its `stop`.

        Raises:
            ConfigError: The file cannot be written, or only one of `last` and `slow` is given. If writing fails later,
                recording ends with one line in the log, and the pipe goes on.
            AlreadyExists: A trace of this process is active.
            PipeClosed: The pipe is closed.
        """
        if self._core.closed:
            raise PipeClosed("the pipe is closed")
        from hami.observe.trace import Trace

        return Trace(path, last, slow)

    def queue(self, name: str) -> Queue:
        """Return the queue of the pipe with that name, which `Send(name)` and `Recv(name)` use; create it if needed.

        >>> with hami.pipe("Send(frames)") as pipe:
        ...     request = pipe({"data": "page"})
        ...     pipe.queue("frames").get(timeout=1.0)
        'page'

        Args:
            name: The name of the queue.

        Raises:
            ValueError: The queue belongs to a node, as "detect.queue".
        """
        return self._core.queue(name)

    @property
    def store(self) -> RequestStore:
        """The store that all backends of the pipe share.

        >>> with hami.pipe("Identity") as pipe:
        ...     pipe.store.create("r1")
        ...     pipe.store.contains("r1")
        True
        """
        return self._core.store
