"""TorchModel: batches along axis 0, forms of data and result, types, and failures that stay alone."""

from __future__ import annotations

import gc
import weakref

import hami
import numpy as np
import pytest
import torch
from helpers import message


def model(pipe, factory="Double", **config):
    return pipe("TorchModel", factory=f"helpers:{factory}", **config)


def test_runs_a_module(pipe):
    request = {"data": torch.tensor([[1.0, 2.0]])}
    assert model(pipe)(request)["result"].tolist() == [[2, 4]]
    assert request["data"].tolist() == [[1, 2]]


def test_the_result_may_be_changed_in_place(pipe):
    result = model(pipe)({"data": torch.ones(1, 2)})["result"]
    result += 1
    assert result.tolist() == [[3, 3]]
    assert not result.requires_grad


@pytest.mark.parametrize("kind", ["parameter", "frozen", "buffer"])
def test_the_weights_are_not_given_away(pipe, kind):
    gives = model(pipe, "GivesItsWeight", arguments=[f"kind={kind}"])
    for _ in range(2):
        result = gives({"data": torch.ones(1, 2)})["result"]
        assert result.tolist() == [[1, 1]]
        result += 1
        assert not result.requires_grad


@pytest.mark.parametrize("start", [{}, {"row_shape": [2]}])
def test_what_a_module_writes_to_again_is_not_given_away(pipe, start):
    program = model(pipe, "WritesToItsOwn", **start)
    results = [program({"data": torch.full((1, 2), float(i))})["result"] for i in range(5)]
    first = 0 if start else 1  # known from the second run on
    assert [result.tolist() for result in results[first:]] == [[[2.0 * i, 2.0 * i]] for i in range(first, 5)]


def test_rows_that_are_one_in_memory_are_parted(pipe):
    requests = [{"data": torch.ones(1, 2)} for _ in range(3)]
    model(pipe, "GivesOneRow", max=4, batching="max")(requests)
    requests[0]["result"] += 1
    assert [request["result"].tolist() for request in requests] == [[[3, 3]], [[2, 2]], [[2, 2]]]


def test_requests_gathered_into_one_run_get_their_own_rows(pipe):
    requests = [{"data": torch.full((1, 2), float(i))} for i in range(7)]
    requests.append({"data": torch.tensor([[50.0, 50.0], [60.0, 60.0]]), "request_size": 2})
    model(pipe, max=16, batching="max")(requests)
    assert [request["result"].tolist() for request in requests[:7]] == [[[2 * i, 2 * i]] for i in range(7)]
    assert requests[7]["result"].tolist() == [[100, 100], [120, 120]]


def test_a_batch_runs_once_for_each_shape_and_dtype(pipe):
    shapes = [(1, 2), (1, 3), (1, 2), (1, 2)]
    requests = [{"data": torch.zeros(shape)} for shape in shapes] + [{"data": torch.zeros(1, 2, dtype=torch.float64)}]
    model(pipe, "CountsRows", max=8, batching="max")(requests)
    assert [request["result"].flatten()[0].item() for request in requests] == [3, 1, 3, 3, 1]


@pytest.mark.parametrize("form", [list, tuple, dict])
def test_several_inputs_come_in_order_or_by_name(pipe, form):
    a, b = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 1.0]])
    data = {"b": b, "a": a} if form is dict else form([a, b])
    requests = [{"data": data}, {"data": data}]
    model(pipe, "SumAndDifference", max=4, batching="max")(requests)
    for request in requests:
        assert {name: part.tolist() for name, part in request["result"].items()} == {
            "total": [[4, 5]],
            "rest": [[2, 3]],
        }


def test_arrays_are_taken(pipe):
    assert model(pipe)({"data": np.ones((1, 2), np.float32)})["result"].tolist() == [[2, 2]]


def test_what_fails_a_run_fails_alone(pipe):
    requests = [{"data": torch.tensor([row])} for row in (0, 3, 2)]
    with pytest.raises(hami.BatchError) as raised:
        model(pipe, "Picks", max=8, batching="max")(requests)
    ((index, error),) = raised.value.errors
    assert index == 1
    assert str(error).splitlines()[0].startswith("TorchModel: the model failed on int64 [1]: ")
    assert isinstance(error.__cause__, (IndexError, RuntimeError))
    assert [requests[at]["result"].tolist() for at in (0, 2)] == [[[0, 1]], [[4, 5]]]


@pytest.mark.parametrize("wrong", [3, None])
def test_who_keeps_the_error_of_a_request_does_not_keep_the_tensors_of_its_batch(pipe, wrong):
    """One that the model fails on, and one of two rows where request_size says one."""
    alive = model(pipe, "Picks", max=8, batching="max")
    whole = torch.tensor([[0], [3 if wrong else 2], [2]])
    kept = weakref.ref(whole)
    parts = list(whole.split(1))
    if wrong is None:
        parts[1] = whole[:2]
    calls = [alive.submit({"data": part}) for part in parts]
    errors = [call.exception() for call in calls]
    assert [error is None for error in errors] == [True, False, True]
    alive.close()
    del whole, parts, calls
    gc.collect()
    assert kept() is None


