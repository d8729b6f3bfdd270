"""Joined requests get what they would get alone: rows are tested, declared, and watched."""

from __future__ import annotations

import asyncio
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor

import hami
import pytest
import torch
from hami_model_check import findings, joining, row_watch
from helpers import message

from hami_torch import plugin

WIDTH = 4


class Network(torch.nn.Module):
    """A module made of one function, with weights that do not change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.make()

    def make(self) -> None:
        pass


class BatchNorm(Network):
    """Normalises by the statistics of the batch, as in training."""

    def forward(self, x):
        return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5)


class CountingBatchNorm(Network):
    """A batch norm that was exported in training: it also counts its batches in a buffer."""

    def make(self):
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.norm(x)


class SoftmaxOverRows(Network):
    def forward(self, x):
        return torch.softmax(x, 0)


class AttentionOverRows(Network):
    def make(self):
        self.attention = torch.nn.MultiheadAttention(WIDTH, 2)

    def forward(self, x):
        y, _ = self.attention(x, x, x, need_weights=False)  # x is one sequence of rows
        return y


class DynamicQuantization(Network):
    """One scale for the whole tensor."""

    def forward(self, x):
        scale = x.abs().amax() / 127
        return torch.round(x / scale) * scale


class SortOverRows(Network):
    def forward(self, x):
        return torch.sort(x, 0).values


class MinusMean(Network):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Mlp(Network):
    def make(self):
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.GELU(), torch.nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


class Convolution(Network):
    def make(self):
        self.layers = torch.nn.Sequential(torch.nn.Conv1d(1, 4, 3), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).eval()

    def forward(self, x):
        return self.layers(x[:, None])


class AttentionWithinRows(Network):
    def make(self):
        self.attention = torch.nn.MultiheadAttention(2, 1, batch_first=True)

    def forward(self, x):
        y = x.reshape(-1, WIDTH // 2, 2)
        return self.attention(y, y, y, need_weights=False)[0]


class SeveralOutputs(Network):
    def forward(self, x):
        return {"sorted": torch.sort(x, 1).values, "index": x.argmax(1)}


MIXING = [BatchNorm, SoftmaxOverRows, AttentionOverRows, DynamicQuantization, SortOverRows, MinusMean]
INDEPENDENT = [Mlp, Convolution, AttentionWithinRows, SeveralOutputs]


def export(module: torch.nn.Module, path, rows=None) -> str:
    dims = ({0: torch.export.Dim("n", max=rows)},)
    torch.export.save(torch.export.export(module, (torch.randn(2, WIDTH),), dynamic_shapes=dims), path)
    return str(path)


@pytest.fixture(params=["pt2", "factory", "torchscript"])
def source(request, tmp_path):
    """source(network) -> the parameters of a TorchModel that runs it."""

    def make(network):
        if request.param == "pt2":
            return {"model": export(network().eval(), tmp_path / f"{network.__name__}.pt2")}
        if request.param == "factory":
            return {"factory": f"test_joining:{network.__name__}", "row_shape": [WIDTH]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tracing is deprecated, but files that were traced are in use
            module = torch.jit.trace(network().eval(), torch.randn(2, WIDTH), strict=False)
        module.save(str(tmp_path / "m.pt"))
        return {"model": str(tmp_path / "m.pt"), "row_shape": [WIDTH]}

    return make


def rows_of_callers() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    scales = (1.0, 30.0, 0.01, 5.0)
    return [
        torch.randn(rows, WIDTH, generator=generator) * scales[i % 4] for i, rows in enumerate((1, 1, 2, 1, 3, 1) * 4)
    ]


def from_threads(running, rows):
    with ThreadPoolExecutor(len(rows)) as threads:
        return list(threads.map(lambda data: running({"data": data})["result"], rows))


def from_tasks(running, rows):
    async def ask():
        requests = await asyncio.gather(*(running.acall({"data": data}) for data in rows))
        return [request["result"] for request in requests]

    return asyncio.run(ask())


def parts(result) -> list[torch.Tensor]:
    return list(result.values()) if isinstance(result, dict) else [result]


@pytest.mark.parametrize("network", [*MIXING, *INDEPENDENT])
def test_joined_callers_get_what_they_get_alone(pipe, source, network):
    rows = rows_of_callers()
    with torch.no_grad():
        alone = [network().eval()(data) for data in rows]
    params = source(network)
    for instances in (1, 3):
        running = pipe("TorchModel", **params, instance_num=instances)
        for results in (from_threads(running, rows), from_tasks(running, rows)):
            for expected, result in zip(alone, results, strict=True):
                for one, other in zip(parts(expected), parts(result), strict=True):
                    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", MIXING)
def test_rows_that_mix_are_not_joined_and_max_says_why(pipe, source, network):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", **source(network), max=8)
    text = str(raised.value)
    assert "the backend of node" in text
    assert "TorchModel runs requests one by one: rows influence each other (" in text
    assert ': axis 0, result: axis 0): output "result" of a row is ' in text
    assert "; change the model so that it computes each row by itself" in text


@pytest.mark.parametrize("network", INDEPENDENT)
def test_independent_rows_are_joined(pipe, source, network):
    running = pipe("TorchModel", **source(network), max=8, batching="greedy")
    running([{"data": torch.randn(1, WIDTH)} for _ in range(8)])
    assert running.stats()["default"].model_calls < 8


def test_a_model_that_changes_its_buffers_is_not_joined(tmp_path):
    path = export(CountingBatchNorm().train(), tmp_path / "norm.pt2")
    with pytest.raises(hami.ConfigError, match=r'a run changes the buffer "norm\.num_batches_tracked" of the model'):
        hami.pipe({"backend": "TorchModel", "model": path, "device": "cpu", "max": 8})


def test_a_model_whose_inputs_are_unknown_is_not_joined_unless_the_user_says_so(pipe):
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TorchModel", factory="test_joining:Mlp", max=8)
    assert 'cannot be tested; set "row_shape"; set batched = true if rows are independent' in str(raised.value)
    pipe("TorchModel", factory="test_joining:Mlp", max=8, batched=True)


def test_a_model_with_a_limit_is_tested_within_it(pipe, tmp_path):
    pipe("TorchModel", model=export(Mlp(), tmp_path / "m.pt2", rows=4), max=4)
    with pytest.raises(hami.ConfigError, match="rows influence each other"):
        pipe("TorchModel", model=export(MinusMean(), tmp_path / "mixes.pt2", rows=2), max=2)


@pytest.mark.parametrize(("network", "joins"), [(Mlp, True), (SortOverRows, False)])
def test_a_fixed_number_of_rows_is_joined_only_if_rows_are_independent(pipe, tmp_path, network, joins):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(network().eval(), (torch.randn(3, WIDTH),)), path)
    running = pipe("TorchModel", model=str(path))
    rows = torch.randn(3, WIDTH)
    with torch.no_grad():
        expected = network().eval()(rows)
    if joins:
        requests = [{"data": row} for row in rows.split(1)]
        running(requests)
        torch.testing.assert_close(torch.cat([request["result"] for request in requests]), expected)
    else:
        torch.testing.assert_close(running({"data": rows})["result"], expected)


def test_a_file_is_tested_once(pipe, tmp_path, monkeypatch):
    from hami_torch import torch_model

    runs = []
    measure = torch_model.measure_rows
    monkeypatch.setattr(torch_model, "measure_rows", lambda *given: runs.append(1) or measure(*given))
    path = export(Mlp(), tmp_path / "m.pt2")
    copy = tmp_path / "copy.pt2"
    copy.write_bytes((tmp_path / "m.pt2").read_bytes())
    pipe("TorchModel", model=path, instance_num=3, max=8)
    findings._in_memory.clear()
    pipe("TorchModel", model=path, max=8)
    pipe("TorchModel", model=str(copy), max=8)  # the content counts
    assert len(runs) == 1
    pipe("TorchModel", model=path, dtype="bfloat16", max=8)
    assert len(runs) == 2


def test_all_instances_of_a_factory_are_tested_once(pipe, monkeypatch):
    from hami_torch import torch_model

    runs = []
    measure = torch_model.measure_rows
    monkeypatch.setattr(torch_model, "measure_rows", lambda *given: runs.append(1) or measure(*given))
    pipe("TorchModel", factory="test_joining:Mlp", row_shape=[WIDTH], instance_num=3, max=8)
    assert len(runs) == 1


def warnings_in(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "hami.rows"]


def test_an_override_against_a_finding_joins_and_warns_once(pipe, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(joining, "_warned", set())
    path = export(MinusMean(), tmp_path / "m.pt2")
    pipe("TorchModel", model=path)
    requests = [{"data": torch.full((1, WIDTH), value)} for value in (1.0, 3.0)]
    for _ in range(2):
        pipe("TorchModel", model=path, batched=True, max=2, batching="greedy")(requests)
    assert [request["result"].tolist() for request in requests] == [[[-1.0] * WIDTH], [[1.0] * WIDTH]]
    (text,) = warnings_in(caplog)
    assert text.startswith(
        f"TorchModel: batched = true joins the requests of {path}, although rows influence each other"
    )


def test_batched_false_never_joins(tmp_path):
    path = export(Mlp(), tmp_path / "m.pt2")
    with pytest.raises(hami.ConfigError) as raised:
        hami.pipe({"backend": "TorchModel", "model": path, "device": "cpu", "batched": False, "max": 8})
    assert "takes at most 1" in message(raised)


@pytest.fixture
def wrongly_independent(monkeypatch, tmp_path):
    """A model that mixes rows, about which the cache says otherwise, as for a model that mixes for rare inputs."""
    monkeypatch.setattr(row_watch.RowWatch.__init__, "__kwdefaults__", {"computed_in": "", "every": 1, "stops": True})
    wrong = joining.Measurement("independent", {"x": 0}, {"result": 0}, "", 0.0)
    monkeypatch.setattr("hami_torch.torch_model.measure_rows", lambda *_: wrong)
    return export(MinusMean(), tmp_path / "m.pt2")


@pytest.mark.parametrize("instances", [1, 3])
def test_a_watched_row_that_differs_ends_the_joining(pipe, wrongly_independent, caplog, instances):
    running = pipe("TorchModel", model=wrongly_independent, max=4, batching="greedy", instance_num=instances)
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(3):
            requests = [{"data": torch.full((rows, WIDTH), value)} for rows, value in ((1, 1.0), (2, 5.0), (1, 3.0))]
            requests[1]["data"][0] += 2  # its rows mix with each other, as they do alone
            running(requests)
            assert [request["result"][:, 0].tolist() for request in requests] == [[0], [1, -1], [0]]
    (text,) = warnings_in(caplog)
    assert text.endswith("requests run one by one from now on; set batched = false")
    assert 'depend on their neighbours: output "result" of a row is 0 alone and ' in text
    counters = running.stats()["default"].counters
    assert counters["watched"] == counters["watch_differences"] == 1
    assert any("depend on their neighbours" in sentence for sentence in running.remarks())


@pytest.mark.parametrize("instances", [1, 3])
def test_the_requests_of_cat_split_are_watched(pipe, wrongly_independent, caplog, instances):
    chain = "CatSplit[CatTensor, TorchModel, SplitTensor]"
    running = pipe(chain, model=wrongly_independent, max=4, batching="greedy", instance_num=instances)
    with caplog.at_level(logging.WARNING, "hami.rows"):
        for _ in range(3):
            requests = [{"data": torch.full((rows, WIDTH), value)} for rows, value in ((1, 1.0), (2, 5.0), (1, 3.0))]
            requests[1]["data"][0] += 2
            running(requests)
            assert [hami.to_numpy(request["result"])[:, 0].tolist() for request in requests] == [[0], [1, -1], [0]]
    assert len(warnings_in(caplog)) == 1
    counters = running.stats()["default"].counters
    assert counters["watched"] == counters["watch_differences"] == 1


def test_a_watched_row_of_a_declared_model_is_logged_and_joined_on(pipe, wrongly_independent, caplog):
    running = pipe("TorchModel", model=wrongly_independent, max=2, batching="greedy", batched=True)
    requests = [{"data": torch.full((1, WIDTH), value)} for value in (1.0, 3.0)]
    running(requests)
    assert [request["result"][0, 0].item() for request in requests] == [-1, 1]
    (text,) = warnings_in(caplog)
    assert text.endswith("requests are still joined, because batched = true")


def test_show_prints_the_finding(tmp_path):
    facts = plugin.hami_show_file(export(Mlp(), tmp_path / "m.pt2"))
    assert facts["inputs"] == ["x  float32 [-1, 4]"]
    assert (facts["requests"], facts["rows"], facts["known by"]) == ("joined", "independent", "test")
    assert facts["axes"] == "x: axis 0, result: axis 0"
    assert "of the largest value, alone against in batches, rounding explains" in facts["largest difference"]
    facts = plugin.hami_show_file(export(SortOverRows(), tmp_path / "sort.pt2"))
    assert (facts["requests"], facts["rows"]) == ("one by one", "mixes")
    assert "static scales" in facts["advice"]
    assert plugin.hami_show_file("m.onnx") is None


def test_check_prints_the_finding_of_a_model_that_was_tested(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "_SETTLED_NS", 0)
    path = export(SortOverRows(), tmp_path / "m.pt2")
    params = {"model": path, "device": "cpu"}
    assert plugin.hami_findings("TorchModel", params) == [
        '"m.pt2": whether requests are joined is tested when the model is opened; "hami show" runs the test'
    ]
    hami.pipe({"backend": "TorchModel", **params}).close()
    (text,) = plugin.hami_findings("TorchModel", params)
    assert text.startswith('"m.pt2": requests run one by one: rows influence each other (x: axis 0, result: axis 0): ')
    assert plugin.hami_findings("OnnxTensor", params) == []
