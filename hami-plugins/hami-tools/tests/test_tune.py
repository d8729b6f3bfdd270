"""`hami tune`: the search on known functions, and the command."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hami
import pytest
from hami.cli import main
from running import backend

from hami_tools.bench.load import Load
from hami_tools.tune import parameters as parameters_module
from hami_tools.tune.parameters import Parameter, Settings, as_text, joint_changes, parameters_of, powers
from hami_tools.tune.search import Trial, Tuning, search, seconds_of_a_measurement

INSTANCES = Parameter("n", "instance_num", 1, (1, 2, 4, 8))
THREADS = Parameter("n", "threads", 0, (0, 1, 2, 4))
MAX = Parameter("n", "max", 1, (1, 2, 4, 8, 16))
TIMEOUT = Parameter("n", "batching_timeout", 0.0, (0.0, 1.0, 2.0, 5.0))
PARAMETERS = (INSTANCES, THREADS, MAX, TIMEOUT)

Rate = Callable[[Mapping[str, Any]], float]


class Built:
    """Stands for a pipe: it knows its settings."""

    def __init__(self, values: Mapping[str, Any], opened: list[Built]) -> None:
        self.values = values
        self._opened = opened
        opened.append(self)

    def close(self) -> None:
        self._opened.remove(self)

    def __enter__(self) -> Built:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Known(Trial):
    """A trial whose rate is a function of the settings."""

    rate: Rate = lambda values: 1.0

    def score(self, pipe: Any, seed: int) -> float:
        return self.rate(pipe.values)

    def warm_up(self, pipe: Any) -> None:
        pass


def found_by(
    rate: Rate,
    refuse: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    budget: float = 60.0,
    parameters: Sequence[Parameter] = PARAMETERS,
) -> Tuning:
    opened: list[Built] = []

    def build(settings: Settings) -> Any:
        values = {parameter.key: parameter.value for parameter in parameters}
        values.update({key: value for (_, key), value in settings.items()})
        if refuse(values):
            raise hami.ConfigError("not with this device\nmore")
        return Built(values, opened)

    found = search(Known(build, [{"data": 1}], Load(), None, 0.1, rate), parameters, budget)
    assert opened == []
    return found


def coupled(values: Mapping[str, Any]) -> float:
    """Four cores: instances with one thread each use them best; batches gain up to 8 items; waiting costs."""
    busy = min(4, values["instance_num"] * (4 * 0.7 if values["threads"] == 0 else values["threads"]))
    batch = min(values["max"], 8)
    return busy * batch / (1 + 0.5 * batch) / (1 + 0.1 * values["batching_timeout"])


def test_the_search_finds_at_least_97_percent_of_an_exhaustive_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters_module, "cpus", lambda: 4.0)
    found = found_by(coupled)
    keys = [parameter.key for parameter in PARAMETERS]
    best = max(
        coupled(dict(zip(keys, values, strict=True)))
        for values in itertools.product(*(parameter.values for parameter in PARAMETERS))
    )
    assert found.after >= 0.97 * best
    assert found.complete
    assert found.ratio == pytest.approx(found.after / found.before)
    assert found.trials < 60


def test_each_kept_change_has_its_gain() -> None:
    found = found_by(lambda values: values["max"])
    assert [(step.changes, step.ratio) for step in found.steps] == [
        ({("n", "max"): (old, 2 * old)}, 2.0) for old in (1, 2, 4, 8)
    ]
    assert found.settings == {("n", "max"): 16}
    assert (found.before, found.after, found.ratio) == (1, 16, 16.0)


def test_a_change_that_gains_less_than_2_percent_is_not_kept() -> None:
    found = found_by(lambda values: 100 + values["max"] / 10)
    assert found.steps == []
    assert found.settings == {}
    assert found.before == found.after == 100.1


def test_numbers_replace_auto_only_if_they_gain() -> None:
    automatic = [Parameter("n", "instance_num", "auto", (1, 2, 4, 8)), Parameter("n", "max", "auto", (1, 2, 4))]
    assert found_by(lambda values: 8 if values["max"] == "auto" else 7, parameters=automatic).settings == {}
    found = found_by(
        lambda values: 1 if values["instance_num"] == "auto" else values["instance_num"] * (values["max"] == "auto"),
        parameters=automatic,
    )
    assert found.settings == {("n", "instance_num"): 8}
    assert [step.changes for step in found.steps] == [
        {("n", "instance_num"): ("auto", 4)},
        {("n", "instance_num"): (4, 8)},
    ]


def test_a_ratio_that_noise_hides_is_measured_more_often() -> None:
    """The first three pairs say 1.1, 0.97 and 1.1; the pairs after them say 0.97."""
    pairs = [1.1, 0.97, 1.1, *[0.97] * 9]
    only = [Parameter("n", "max", 1, (1, 2))]
    found = found_by(lambda values: pairs.pop(0) if values["max"] == 2 else 1.0, parameters=only)
    assert found.trials == 1
    assert found.settings == {}
    assert len(pairs) == 12 - 9


def test_batches_of_one_wait_for_nothing() -> None:
    tried: list[tuple[int, float]] = []

    def rate(values: Mapping[str, Any]) -> float:
        tried.append((values["max"], values["batching_timeout"]))
        return 1.0

    found_by(rate)
    assert {timeout for most, timeout in tried if most == 1} == {0.0}


def test_settings_with_which_the_pipe_cannot_be_built_are_reported() -> None:
    found = found_by(lambda values: values["instance_num"], refuse=lambda values: values["instance_num"] > 2)
    assert found.settings["n", "instance_num"] == 2
    assert any(
        text.startswith("n.instance_num = 4") and text.endswith(": not with this device") for text in found.failed
    )


def test_the_search_ends_with_its_time() -> None:
    found = found_by(coupled, budget=0.0)
    assert not found.complete
    assert found.trials == 0
    assert seconds_of_a_measurement(60.0) == 0.5
    assert seconds_of_a_measurement(1e-3) == 0.1


def test_a_result_that_does_not_hold_is_dropped() -> None:
    calls = itertools.count()
    found = found_by(lambda values: 1 + (values["max"] - 1) * (1 if next(calls) < 20 else -0.01))
    assert (found.steps, found.settings, found.ratio) == ([], {}, 1.0)


def test_the_parameters_are_those_of_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters_module, "cpus", lambda: 2.0)

    class Threaded(hami.Backend):
        threads: int = 0

        def forward(self, batch: list[Any]) -> None:
            for item in batch:
                item["result"] = 1

    hami.register("TestTuneThreaded")(Threaded)
    with hami.pipe({"a": {"backend": "S[Identity,TestTuneThreaded]", "max": 6, "batching_timeout": "3ms"}}) as pipe:
        found = parameters_of(pipe.describe(), slo_s=0.004, clients=16)
    assert [(parameter.key, parameter.value, parameter.values) for parameter in found] == [
        ("instance_num", 1, (1, 2, 4)),
        ("threads", 0, (0, 1, 2)),
        ("max", 6, (1, 2, 4, 6, 8, 16)),
        ("batching_timeout", 3.0, (0.0, 1.0, 2.0, 3.0)),
    ]
    assert found[2].neighbours(6) == [8, 4]
    hami.register("TestTuneLight")(type("TestTuneLight", (Threaded,), {"thread": "concurrent", "lightweight": True}))
    with hami.pipe({"a": {"backend": "TestTuneLight", "max": "auto"}}) as pipe:
        light = parameters_of(pipe.describe(), slo_s=None, clients=4)
    assert [(parameter.key, parameter.value, parameter.values) for parameter in light[:3]] == [
        ("instance_num", "auto", (1, 2, 4)),
        ("threads", 0, (0, 1, 2)),
        ("max", "auto", (1, 2, 4)),
    ]
    assert light[0].neighbours("auto") == [2]
    assert found[2].neighbours(16) == [8]
    assert list(joint_changes(found)) == [{("a", "instance_num"): 2, ("a", "threads"): 1}]
    assert powers(6) == [1, 2, 4, 6]
    assert as_text(("a", "batching_timeout"), 2.0) == "2"


def _device(batch: list[Any]) -> None:
    time.sleep(0.004)  # stands for the work of a device
    for item in batch:
        item["result"] = item["data"]


def test_the_command_writes_a_configuration_that_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend(_device, "TestTuneDevice", max=8)
    Path("slow.toml").write_text('[work]\nbackend = "TestTuneDevice"\nmax = 1\n')
    (tmp_path / "out").mkdir()
    arguments = ["tune", "slow.toml", "--data", "1", "--clients", "8", "--time", "4s"]
    assert main([*arguments, "--output", "out/tuned.toml"]) == 0
    out = capsys.readouterr().out
    text = Path("out/tuned.toml").read_text()
    assert "together" in out
    assert 'extends = "../slow.toml"' in text
    assert "[work]\n" in text
    with hami.pipe("out/tuned.toml") as pipe:
        batching = pipe.describe()["nodes"]["work"]["batching"]
    assert batching["max"] * batching["instance_num"] > 1


def test_the_command_prints_json_and_writes_an_expression_into_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    backend(_device, "TestTuneDevice", max=8)
    place = tmp_path / "tuned.toml"
    arguments = ["tune", "S[Identity,TestTuneDevice]", "--data", "1", "--set", "max=8", "--slo", "1s"]
    assert main([*arguments, "--time", "1", "--clients", "1", "--json", "--output", str(place)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"] > 0
    assert found["trials"] >= 1
    assert 'backend = "S[Identity,TestTuneDevice]"' in place.read_text()
    with hami.pipe(str(place)) as pipe:
        assert pipe({"data": 3})["result"] == 3


def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hami_tools.tune.command.search", lambda *_: pytest.fail("it searches"))
    assert main(["tune", "Identity", "--data", "1", "--output", "no/folder/tuned.toml"]) == 1
    assert "--output no/folder/tuned.toml: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--time", "0"), ("--clients", "0"), ("--slo", "fast")])
def test_values_out_of_range_are_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["tune", "Identity", "--data", "1", *arguments])
    assert end.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_a_pipe_without_scheduling_has_nothing_to_tune(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node: Any = {"batching": {}, "backends": []}
    nothing: Any = {"nodes": {"a": node}}
    assert parameters_of(nothing, None, 16) == []
    monkeypatch.setattr("hami_tools.tune.command.parameters_of", lambda *_: [])
    assert main(["tune", "Identity", "--data", "1"]) == 1
    assert "no node of Identity has settings that hami tune can change" in capsys.readouterr().err