def ask(adds, values):
    """Run rows of one tensor as one batch; return what each request has become, and the data afterwards."""
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
    ("values", "why"), [([1.0, 13.0, 5.0], "13 is wrong"), ([7.0, 1.0], "it gave an output that is not per row")]
)
def test_a_batch_that_the_model_has_written_to_is_not_tried_again(pipe, values, why):
    adds = model(pipe, "AddsInPlaceBelow", max=4, batching="max")
    assert ask(adds, [20.0]) == ([42], [20])
    errors, _ = ask(adds, values)
    assert [str(error).splitlines()[0] for error in errors] == [
        f"TorchModel: the model failed on a batch ({why}), whose requests cannot run alone: it has written to its "
        "input, for the first time. From now on it gets copies; begin its forward with a copy"
    ] * len(values)
    check_copies(adds)


@pytest.mark.parametrize("config", [{}, {"row_shape": [1]}])
@pytest.mark.parametrize("inference", [False, True])
def test_a_model_that_writes_to_its_input_does_not_change_the_callers_data(pipe, config, inference):
    adds = model(pipe, "AddsInPlace", max=4, batching="max", **config)
    with torch.inference_mode(inference):
        data = torch.tensor([[1.0]])
        for _ in range(2):
            assert adds({"data": data})["result"].tolist() == [[4]]
            assert data.tolist() == [[1]]
    check_copies(adds)


def test_a_model_that_fails_before_it_ran_once_does_not_change_the_callers_data(pipe):
    check_copies(model(pipe, "AddsInPlace", max=4, batching="max"))


def check_copies(adds):
    results, data = ask(adds, [1.0, 13.0, 5.0])
    assert [results[0], results[2]] == [4, 12]
    assert str(results[1]).startswith("TorchModel: the model failed on float32 [1, 1]: 13 is wrong")
    assert data == [1, 13, 5]
    assert ask(adds, [7.0, 1.0]) == ([8, 4], [7, 1])


def test_what_was_made_in_inference_mode_is_taken(pipe):
    with torch.inference_mode():
        data = torch.ones(1, 2)
    assert model(pipe)({"data": data})["result"].tolist() == [[2, 2]]


def test_an_output_that_is_not_per_row_makes_requests_run_alone(pipe):
    requests = [{"data": torch.tensor([[1.0, -1.0]])}, {"data": torch.tensor([[1.0, 2.0]])}]
    model(pipe, "Positives", max=8, batching="max")(requests)
    assert [request["result"].tolist() for request in requests] == [[1], [1, 2]]


@pytest.mark.parametrize(
    ("data", "keys", "kind", "text"),
    [
        (
            torch.zeros(2, 2),
            {},
            hami.RequestError,
            'TorchModel: "data" is float32 [2, 2], and request_size is 1: axis 0 has as many rows as request_size',
        ),
        (
            {"x": torch.tensor(1.0)},
            {},
            hami.RequestError,
            'TorchModel: "x" is float32 [], and request_size is 1: axis 0 has as many rows as request_size',
        ),
        ([], {}, hami.RequestError, 'TorchModel: "data" is empty; it is a tensor, or a list or dict of them'),
        ("text", {}, hami.DataTypeError, "TorchModel takes a tensor (torch's, or anything with DLPack), got str"),
    ],
)
def test_data_that_is_no_batch_is_refused(pipe, data, keys, kind, text):
    with pytest.raises(kind) as raised:
        model(pipe)({"data": data, **keys})
    assert message(raised) == text


def test_a_wrong_dtype_or_shape_is_named_with_what_the_model_says(pipe):
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
def test_the_dtype_is_that_of_the_weights_and_of_floating_point_input(pipe, dtype):
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
def test_pictures_are_scaled_inside_the_program_as_by_a_backend_before_it(pipe, kind, dtype):
    pictures = torch.randint(0, 256, (2, 3, 4, 5)).to(kind)
    config = {"factory": "helpers:Double"} | ({"dtype": dtype} if dtype else {})
    inside = pipe("TorchModel", **SCALED, **config, row_shape=[3, 4, 5])
    steps = "S[hami-torch::NormalizeTensor,TorchModel]"
    before = pipe(steps, **{name.removeprefix("input_"): value for name, value in SCALED.items()}, **config)
    request = {"data": pictures, "request_size": 2}
    expected = before(dict(request))["result"]
    assert torch.equal(inside(dict(request))["result"], expected)
    requests = [{"data": pictures[:1]}, {"data": pictures[1:]}]
    pipe("TorchModel", **SCALED, **config, max=2, batching="max")(requests)
    assert torch.equal(torch.cat([request["result"] for request in requests]), expected)


