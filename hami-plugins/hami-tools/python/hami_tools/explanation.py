"""explain: sentences that name what limits the throughput of a pipe, and what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hami.observe.description import uses_python

from hami_tools.figures import figure
from hami_tools.instances import instances_of

if TYPE_CHECKING:
    from hami import Pipe
    from hami.observe import NodeDescription, NodeStats, PipeDescription

LIMITING = 0.85  # busy share of a node from which on it limits the pipe
IDLE = 0.5  # busy share below which a node waits for requests
FULL = 0.9  # of `max`, from which on batches are called full
MOST = 0.6  # share of the time of a node from which on one backend is called slow
ALL = 0.95  # share from which on the other backends do not matter
OFTEN = 0.5  # share of batches or requests that is worth a sentence
SPLIT = 1.5  # groups of a batch from which on they are worth a sentence
AT_A_TIME = 1.3  # Python backends that run at a time, from which on the GIL may limit


def explain(pipe: Pipe, since: Mapping[str, NodeStats] | None = None) -> list[str]:
    """Return sentences that name what limits the throughput of a pipe, and what to change.

    >>> import hami
    >>> import hami_tools
    >>> with hami.pipe("Identity") as pipe:
    ...     hami_tools.explain(pipe)
    ['No request has run: call the pipe, then explain it.']

    The last sentences are the remarks of the backends.

    Args:
        pipe: The pipe.
        since: What `pipe.stats` returned before the requests to explain; None: all requests since the pipe was built.
    """
    return [*sentences_about(pipe.describe(), pipe.stats(), since), *pipe.remarks()]


def sentences_about(
    description: PipeDescription, after: Mapping[str, NodeStats], before: Mapping[str, NodeStats] | None = None
) -> list[str]:
    """Return sentences about the requests between two snapshots of statistics.

    Args:
        description: The description of the pipe.
        after: The later statistics.
        before: The earlier ones; None: since the pipe was built.
    """
    nodes = [
        NodeView(name, description["nodes"][name], after[name], (before or {}).get(name))
        for name in description["nodes"]
        if name in after
    ]
    ran = [node for node in nodes if node.batches]
    stuck = [sentence for node in nodes for sentence in _stuck(node)]
    if not ran:
        return stuck or ["No request has run: call the pipe, then explain it."]
    sentences = [*stuck, _limit(ran)]
    sentences += [sentence for node in nodes for sentence in _of_node(node)]
    sentences += _gil(ran)
    return sentences


class NodeView:
    """A node between two snapshots of its statistics."""

    def __init__(self, name: str, node: NodeDescription, after: NodeStats, before: NodeStats | None) -> None:
        self.name = name
        self.after = after
        self._before = before
        self.backends = node["backends"]
        self.settings: Mapping[str, Any] = node["batching"]
        self.instances = instances_of(self.settings, after)
        limit = self.settings.get("max")
        self.max = limit if isinstance(limit, int) else None  # None: no number is set
        self.batches = self.grew("batches")
        self.in_python = any(uses_python(backend) for backend in node["backends"])

    def grew(self, name: str) -> float:
        """Return by how much a statistic grew."""
        return float(getattr(self.after, name) - (getattr(self._before, name) if self._before else 0))

    def backend_ms(self) -> dict[str, float]:
        """Return the time of each backend."""
        old = self._before.backend_ms if self._before else {}
        return {name: value - old.get(name, 0.0) for name, value in self.after.backend_ms.items()}

    def counter(self, name: str) -> int:
        """Return by how much a counter of the backends grew."""
        old = self._before.counters if self._before else {}
        return self.after.counters.get(name, 0) - old.get(name, 0)

    def mean_ms(self, name: str) -> float:
        """Return the mean of a histogram; 0 if it is empty."""
        values = getattr(self.after, name)
        recorded = values - getattr(self._before, name) if self._before else values
        return recorded.mean if recorded else 0.0

    @property
    def at_a_time(self) -> float:
        """Return the mean number of instances that run."""
        uptime_ms = self.grew("uptime_s") * 1e3
        return self.grew("compute_ms") / uptime_ms if uptime_ms else 0.0

    @property
    def busy(self) -> float:
        """Return the share of the time in which an instance runs."""
        return min(1.0, self.at_a_time / self.instances)

    @property
    def mean_batch(self) -> float:
        """Return the mean number of items of a batch."""
        return self.grew("batch_items") / self.batches if self.batches else 0.0


def _stuck(node: NodeView) -> Iterator[str]:
    """Name a node whose batches run and none of which has ended."""
    if node.after.running and not node.batches:
        yield (
            f"{node.name}: no batch has ended, and {node.after.running:,} requests run: they take long, or a backend "
            "hangs. hami top shows which."
        )


def _limit(nodes: list[NodeView]) -> str:
    """Return a sentence about the busiest node."""
    node = max(nodes, key=lambda node: node.busy)
    instances = "1 instance is" if node.instances == 1 else f"{node.instances} instances are"
    if node.busy >= LIMITING:
        return f"{node.name} limits the throughput: its {instances} busy {node.busy:.0%} of the time. {_advice(node)}"
    if node.busy < IDLE:
        return (
            f"The callers limit the throughput: the busiest node, {node.name}, is busy {node.busy:.0%} of the time. "
            "Run more requests at a time: more callers, pipe.submit, or several requests in one call."
        )
    if node.mean_ms("queue_ms") > node.mean_ms("batch_ms"):
        return (
            f"The busiest node, {node.name}, is busy only {node.busy:.0%} of the time although requests wait in its "
            "queue: its instances wait for the GIL, for cores, or for batches to fill."
        )
    return (
        f"No node is busy all the time: the busiest, {node.name}, is busy {node.busy:.0%} of it. "
        "Run more requests at a time to see what limits the throughput."
    )


def _advice(node: NodeView) -> str:
    if node.max and node.mean_batch >= FULL * node.max and node.max > 1:
        return f"Its batches are full ({figure(node.mean_batch)} items): raise max or instance_num."
    overhead, item = node.after.batch_overhead_ms, node.after.per_item_ms
    if overhead and item and overhead > item * node.mean_batch:
        return (
            f"A batch costs {figure(overhead)} ms and {figure(item)} ms for each item, and has "
            f"{figure(node.mean_batch)} items: more requests at a time make larger batches, which pay."
        )
    return "Raise instance_num if there are cores or device memory for it, or make its backends faster."


def _of_node(node: NodeView) -> Iterator[str]:
    yield from _slow_backend(node)
    yield from _unfilled_batches(node)
    yield from _padding(node)
    yield from _queue(node)
    yield from _outcomes(node)


def _slow_backend(node: NodeView) -> Iterator[str]:
    times = node.backend_ms()
    total = sum(times.values())
    if len(times) < 2 or not total or node.busy < IDLE:
        return
    slowest = max(times, key=lambda name: times[name])
    share = times[slowest] / total
    if MOST <= share < ALL:
        yield (
            f"{node.name}: {slowest} takes {share:.0%} of the time of its backends. "
            "In a separate node it has its own instances and batches, and the others run meanwhile."
        )
    elif share >= ALL:
        yield f"{node.name}: {slowest} takes {share:.0%} of the time of its backends; only a faster {slowest} helps."


def _unfilled_batches(node: NodeView) -> Iterator[str]:
    if not node.batches:
        return
    groups = node.counter("groups")
    if groups >= SPLIT * node.batches:
        yield (
            f"{node.name}: batches of {figure(node.mean_batch)} items run as {figure(groups / node.batches)} groups "
            "each, because the shapes of the requests differ. Resize or pad the inputs to fewer shapes."
        )
    timeout_s = node.settings.get("batching_timeout") or 0.0
    small = not node.max or node.mean_batch < OFTEN * node.max
    if timeout_s and small and node.grew("closed_timeout") >= OFTEN * node.batches:
        yield (
            f"{node.name}: most batches wait for batching_timeout ({figure(timeout_s * 1e3)} ms) and start with "
            f"{figure(node.mean_batch)} of {node.max} items. Lower batching_timeout, or run more requests at a time."
        )
    target = node.after.target_batch_size or 0
    sized = node.grew("batch_items") > node.grew("completed") + node.grew("failed")  # some have a request_size above 1
    if sized and node.mean_batch < OFTEN * target and node.grew("closed_target_size") >= OFTEN * node.batches:
        yield (
            f"{node.name}: batches start with {figure(node.mean_batch)} items although more requests wait, because the "
            f"next one does not fit: its request_size is too large. The target is {target} items; split large requests."
        )


def _padding(node: NodeView) -> Iterator[str]:
    if node.counter("padding_differences"):
        yield (
            f"{node.name}: padding changed a result, so requests of unequal length do not share runs any more. "
            "The log names the difference; a model that ignores the padding by its mask is faster."
        )


def _queue(node: NodeView) -> Iterator[str]:
    limit = node.settings.get("max_queue_size")
    rejected = node.grew("rejected")
    full = bool(limit) and node.after.waiting >= FULL * int(limit or 0)
    if full or (rejected and node.settings.get("on_full") != "block"):
        state = f"{node.after.waiting:,} requests wait" if full else f"{rejected:,.0f} requests were rejected"
        yield (
            f"{node.name}: the queue is full: {state}, max_queue_size is {limit}. Callers send more than the node "
            "completes; send less, or make the node faster. A longer queue only adds latency."
        )
    queue_ms, batch_ms = node.mean_ms("queue_ms"), node.mean_ms("batch_ms")
    if batch_ms and queue_ms > 2 * batch_ms and not full and node.busy >= IDLE:
        yield (
            f"{node.name}: a request waits {figure(queue_ms)} ms in the queue and runs {figure(batch_ms)} ms on "
            "average. More instances or larger batches shorten the wait; fewer requests at a time do too."
        )


def _outcomes(node: NodeView) -> Iterator[str]:
    submitted = node.grew("submitted")
    if expired := node.grew("expired"):
        yield (
            f"{node.name}: {expired:,.0f} of {submitted:,.0f} requests expired. Their time limit is shorter than "
            "the wait in the queue and the batch together; raise it, or limit the queue with max_queue_size."
        )
    if retried := node.grew("retried"):
        yield (
            f"{node.name}: {retried:,.0f} requests ran again alone because a batch failed. Let the backend fail only "
            "the wrong request, with request.fail, or check the inputs earlier."
        )


def _gil(nodes: list[NodeView]) -> Iterator[str]:
    names = [node for node in nodes if node.in_python]
    at_a_time = sum(node.at_a_time for node in names)
    if at_a_time >= AT_A_TIME:
        shared = ", ".join(node.name for node in names)
        yield (
            f"Python backends share the GIL: {at_a_time:.2g} run at a time, in {shared}. "
            "If they compute in Python, more instances do not help; move the work into a native backend or library."
        )
