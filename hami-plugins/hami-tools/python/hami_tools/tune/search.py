"""Searches the settings of a pipe: changes one at a time, and keeps what is measured to gain."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hami import Error, Pipe

from hami_tools.bench.load import Load
from hami_tools.bench.point import measure
from hami_tools.tune.parameters import Parameter, Setting, Settings, as_text, joint_changes

ROUNDS, MOST_ROUNDS = 3, 9  # of each comparison: more than ROUNDS where the ratio is near GAIN
ERRORS = 2.0  # standard errors between the ratio and GAIN that make a comparison clear
FINAL_ROUNDS = 5
GAIN = 1.02  # below, a change is not worth a line of configuration
HOPELESS = 0.9  # ratio of the first round below which a change is given up
ROUNDS_IN_BUDGET = 120  # measurements of one pipe that the time allows
MIN_SECONDS, MAX_SECONDS = 0.1, 1.0  # of one measurement
FINAL_SHARE = 0.2  # of the time, for the comparison with the settings at the beginning

Build = Callable[[Settings], Pipe]


@dataclass(frozen=True)
class Step:
    """One change that was kept: usually of one setting."""

    changes: dict[Setting, tuple[Any, Any]]
    """The values before and after."""
    ratio: float
    """Requests per second after the change divided by those before."""


@dataclass
class Tuning:
    """The result of a search."""

    steps: list[Step] = field(default_factory=list)
    settings: Settings = field(default_factory=dict)
    """The settings that differ from those at the beginning."""
    before: float = 0.0
    """Requests per second at the beginning; with an objective, those within it."""
    after: float = 0.0
    ratio: float = 1.0
    """The two compared alternately."""
    trials: int = 0
    failed: list[str] = field(default_factory=list)
    """Settings with which the pipe could not be built, with the reason."""
    complete: bool = True
    """False: the time ended before every change was tried."""


@dataclass(frozen=True)
class Trial:
    """The part that all measurements share."""

    build: Build
    inputs: Sequence[Mapping[str, Any]]
    load: Load
    slo: float | None
    seconds: float
    """Of one measurement."""

    def score(self, pipe: Pipe, seed: int) -> float:
        """Measure a pipe and return its requests per second, within the objective if there is one."""
        point = measure(pipe, self.inputs, self.load, self.seconds, self.slo, seed, warm_up=False)
        return point.throughput if self.slo is None else point.goodput

    def warm_up(self, pipe: Pipe) -> None:
        """Run requests until instances have started and batching has learned."""
        measure(pipe, self.inputs, self.load, self.seconds)


def search(
    trial: Trial, parameters: Sequence[Parameter], budget_s: float, on_trial: Callable[[str], None] = lambda _: None
) -> Tuning:
    """Change one parameter at a time, to the next larger or smaller value, and keep what gains.

    Each change is compared with the best settings so far by alternating measurements of two pipes, so that
    disturbances of the machine meet both. The search ends when no change gains, or with the time.

    Args:
        trial: How a pipe is built and measured.
        parameters: The settings that may change.
        budget_s: Time of the whole search.
        on_trial: Called with the text of each change before it is measured.
    """
    start = time.monotonic()
    end = start + budget_s * (1 - FINAL_SHARE)
    found = Tuning()
    first: Settings = {parameter.setting: parameter.value for parameter in parameters}
    best = dict(first)
    incumbent = trial.build({})
    try:
        trial.warm_up(incumbent)
        for change in _changes(parameters, best, found):
            if time.monotonic() > end:
                found.complete = False
                break
            on_trial(in_words(change))
            candidate = _built(trial, _changed({**best, **change}, first), found)
            if candidate is None:
                continue
            found.trials += 1
            ratio = _ratio(trial, incumbent, candidate)
            if ratio >= GAIN:
                found.steps.append(Step({key: (best[key], value) for key, value in change.items()}, ratio))
                best.update(change)
                incumbent, candidate = candidate, incumbent
            candidate.close()
    finally:
        incumbent.close()
    found.settings = _changed(best, first)
    _compare_with_the_beginning(trial, found)
    return found


def in_words(settings: Settings) -> str:
    """Return settings as text, for messages."""
    return ", ".join(f"{node}.{key} = {as_text((node, key), value)}" for (node, key), value in settings.items())


def _changes(parameters: Sequence[Parameter], best: Settings, found: Tuning) -> Iterator[Settings]:
    """Yield the changes to try; those of a parameter again and again while they gain, until none does."""
    tried: set[tuple[Any, ...]] = {tuple(best.values())}
    yield from joint_changes(parameters)
    gained = True
    while gained:
        gained = False
        for parameter in parameters:
            if parameter.key == "batching_timeout" and best.get((parameter.node, "max")) == 1:
                continue  # batches of one wait for nothing
            moved = True
            while moved:
                moved = False
                for value in parameter.neighbours(best[parameter.setting]):
                    whole = tuple({**best, parameter.setting: value}.values())
                    if whole in tried:
                        continue
                    tried.add(whole)
                    kept = len(found.steps)
                    yield {parameter.setting: value}
                    if len(found.steps) > kept:
                        gained = moved = True
                        break


def _changed(settings: Settings, first: Settings) -> Settings:
    return {setting: value for setting, value in settings.items() if value != first[setting]}


def _built(trial: Trial, settings: Settings, found: Tuning) -> Pipe | None:
    try:
        pipe = trial.build(settings)
    except (Error, ValueError, RuntimeError) as error:
        found.failed.append(
            f"{in_words(settings)}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        )
        return None
    trial.warm_up(pipe)
    return pipe


def _ratio(trial: Trial, incumbent: Pipe, candidate: Pipe) -> float:
    """Return the median of the ratios of alternating measurements, as many as it takes to tell it from GAIN."""
    ratios: list[float] = []
    for number in range(MOST_ROUNDS):
        scores = _scores(trial, incumbent, candidate, number)
        ratios.append(scores[1] / scores[0] if scores[0] else float("inf") if scores[1] else 1.0)
        if ratios[0] < HOPELESS or (len(ratios) >= ROUNDS and _clear(ratios)):
            break
    return statistics.median(ratios)


def _clear(ratios: Sequence[float]) -> bool:
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if math.isfinite(max(ratios)) else 0.0
    return abs(statistics.fmean(ratios) - GAIN) > ERRORS * error


def _scores(trial: Trial, one: Pipe, other: Pipe, number: int) -> tuple[float, float]:
    if number % 2 == 0:
        first = trial.score(one, number)
        return first, trial.score(other, number)
    second = trial.score(other, number)
    return trial.score(one, number), second


def _compare_with_the_beginning(trial: Trial, found: Tuning) -> None:
    """Measure the settings at the beginning and at the end again; keep those at the beginning if nothing is gained."""
    with trial.build({}) as before:
        trial.warm_up(before)
        if not found.settings:
            found.before = found.after = statistics.median(trial.score(before, number) for number in range(ROUNDS))
            return
        with trial.build(found.settings) as after:
            trial.warm_up(after)
            scores = [_scores(trial, before, after, number) for number in range(FINAL_ROUNDS)]
    found.before, found.after = (statistics.median(column) for column in zip(*scores, strict=True))
    found.ratio = found.after / found.before if found.before else float("inf")
    if found.ratio < 1:
        found.steps, found.settings, found.after, found.ratio = [], {}, found.before, 1.0


def seconds_of_a_measurement(budget_s: float) -> float:
    """Return the time of one measurement so that the budget allows enough of them."""
    return min(MAX_SECONDS, max(MIN_SECONDS, budget_s / ROUNDS_IN_BUDGET))
