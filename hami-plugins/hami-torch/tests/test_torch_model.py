"""TorchModel: batches along axis 0, structure of data and result, dtypes, and isolated failures."""

from __future__ import annotations

import gc
import weakref

import hami
import numpy as np
import pytest
import torch
from helpers import message


def model(pipe, factory="Double", **config):
    """A pipe that joins requests; test_joining.py is about whether it may."""
    return pipe("TorchModel", factory=f"helpers:{factory}", **{"batched": True, **config})


def test_a_module_runs_and_the_data_of_the_request_is_unchanged(pipe):
    request = {"data": torch.tensor([[1.0, 2.0]])}
    assert model(pipe)(request)["result"].tolist() == [[2, 4]]
    assert request["data"].tolist() == [[1, 2]]


def test_the_caller_may_modify_the_result_in_place(pipe):
    result = model(pipe)({"data": torch.ones(1, 2)})["result"]
    result += 1
    assert result.tolist() == [[3, 3]]
    assert not result.requires_grad


@pytest.mark.parametrize("kind", ["parameter", "frozen", "buffer"])
def test_modifying_a_result_does_not_modify_the_weights(pipe, kind):
    returns_weight = model(pipe, "ReturnsItsWeight", arguments=[f"kind={kind}"])
    for _ in range(2):
        result = returns_weight({"data": torch.ones(1, 2)})["result"]
        assert result.tolist() == [[1, 1]]
        result += 1
        assert not result.requires_grad


@pytest.mark.parametrize("start", [{}, {"row_shape": [2]}])
def test_results_are_copies_if_the_module_reuses_its_output_buffer(pipe, start):
    program = model(pipe, "ReusesOutputBuffer", **start)
    results = [program({"data": torch.full((1, 2), float(i))})["result"] for i in range(5)]
    first = 0 if start else 1  # the reuse is detected in the second run
    assert [result.tolist() for result in results[first:]] == [[[2.0 * i, 2.0 * i]] for i in range(first, 5)]


def test_instances_take_turns_if_a_run_changes_tensors_of_the_module(pipe):
    program = model(pipe, "CountsInPlace", instance_num=4, max=1)
    futures = [program.submit({"data": torch.full((1, 2), float(i))}) for i in range(64)]
    assert [future.result()["result"].tolist() for future in futures] == [[[2.0 * i, 2.0 * i]] for i in range(64)]


def test_rows_that_share_memory_are_copied(pipe):
    requests = [{"data": torch.ones(1, 2)} for _ in range(3)]
    model(pipe, "RepeatsFirstRow", max=4, batching="greedy")(requests)
    requests[0]["result"] += 1
    assert [request["result"].tolist() for request in requests] == [[[3, 3]], [[2, 2]], [[2, 2]]]


def test_each_request_of_a_batch_gets_its_own_rows(pipe):
    requests = [{"data": torch.full((1, 2), float(i))} for i in range(7)]
    requests.append({"data": torch.tensor([[50.0, 50.0], [60.0, 60.0]]), "request_size": 2})
    model(pipe, max=16, batching="greedy")(requests)
    assert [request["result"].tolist() for request in requests[:7]] == [[[2 * i, 2 * i]] for i in range(7)]
    assert requests[7]["result"].tolist() == [[100, 100], [120, 120]]


def test_a_batch_runs_once_for_each_shape_and_dtype(pipe):
    shapes = [(1, 2), (1, 3), (1, 2), (1, 2)]
    requests = [{"data": torch.zeros(shape)} for shape in shapes] + [{"data": torch.zeros(1, 2, dtype=torch.float64)}]
    model(pipe, "CountsRows", max=8, batching="greedy")(requests)
    assert [request["result"].flatten()[0].item() for request in requests] == [3, 1, 3, 3, 1]


@pytest.mark.parametrize("form", [list, tuple, dict])
def test_several_inputs_are_passed_in_order_or_by_name(pipe, form):
    a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 1.0]])
    data = {"b": b, "a": a} if form is dict else form([a, b])
    requests = [{"data": data}, {"data": data}]
    model(pipe, "SumAndDifference", max=4, batching="greedy")(requests)
    for request in requests:
        assert {name: part.tolist() for name, part in request["result"].items()} == {
            "total": [[4, 5]],
            "rest": [[2, 3]],
        }


