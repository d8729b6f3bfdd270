"""Measurements, explanations and pictures of pipes of HAMi, and the commands of this package.

>>> import hami
>>> import hami_tools
>>> print(hami_tools.Graph.of(hami.pipe("S[Identity,Identity]")).render())
default: S[Identity,Identity]
"""

from __future__ import annotations

from hami_tools.explanation import explain
from hami_tools.graph import Graph
from hami_tools.throughput import ThroughputBenchmark, ThroughputResult
from hami_tools.user_code import inspector, timer, timers

__all__ = ["Graph", "ThroughputBenchmark", "ThroughputResult", "explain", "inspector", "timer", "timers"]
