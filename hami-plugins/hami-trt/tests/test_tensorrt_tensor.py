"""TensorrtTensor: engines run on what callers bring; by the fake of the library on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import hami.testing
import numpy as np
import pytest
import torch
from fake_tensorrt import serialized, tensor
from helpers import message

AS_WRITTEN = (
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[{first},CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]"
)
OURS = dict.fromkeys(("CatTensor", "ContiguousTensor", "FixTensor", "SplitTensor"), "hami-torch")

TWO_AND_TWO = {
    "tensors": {
        "a": tensor("INPUT"),
        "b": tensor("INPUT"),
        "sum": tensor("OUTPUT"),
        "difference": tensor("OUTPUT"),
    },
    "profiles": [{"a": [(1, 2), (2, 2), (4, 2)], "b": [(1, 2), (2, 2), (3, 2)]}],
    "program": "sum and difference",
}
ROWS = {"tensors": {"x": tensor("INPUT"), "y": tensor("OUTPUT", shape=(-1, 1))}, "program": "rows"}


def rows(*values: float) -> torch.Tensor:
    return torch.tensor([[float(value)] * 2 for value in values])


def test_requests_run_together_and_each_gets_its_rows(pipe, engine):
    doubled = pipe("TensorrtTensor", model=engine(), batching="max")
    requests = doubled([{"data": rows(1)}, {"data": rows(2, 3), "request_size": 2}, {"data": rows(4)}])
    assert [request["result"][:, 0].tolist() for request in requests] == [[2], [4, 6], [8]]


def test_a_batch_is_as_large_as_the_profile_lets_it(pipe, engine):
    counted = pipe("TensorrtTensor", model=engine(**ROWS), batching="max")
    requests = counted([{"data": rows(1)} for _ in range(6)])
    assert [request["result"].item() for request in requests] == [4, 4, 4, 4, 2, 2]


def test_max_of_the_node_lowers_that_of_the_profile_and_never_raises_it(pipe, engine):
    counted = pipe("TensorrtTensor", model=engine(**ROWS), batching="max", max=2)
    assert [request["result"].item() for request in counted([{"data": rows(1)} for _ in range(3)])] == [2, 2, 1]
    with pytest.raises(hami.ConfigError, match="max"):
        pipe("TensorrtTensor", model=engine(), max=5)


@pytest.mark.parametrize("first", ["FixTensor", "GpuTensor"])
def test_the_expression_that_it_stands_for_works_as_written(engine, first):
    config = {"backend": AS_WRITTEN.format(first=first), "model": engine(), "device": "cpu", "batching": "max"}
    with hami.pipe({"providers": OURS, "node": config}) as pipe:
        requests = pipe([{"data": rows(1)}, {"data": rows(2)}])
    assert [request["result"].tolist() for request in requests] == [[[2, 2]], [[4, 4]]]


def test_arrays_are_taken_too(pipe, engine):
    result = pipe("TensorrtTensor", model=engine())({"data": np.ones((1, 2), np.float32)})["result"]
    assert result.tolist() == [[2, 2]]


def test_several_inputs_and_outputs_go_by_name(pipe, engine):
    model = pipe("TensorrtTensor", model=engine(**TWO_AND_TWO), batching="max")
    first, second = model(
        [{"data": {"b": rows(1), "a": rows(5)}}, {"data": {"b": rows(2, 3), "a": rows(7, 8)}, "request_size": 2}]
    )
    assert {name: part[:, 0].tolist() for name, part in first["result"].items()} == {"sum": [6], "difference": [4]}
    assert {name: part[:, 0].tolist() for name, part in second["result"].items()} == {
        "sum": [9, 11],
        "difference": [5, 5],
    }


def test_several_inputs_may_come_as_a_list_in_their_order(pipe, engine):
    result = pipe("TensorrtTensor", model=engine(**TWO_AND_TWO))({"data": [rows(5), rows(1)]})["result"]
    assert result["difference"].tolist() == [[4, 4]]


def test_the_range_is_what_all_inputs_allow(pipe, engine):
    with pytest.raises(hami.ConfigError, match="max"):
        pipe("TensorrtTensor", model=engine(**TWO_AND_TWO), max=4)
    assert pipe("TensorrtTensor", model=engine(**TWO_AND_TWO), max=3)


def test_the_post_processor_sees_the_whole_batch(pipe, engine):
    @hami.register
    class Total(hami.Backend):
        def forward(self, batch):
            for item in batch:
                item["result"] = item["data"] + item["data"].sum()

    summed = pipe("TensorrtTensor(post_processor=Total)", model=engine(), batching="max")
    requests = summed([{"data": rows(1)}, {"data": rows(2)}])
    assert [request["result"].tolist() for request in requests] == [[[14, 14]], [[16, 16]]]


def test_two_instances_share_the_engine_and_have_a_context_each(pipe, engine, fake):
    doubled = pipe("SyncTensor[TensorrtTensor]", model=engine(), instance_num=2)
    assert (len(fake.engines), len(fake.contexts)) == (1, 2)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda value: doubled({"data": rows(value)})["result"][0, 0].item(), range(200)))
    assert results == [2 * value for value in range(200)]


def test_one_context_never_runs_twice_at_once(pipe, engine):
    """The fake notes it if it did."""
    doubled = pipe("TensorrtTensor", model=engine(), entrypoint="Forward[default.0]")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda value: doubled({"data": rows(value)}), range(200)))


SMALL_AND_LARGE = {**ROWS, "profiles": [{"x": [(1, 2), (1, 2), (2, 2)]}, {"x": [(3, 2), (8, 2), (8, 2)]}]}


def test_instances_have_profiles_of_their_own(pipe, engine, fake):
    counted = pipe("TensorrtTensor", model=engine(**SMALL_AND_LARGE), instance_num=2, batching="max")
    assert [request["result"].item() for request in counted([{"data": rows(1)} for _ in range(8)])] == [8] * 8
    assert counted({"data": rows(1)})["result"].item() == 1
    assert sorted(context._profile for context in fake.contexts) == [0, 1]


def test_more_instances_than_profiles_share_the_first_where_the_library_lets_them(pipe, engine, fake):
    pipe("TensorrtTensor", model=engine(**SMALL_AND_LARGE), instance_num=3)
    assert sorted(context._profile for context in fake.contexts) == [0, 0, 1]


def test_a_profile_that_is_missing_is_named_where_it_cannot_be_shared(pipe, engine, fake):
    fake.shares_profiles = False
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model=engine(), instance_num=2)
    assert message(raised) == (
        "TensorrtInferTensor: instance 1 cannot have profile 0 of the engine, which was built for instance_num = 1: "
        "Profile 0 has been chosen for another IExecutionContext.; build it for more, or set instance_num = 1"
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (rows(1).half(), 'input "x" takes float32 [1..4, 2], got float16 [1, 2]'),
        (torch.zeros(1, 3), 'input "x" takes float32 [1..4, 2], got float32 [1, 3]'),
        (torch.zeros(1, 2, 1), 'input "x" takes float32 [1..4, 2], got float32 [1, 2, 1]'),
        ({"z": rows(1)}, "the inputs are ['x'], got ['z']"),
        ([rows(1), rows(1)], "the inputs are ['x'], got ['data[0]', 'data[1]']"),
    ],
)
def test_what_does_not_fit_the_profile_is_refused_with_both(pipe, engine, data, told):
    doubled = pipe("TensorrtTensor", model=engine())
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": data})
    assert message(raised) == f"TensorrtInferTensor: {told}"
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_what_does_not_fit_fails_alone(pipe, engine):
    requests = [{"data": rows(1)}, {"data": torch.zeros(1, 3)}, {"data": rows(2)}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("TensorrtTensor", model=engine(), batching="max")(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert [requests[index]["result"].tolist() for index in (0, 2)] == [[[2, 2]], [[4, 4]]]


def test_more_rows_than_a_batch_may_have_are_refused(pipe, engine):
    with pytest.raises(hami.RequestError, match='request_size is 5; node "default" takes at most 4'):
        pipe("TensorrtTensor", model=engine())({"data": rows(1, 2, 3, 4, 5), "request_size": 5})


def test_rows_that_request_size_does_not_tell_are_refused(pipe, engine):
    alone = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    with pytest.raises(hami.RequestError) as raised:
        alone({"data": rows(1, 2)})
    assert message(raised) == (
        'TensorrtInferTensor: "x" is float32 [2, 2], but request_size is 1; axis 0 must have request_size rows'
    )


def test_an_engine_without_a_batch_takes_one_request_at_a_time(pipe, engine):
    """Its axis 0 is no batch: input and output have other sizes there."""
    model = engine(
        tensors={"x": tensor("INPUT", shape=(3, 2)), "y": tensor("OUTPUT", shape=(3, 1))},
        profiles=[{"x": [(3, 2)] * 3}],
        program="rows",
    )
    alone = "IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]"
    with_batch = pipe(alone, model=model)
    assert with_batch({"data": torch.zeros(3, 2), "request_size": 3})["result"].tolist() == [[3], [3], [3]]
    without = engine(
        tensors={"x": tensor("INPUT", shape=(3, 2)), "y": tensor("OUTPUT", shape=(2, 3))},
        profiles=[{"x": [(3, 2)] * 3}],
        program="turned",
    )
    turned = pipe(alone, model=without)
    assert turned({"data": torch.arange(6.0).reshape(3, 2)})["result"].tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_tensor_on_another_device_is_refused_and_told_where_to_go(pipe, engine):
    """torch's device without memory stands in for the other one here; tests/gpu has the real ones."""
    alone = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    with pytest.raises(hami.DataTypeError) as raised:
        alone({"data": torch.zeros(1, 2, device="meta")})
    assert message(raised) == (
        "TensorrtInferTensor takes a tensor on cpu, got float32 [1, 2] on meta; put CpuTensor before it"
    )