def test_numpy_arrays_are_accepted(pipe):
    assert model(pipe)({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_only_the_request_that_fails_the_run_fails(pipe):
    requests = [{"data": torch.tensor([row])} for row in (0, 3, 2)]
    with pytest.raises(hami.BatchError) as raised:
        model(pipe, "TableLookup", max=8, batching="greedy")(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error).splitlines()[0].startswith("TorchModel: the model failed on int64 [1]: ")
    assert isinstance(error.__cause__, (IndexError, RuntimeError))
    assert [requests[at]["result"].tolist() for at in (0, 2)] == [[[0, 1]], [[4, 5]]]


@pytest.mark.parametrize("wrong", [3, None])
def test_a_kept_error_does_not_keep_the_tensors_of_its_batch(pipe, wrong):
    """One request fails in the model; in the other case one has two rows but request_size 1."""
    lookup = model(pipe, "TableLookup", max=8, batching="greedy")
    whole = torch.tensor([[0], [3 if wrong else 2], [2]])
    kept = weakref.ref(whole)
    parts = list(whole.split(1))
    if wrong is None:
        parts[1] = whole[:2]
    calls = [lookup.submit({"data": part, "request_size": 1}) for part in parts]
    errors = [call.exception() for call in calls]
    assert [error is None for error in errors] == [True, False, True]
    lookup.close()
    del whole, parts, calls
    gc.collect()
    assert kept() is None


def ask(adds, values):
    """Run the rows of one tensor as one batch; return the result or error of each request, and the data afterwards."""
    whole = torch.tensor(values)[:, None]
    requests = [{"data": row} for row in whole.split(1)]
    try:
        adds(requests)
        errors = {}
    except hami.BatchError as failed:
        errors = dict(failed.errors)
    results = [errors.get(index) or request["result"].item() for index, request in enumerate(requests)]
    return results, whole.flatten().tolist()


@pytest.mark.parametrize(
    ("values", "reason"),
    [([1.0, 13.0, 5.0], "13 is wrong"), ([7.0, 1.0], "an output does not have one row for each input row")],
)
def test_a_failed_batch_whose_input_was_modified_is_not_retried(pipe, values, reason):
    adds = model(pipe, "AddsInPlaceBelow20", max=4, batching="greedy")
    assert ask(adds, [20.0]) == ([42], [20])
    errors, _ = ask(adds, values)
    assert [str(error).splitlines()[0] for error in errors] == [
        f"TorchModel: the model failed on a batch ({reason}), and its requests cannot be retried: the model modified "
        "its input for the first time. From now on it gets copies; change forward to work on a copy"
    ] * len(values)
    check_copies(adds)


@pytest.mark.parametrize("config", [{}, {"row_shape": [1]}])
@pytest.mark.parametrize("inference", [False, True])
def test_a_model_that_modifies_its_input_does_not_modify_the_callers_data(pipe, config, inference):
    adds = model(pipe, "AddsInPlace", max=4, batching="greedy", **config)
    with torch.inference_mode(inference):
        data = torch.tensor([[1.0]])
        for _ in range(2):
            assert adds({"data": data})["result"].tolist() == [[4]]
            assert data.tolist() == [[1]]
    check_copies(adds)


def test_a_model_that_fails_in_its_first_run_does_not_modify_the_callers_data(pipe):
    check_copies(model(pipe, "AddsInPlace", max=4, batching="greedy"))


def check_copies(adds):
    results, data = ask(adds, [1.0, 13.0, 5.0])
    assert [results[0], results[2]] == [4, 12]
    assert str(results[1]).startswith("TorchModel: the model failed on float32 [1, 1]: 13 is wrong")
    assert data == [1, 13, 5]
    assert ask(adds, [7.0, 1.0]) == ([8, 4], [7, 1])


def test_tensors_made_in_inference_mode_are_accepted(pipe):
    with torch.inference_mode():
        data = torch.ones(1, 2)
    assert model(pipe)({"data": data})["result"].tolist() == [[2, 2]]


def test_requests_run_alone_if_an_output_is_not_per_row(pipe):
    requests = [{"data": torch.tensor([[1.0, -1.0]])}, {"data": torch.tensor([[1.0, 2.0]])}]
    model(pipe, "PositiveElements", max=8, batching="greedy")(requests)
    assert [request["result"].tolist() for request in requests] == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("data", "keys", "kind", "text"),
    [
        (
            torch.zeros(2, 2),
            {"request_size": 1},
            hami.RequestError,
            'TorchModel: "data" is float32 [2, 2], but request_size is 1; axis 0 must have request_size rows',
        ),
        (
            {"x": torch.tensor(1.0)},
            {},
            hami.RequestError,
            'TorchModel: "x" is float32 []; all inputs must have the same number of rows along axis 0',
        ),
        ([], {}, hami.RequestError, 'TorchModel: "data" is empty; it must be a tensor, or a list or dict of tensors'),
        (
            "text",
            {},
            hami.DataTypeError,
            "TorchModel takes a torch tensor or an object with DLPack, for example a NumPy array; got str",
        ),
    ],
)
def test_data_that_is_not_a_batch_is_rejected(pipe, data, keys, kind, text):
    with pytest.raises(kind) as raised:
        model(pipe)({"data": data, **keys})
    assert message(raised) == text


def test_the_error_of_the_model_names_dtype_and_shape_of_the_input(pipe):
    conv = pipe("TorchModel", factory="torch.nn:Conv2d", arguments=["in_channels=3", "out_channels=1", "kernel_size=1"])
    for data, shown in (
        (torch.zeros(1, 3, 2, 2).double(), "float64 [1, 3, 2, 2]"),
        (torch.zeros(1, 2, 2, 2), "float32 [1, 2, 2, 2]"),
    ):
        with pytest.raises(hami.RequestError) as raised:
            conv({"data": data})
        assert message(raised).startswith(f"TorchModel: the model failed on {shown}: ")
    assert conv({"data": torch.zeros(1, 3, 2, 2)})["result"].shape == (1, 1, 2, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtype_applies_to_weights_and_floating_point_input(pipe, dtype):
    result = model(pipe, "Scaled", dtype=dtype)({"data": torch.ones(1, 2, dtype=torch.float64)})["result"]
    assert result.dtype == getattr(torch, dtype)
    assert result.tolist() == [[3, 3]]


def test_channels_last_gives_the_same_values(pipe):
    config = {"factory": "torch.nn:Conv2d", "arguments": ["in_channels=3", "out_channels=2", "kernel_size=3"]}
    data = torch.rand(1, 3, 8, 8)
    torch.manual_seed(0)
    plain = pipe("TorchModel", **config)({"data": data})["result"]
    torch.manual_seed(0)
    last = pipe("TorchModel", channels_last=True, row_shape="3,8,8", **config)({"data": data})["result"]
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last, plain)


SCALED = {"input_mean": [10, 20, 30], "input_std": [2, 4, 8], "input_scale": 0.5}


@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
def test_input_is_scaled_in_float32_before_the_model(pipe, kind, dtype):
    images = torch.randint(0, 256, (2, 3, 4, 5)).to(kind)
    config = {"factory": "helpers:Double", "batched": True} | ({"dtype": dtype} if dtype else {})
    inside = pipe("TorchModel", **SCALED, **config, row_shape=[3, 4, 5])
    request = {"data": images, "request_size": 2}
    mean, std = (torch.tensor(SCALED[name]).reshape(-1, 1, 1) for name in ("input_mean", "input_std"))
    scaled = torch.addcmul(-mean / std, images.float(), SCALED["input_scale"] / std)
    expected = 2 * scaled.to(getattr(torch, dtype or "float32"))
    torch.testing.assert_close(inside(dict(request))["result"], expected)
    requests = [{"data": images[:1]}, {"data": images[1:]}]
    pipe("TorchModel", **SCALED, **config, max=2, batching="greedy")(requests)
    torch.testing.assert_close(torch.cat([request["result"] for request in requests]), expected)


@pytest.mark.parametrize("data", [torch.zeros(1, 1, 4, 5), torch.zeros(1, 3)])
def test_input_scaling_rejects_another_number_of_channels(pipe, data):
    with pytest.raises(hami.RequestError) as raised:
        model(pipe, **SCALED)({"data": data})
    assert message(raised) == (
        f'TorchModel: "input_mean" and "input_std" are for 3 channels, got a tensor of shape {list(data.shape)}'
    )


def test_input_scaling_needs_one_tensor(pipe):
    with pytest.raises(hami.RequestError) as raised:
        model(pipe, **SCALED)({"data": [torch.zeros(1, 3, 4, 5)]})
    assert message(raised) == (
        'TorchModel: "input_mean", "input_std" and "input_scale" need "data" to be one tensor, got a list'
    )


def test_out_of_memory_fails_the_batch_but_not_the_pipe(pipe):
    """The requests are not retried one by one, because that could run out of memory again."""
    alive = model(pipe, "RunsOutOfMemory", max=8, batching="greedy")
    requests = [{"data": torch.full((1, 1), value)} for value in (1.0, 13.0, 2.0)]
    with pytest.raises(hami.BatchError) as raised:
        alive(requests)
    assert len(raised.value.errors) == 3
    error = raised.value.errors[0][1]
    assert isinstance(error, MemoryError)
    assert str(error).splitlines()[0] == (
        "TorchModel: out of memory on cpu: CUDA out of memory. Tried to allocate 20.00 GiB.; the batch failed and its "
        "memory was freed. Lower `max` or `instance_num`, or use a smaller dtype"
    )
    assert alive({"data": torch.ones(1, 1)})["result"].tolist() == [[1]]


def test_instances_and_pipes_share_one_module(pipe):
    from hami_torch import _program

    before = len(_program._programs)
    first = model(pipe, "Scaled", instance_num=3)
    second = model(pipe, "Scaled")
    assert len(_program._programs) == before + 1
    first.close()
    second.close()
    assert len(_program._programs) == before


def test_row_shape_runs_the_model_when_the_pipe_is_built(pipe):
    model(pipe, row_shape=[2, 3])
    with pytest.raises(hami.ConfigError) as raised:
        pipe(
            "TorchModel",
            factory="torch.nn:Conv2d",
            arguments=["in_channels=3", "out_channels=1", "kernel_size=1"],
            row_shape=[2, 5, 5],
        )
    assert message(raised).startswith(
        'TorchModel: the model failed on float32 [1, 2, 5, 5], the input that "row_shape" describes: '
    )


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"graphs": [1, 2], "row_shape": [2]},
            'TorchModel: "graphs" needs a CUDA device; remove "graphs" to run on the CPU',
        ),
        ({"row_shape": ["x"]}, "TorchModel: \"row_shape\" must be a list of integers of at least 1, got ['x']"),
        ({"graphs": [0]}, 'TorchModel: "graphs" must be a list of integers of at least 1, got [0]'),
        ({"row_shape": [2], "row_dtype": "int"}, None),
        ({"row_shape": [2], "rows": 3}, None),
        (
            {"row_shape": [2], "rows": 0},
            'TorchModel: "rows" must be an integer of at least 1, and it needs "row_shape" without "graphs"; got 0',
        ),
        (
            {"rows": 2},
            'TorchModel: "rows" must be an integer of at least 1, and it needs "row_shape" without "graphs"; got 2',
        ),
        (
            {"row_shape": [3, 2, 2], "row_dtype": "int", **SCALED},
            'TorchModel: "row_dtype" must be float32 if the input is scaled ("input_mean", "input_std", '
            '"input_scale"), got "int"; remove it',
        ),
        (
            {"row_shape": [1, 2, 2], **SCALED},
            'TorchModel: the model failed on float32 [1, 1, 2, 2], the input that "row_shape" describes: TorchModel: '
            '"input_mean" and "input_std" are for 3 channels, got a tensor of shape [1, 1, 2, 2]',
        ),
        ({"input_std": [1, 0]}, 'TorchModel: "input_std" is a divisor and must not contain 0, got [1, 0]'),
        (
            {"input_mean": [1, 2], "input_std": [1, 2, 3]},
            'TorchModel: "input_mean" and "input_std" must have one number per channel, or one for all; '
            "got [1, 2] and [1, 2, 3]",
        ),
        (
            {"row_shape": [2], "row_dtype": "int33"},
            'TorchModel: "row_dtype" must be a dtype of torch, for example float32 or int64; got "int33"',
        ),
    ],
)
def test_invalid_parameters_are_rejected(pipe, config, text):
    if text is None:
        assert model(pipe, **config)
        return
    with pytest.raises(hami.ConfigError) as raised:
        model(pipe, **config)
    assert message(raised) == text


def test_a_node_without_max_runs_the_requests_of_a_call_together(pipe):
    requests = [{"data": torch.full((1, 2), float(number))} for number in range(8)]
    running = model(pipe)
    assert [request["result"].tolist() for request in running(requests)] == [[[2.0 * n, 2.0 * n]] for n in range(8)]
    assert running.stats()["default"].batches == 1