@pytest.mark.parametrize("data", [torch.zeros(1, 1, 4, 5), torch.zeros(1, 3)])
def test_pictures_of_other_channels_are_not_scaled(pipe, data):
    with pytest.raises(hami.RequestError) as raised:
        model(pipe, **SCALED)({"data": data})
    assert message(raised) == (
        f'TorchModel: "input_mean" and "input_std" are for 3 channels, got a tensor of {list(data.shape)}'
    )


def test_one_tensor_is_scaled_and_no_other_form(pipe):
    with pytest.raises(hami.RequestError) as raised:
        model(pipe, **SCALED)({"data": [torch.zeros(1, 3, 4, 5)]})
    assert message(raised) == ('TorchModel: "input_mean", "input_std" and "input_scale" go with one tensor, got a list')


def test_out_of_memory_fails_the_batch_and_not_the_pipe(pipe):
    """It is not tried again request by request: that would run out of memory again."""
    alive = model(pipe, "OutOfMemory", max=8, batching="max")
    requests = [{"data": torch.full((1, 1), value)} for value in (1.0, 13.0, 2.0)]
    with pytest.raises(hami.BatchError) as raised:
        alive(requests)
    assert len(raised.value.errors) == 3
    error = raised.value.errors[0][1]
    assert isinstance(error, MemoryError)
    assert str(error).splitlines()[0] == (
        "TorchModel: out of memory on cpu: CUDA out of memory. Tried to allocate 20.00 GiB.; the batch failed and its "
        "memory was returned. Lower `max` or `instance_num`, or use a smaller dtype"
    )
    assert alive({"data": torch.ones(1, 1)})["result"].tolist() == [[1]]


def test_instances_and_pipes_share_one_module(pipe):
    from hami_torch import _program

    before = len(_program._open)
    first = model(pipe, "Scaled", instance_num=3)
    second = model(pipe, "Scaled")
    assert len(_program._open) == before + 1
    first.close()
    second.close()
    assert len(_program._open) == before


def test_a_shape_runs_the_model_at_the_start(pipe):
    model(pipe, row_shape=[2, 3])
    with pytest.raises(hami.ConfigError) as raised:
        pipe(
            "TorchModel",
            factory="torch.nn:Conv2d",
            arguments=["in_channels=3", "out_channels=1", "kernel_size=1"],
            row_shape=[2, 5, 5],
        )
    assert message(raised).startswith('TorchModel: the model does not take float32 [1, 2, 5, 5], as "row_shape" says: ')


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"graphs": [1, 2], "row_shape": [2]}, 'TorchModel: "graphs" needs a CUDA device'),
        ({"row_shape": ["x"]}, "TorchModel: \"row_shape\" is a list of whole numbers from 1 on, got ['x']"),
        ({"graphs": [0]}, 'TorchModel: "graphs" is a list of whole numbers from 1 on, got [0]'),
        ({"row_shape": [2], "row_dtype": "int"}, None),
        ({"row_shape": [2], "rows": 3}, None),
        (
            {"row_shape": [2], "rows": 0},
            'TorchModel: "rows" is a whole number from 1 on, beside "row_shape" and without "graphs", got 0',
        ),
        (
            {"rows": 2},
            'TorchModel: "rows" is a whole number from 1 on, beside "row_shape" and without "graphs", got 2',
        ),
        (
            {"row_shape": [3, 2, 2], "row_dtype": "int", **SCALED},
            'TorchModel: the input is scaled in float32, got "row_dtype" = "int"; leave that out',
        ),
        (
            {"row_shape": [1, 2, 2], **SCALED},
            'TorchModel: the model does not take float32 [1, 1, 2, 2], as "row_shape" says: TorchModel: '
            '"input_mean" and "input_std" are for 3 channels, got a tensor of [1, 1, 2, 2]',
        ),
        ({"input_std": [1, 0]}, 'TorchModel: "input_std" divides, so no value of it may be 0, got [1, 0]'),
        (
            {"input_mean": [1, 2], "input_std": [1, 2, 3]},
            'TorchModel: "input_mean" and "input_std" have one number per channel or one for all, '
            "got mean [1, 2] and std [1, 2, 3]",
        ),
        ({"row_shape": [2], "row_dtype": "int33"}, 'TorchModel: torch has no dtype "int33", given as "row_dtype"'),
    ],
)
def test_parameters_that_make_no_sense_are_refused(pipe, config, text):
    if text is None:
        assert model(pipe, **config)
        return
    with pytest.raises(hami.ConfigError) as raised:
        model(pipe, **config)
    assert message(raised) == text