def test_input_that_the_library_cannot_read_where_it_lies_is_copied(pipe, engine):
    """The fake notes addresses that are not aligned, and reads memory as if it had no gaps."""
    alone = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    many = torch.arange(8.0).reshape(4, 2)
    assert alone({"data": many[1:2]})["result"].tolist() == [[4, 6]]
    assert alone({"data": many.T[:, :2].T[:1]})["result"].tolist() == [[0, 2]]
    assert alone({"data": torch.arange(4.0).reshape(2, 2).T[:1]})["result"].tolist() == [[0, 4]]


def test_out_of_memory_fails_the_batch_and_not_the_pipe(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine(), batching="max")
    fake.refuse["execute_async_v3"] = "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)"
    requests = [{"data": rows(1)}, {"data": rows(2)}]
    with pytest.raises(hami.BatchError) as raised:
        doubled(requests)
    errors = [error for _, error in raised.value.errors]
    assert [type(error) for error in errors] == [MemoryError, MemoryError]
    assert str(errors[0]).splitlines()[0] == (
        "TensorrtInferTensor: out of memory on cpu: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime "
        "(out of memory); the batch failed and its memory was freed. Lower `max` or `instance_num`, or use a "
        "smaller dtype"
    )
    fake.refuse.clear()
    assert doubled({"data": rows(3)})["result"].tolist() == [[6, 6]]


def test_a_run_that_fails_says_why_and_the_next_one_runs(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    fake.refuse["execute_async_v3"] = "Error Code 7: Internal Error (something inside)"
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": rows(1)})
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 could not run the engine on float32 [1, 2]: "
        "Error Code 7: Internal Error (something inside)"
    )
    fake.refuse.clear()
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_an_address_that_is_refused_fails_the_batch_with_the_reason(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]
    fake.refuse["set_tensor_address"] = "Error Code 3: API Usage Error (the address is not one)"
    with pytest.raises(hami.RequestError, match="the address is not one"):
        doubled({"data": rows(2)})


def test_tensors_without_elements_have_an_address_too(pipe, engine):
    """torch gives them none, and TensorRT runs nothing while one is null."""
    model = engine(
        tensors={"x": tensor("INPUT", shape=(-1, -1)), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 0), (2, 2), (4, 4)]}],
    )
    doubled = pipe("TensorrtTensor", model=model)
    assert doubled({"data": torch.empty(2, 0), "request_size": 2})["result"].shape == (2, 0)
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_shapes_that_lead_nowhere_fail_their_request_and_are_told_again_for_the_next(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    fake.refuse["infer_shapes"] = "broadcast dimensions must be conformable"
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": rows(1)})
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 cannot work with inputs of [(1, 2)]: "
        "broadcast dimensions must be conformable"
    )
    fake.refuse.clear()
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_contexts_are_freed_before_the_engine_and_nothing_is_left(pipe, engine, fake):
    """The fake notes an engine that is freed too early."""
    model = engine()
    for _ in range(200):
        opened = pipe("SyncTensor[TensorrtTensor]", model=model, instance_num=2)
        assert opened({"data": rows(1)})["result"].tolist() == [[2, 2]]
        opened.close()
        assert (len(fake.contexts), len(fake.engines)) == (0, 0)


def test_pipes_share_an_engine_of_the_same_bytes(pipe, engine, fake):
    first = pipe("TensorrtTensor", model=engine("a.trt"))
    pipe("TensorrtTensor", model=engine("b.trt"))
    assert (len(fake.engines), len(fake.contexts)) == (1, 2)
    first.close()
    assert (len(fake.engines), len(fake.contexts)) == (1, 1)


def test_the_backends_keep_the_rules_of_any_pipe(engine):
    config = {"device": "cpu", "model": str(engine()), "max": 4}
    hami.testing.check_backend("TensorrtTensor", config, {"data": rows(1)})
    hami.testing.check_backend("SyncTensor[TensorrtTensor]", config, {"data": rows(1)})


def test_engines_of_other_suffixes_are_engines(pipe, engine):
    for name in ("model.engine", "model.plan"):
        assert pipe("TensorrtTensor", model=engine(name))({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_bytes_of_an_engine_that_were_cut_off_are_refused(pipe, tmp_path, fake):
    path = tmp_path / "model.trt"
    path.write_bytes(serialized()[:-5])
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model=path)
    assert "Serialization assertion plan.header.size == blobSize failed." in message(raised)


def test_the_model_may_be_said_where_the_name_is_used(pipe, engine):
    path = engine()
    assert pipe(f"TensorrtTensor(model='{path}')")({"data": rows(1)})["result"].tolist() == [[2, 2]]
