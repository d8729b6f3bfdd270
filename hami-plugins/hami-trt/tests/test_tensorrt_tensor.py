"""TensorrtTensor: batches, profiles, data and failures, with the fake library on the fake driver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import hami
import numpy as np
import pytest
from fake_tensorrt import serialized, tensor
from hami_build.testing import check_backend
from helpers import message

AS_WRITTEN = (
    "IoC[ModelLoadder[(.onnx)Onnx2Tensorrt,(.trt)LoadTensorrtEngine], TensorrtInferTensor; "
    "CatSplit[S[{first},CatTensor],S[ContiguousTensor,TensorrtInferTensor,ProxyFromParam[post_processor]],SplitTensor]]"
)
PROVIDERS = dict.fromkeys(("CatTensor", "ContiguousTensor", "FixTensor", "SplitTensor"), "hami-cuda")
NUMPY_ROWS = [[1, 2], [3, 4]]

TWO_INPUTS_AND_OUTPUTS = {
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


ALONE = "IoC[LoadTensorrtEngine,TensorrtInferTensor;S[GpuTensor,TensorrtInferTensor]]"


def rows(*values: float) -> np.ndarray:
    return np.array([[value] * 2 for value in values], np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_requests_run_together_and_each_gets_its_rows(pipe, engine):
    doubled = pipe("TensorrtTensor", model=engine(), batching="greedy")
    requests = doubled([{"data": rows(1)}, {"data": rows(2, 3), "request_size": 2}, {"data": rows(4)}])
    assert [request["result"][:, 0].tolist() for request in requests] == [[2], [4, 6], [8]]


def test_the_profile_limits_the_batch_size(pipe, engine):
    counted = pipe("TensorrtTensor", model=engine(**ROWS), batching="greedy", batched=True)
    requests = counted([{"data": rows(1)} for _ in range(6)])
    assert [request["result"].item() for request in requests] == [4, 4, 4, 4, 2, 2]


def test_max_of_the_node_can_lower_but_not_raise_that_of_the_profile(pipe, engine):
    counted = pipe("TensorrtTensor", model=engine(**ROWS), batching="greedy", max=2, batched=True)
    assert [request["result"].item() for request in counted([{"data": rows(1)} for _ in range(3)])] == [2, 2, 1]
    with pytest.raises(hami.ConfigError, match="max"):
        pipe("TensorrtTensor", model=engine(), max=5)


@pytest.mark.parametrize("providers", [{}, PROVIDERS])
@pytest.mark.parametrize("first", ["FixTensor", "GpuTensor"])
def test_the_expression_of_tensorrt_tensor_works_when_written_out(open_pipe, engine, first, providers):
    config = {"backend": AS_WRITTEN.format(first=first), "model": engine(), "batching": "greedy"}
    with open_pipe({"providers": providers, "node": config}) as pipe:
        requests = pipe([{"data": rows(1)}, {"data": rows(2)}])
    assert [request["result"].tolist() for request in requests] == [[[2, 2]], [[4, 4]]]


@pytest.mark.parametrize("providers", [{}, PROVIDERS])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_the_original_expression_takes_rows_of_other_dtypes_with_and_without_a_batch_axis(
    open_pipe, engine, dtype, providers
):
    config = {
        "backend": AS_WRITTEN.format(first="FixTensor"),
        "model": engine(**ROWS | {"tensors": {"x": tensor("INPUT"), "y": tensor("OUTPUT")}, "program": "double"}),
        "batching": "greedy",
    }
    data = np.array(NUMPY_ROWS, dtype)
    with open_pipe({"providers": providers, "node": config}) as pipe:
        requests = pipe([{"data": data}, {"data": data[0]}, {"data": data[1:]}])
        assert all("tensor_rows" not in request for request in requests)
        again = pipe({**requests[1], "data": data})  # the keys of an earlier call do not matter
    assert [request["result"].tolist() for request in requests] == [[[2, 4], [6, 8]], [2, 4], [[6, 8]]]
    assert again["result"].tolist() == [[2, 4], [6, 8]]


def test_fix_tensor_permutes_images_for_the_engine_and_refuses_what_cannot_fit(open_pipe, engine):
    images = {
        "tensors": {"x": tensor("INPUT", shape=(-1, 3, 4, 5)), "y": tensor("OUTPUT", shape=(-1, 3, 4, 5))},
        "profiles": [{"x": [(1, 3, 4, 5), (1, 3, 4, 5), (8, 3, 4, 5)]}],
    }
    config = {"backend": AS_WRITTEN.format(first="FixTensor"), "model": engine(**images)}
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    for providers in ({}, PROVIDERS):
        with open_pipe({"providers": providers, "node": config}) as pipe:
            result = pipe({"data": pixels})["result"]
            assert np.array_equal(hami.to_numpy(result), pixels.transpose(2, 0, 1) * 2.0)
            assert pipe({"data": pixels[None]})["result"].shape == (1, 3, 4, 5)
            for data, text in (
                (pixels[:, :4], "got uint8 [4, 4, 3]"),
                (pixels.astype(np.int64), "got int64 [4, 5, 3]; a cast from int64 would lose values"),
            ):
                with pytest.raises(hami.Error) as raised:
                    pipe({"data": data})
                assert message(raised) == (f'FixTensor takes float32 [-1, 3, 4, 5] for input "x" of the engine, {text}')


def test_tensorrt_tensor_converts_without_loss_only(pipe, engine):
    doubled = pipe("TensorrtTensor", model=engine())
    assert doubled({"data": rows(1).astype(np.float16)})["result"].tolist() == [[2, 2]]
    with pytest.raises(hami.DataTypeError) as raised:
        doubled({"data": rows(1).astype(np.float64)})
    assert message(raised) == (
        'FixTensor takes float32 [-1, 2] for input "x" of the engine, got float64 [1, 2]; a cast from float64 would '
        "lose values"
    )


def test_arrays_are_accepted(pipe, engine):
    result = pipe("TensorrtTensor", model=engine())({"data": np.ones((1, 2), np.float32)})["result"]
    assert result.tolist() == [[2, 2]]


def test_inputs_are_the_keys_of_their_names_without_data_or_by_the_key_inputs(pipe, engine):
    model = engine(**TWO_INPUTS_AND_OUTPUTS)
    by_key = pipe("TensorrtTensor", model=model, batching="greedy")
    first, second = by_key([{"b": rows(1), "a": rows(5)}, {"data": {"b": rows(2), "a": rows(7)}}])
    assert [each["result"]["sum"][:, 0].tolist() for each in (first, second)] == [[6], [9]]
    chosen = pipe("TensorrtTensor", model=model, inputs=["b", "a"])
    assert chosen({"data": 0, "a": rows(5)[0], "b": rows(1)[0]})["result"]["sum"].tolist() == [6, 6]
    for request, text in (
        ({"a": rows(5)}, 'the model has the inputs ["a", "b"], of which the request lacks ["b"]; its keys are ["a"]'),
        ({"x": 0}, 'the request has no key "data", and none of the model\'s inputs ["a", "b"]; its keys are ["x"]'),
    ):
        with pytest.raises(hami.RequestError) as raised:
            by_key(request)
        assert message(raised) == f"FixTensor: {text}"
    with pytest.raises(
        hami.ConfigError, match=r'"inputs" must name all inputs of the model, \["a", "b"\]; got \["a"\]'
    ):
        pipe("TensorrtTensor", model=model, inputs=["a"])


def test_several_inputs_and_outputs_have_names(pipe, engine):
    model = pipe("TensorrtTensor", model=engine(**TWO_INPUTS_AND_OUTPUTS), batching="greedy")
    first, second = model(
        [{"data": {"b": rows(1), "a": rows(5)}}, {"data": {"b": rows(2, 3), "a": rows(7, 8)}, "request_size": 2}]
    )
    assert {name: part[:, 0].tolist() for name, part in first["result"].items()} == {"sum": [6], "difference": [4]}
    assert {name: part[:, 0].tolist() for name, part in second["result"].items()} == {
        "sum": [9, 11],
        "difference": [5, 5],
    }


def test_without_data_the_inputs_are_keys_and_so_are_the_outputs(pipe, engine, on_device):
    graph = "IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]"
    model = pipe(graph, model=engine(**TWO_INPUTS_AND_OUTPUTS))
    with pytest.raises(hami.RequestError, match=r'the inputs \["a", "b"\], of which the request lacks \["b"\]'):
        model({"a": rows(5)})
    found = model({"a": on_device(rows(5)), "b": on_device(rows(1))})
    assert sorted(found) == ["a", "b", "difference", "result", "sum"]
    assert {name: part.tolist() for name, part in found["result"].items()} == {"sum": [[6, 6]], "difference": [[4, 4]]}


def test_several_inputs_can_be_a_list_in_their_order(pipe, engine):
    result = pipe("TensorrtTensor", model=engine(**TWO_INPUTS_AND_OUTPUTS))({"data": [rows(5), rows(1)]})["result"]
    assert result["difference"].tolist() == [[4, 4]]


def test_max_is_limited_by_every_input(pipe, engine):
    with pytest.raises(hami.ConfigError, match="max"):
        pipe("TensorrtTensor", model=engine(**TWO_INPUTS_AND_OUTPUTS), max=4)
    assert pipe("TensorrtTensor", model=engine(**TWO_INPUTS_AND_OUTPUTS), max=3)


def test_the_post_processor_sees_the_whole_batch(pipe, engine):
    seen = []

    @hami.register
    class SeesShapes(hami.Backend):
        def forward(self, batch):
            for item in batch:
                seen.append((item["data"].device, item["data"].shape))
                item["result"] = item["data"]

    processed = pipe("TensorrtTensor(post_processor=SeesShapes)", model=engine(), batching="greedy")
    requests = processed([{"data": rows(1)}, {"data": rows(2)}])
    assert [request["result"].tolist() for request in requests] == [[[2, 2]], [[4, 4]]]
    assert seen == [("cuda:0", (2, 2))]


def test_two_instances_share_the_engine_and_have_separate_contexts(pipe, engine, fake):
    doubled = pipe("SyncTensor[TensorrtTensor]", model=engine(), instance_num=2)
    assert (len(fake.engines), len(fake.contexts)) == (1, 2)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda value: doubled({"data": rows(value)})["result"][0, 0].item(), range(200)))
    assert results == [2 * value for value in range(200)]


def test_a_context_never_runs_two_batches_at_a_time(pipe, engine):
    """The fake records it as misuse."""
    doubled = pipe("TensorrtTensor", model=engine(), entrypoint="Forward[default.0]")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda value: doubled({"data": rows(value)}), range(200)))


SMALL_AND_LARGE = {**ROWS, "profiles": [{"x": [(1, 2), (1, 2), (2, 2)]}, {"x": [(3, 2), (8, 2), (8, 2)]}]}


def test_each_instance_has_its_own_profile(pipe, engine, fake):
    model = engine(**SMALL_AND_LARGE)
    counted = pipe("TensorrtTensor", model=model, instance_num=2, batching="greedy", batched=True)
    assert [request["result"].item() for request in counted([{"data": rows(1)} for _ in range(8)])] == [8] * 8
    assert counted({"data": rows(1)})["result"].item() == 1
    assert sorted(context._profile for context in fake.contexts) == [0, 1]


def test_instances_without_a_profile_share_the_first_one(pipe, engine, fake):
    pipe("TensorrtTensor", model=engine(**SMALL_AND_LARGE), instance_num=3)
    assert sorted(context._profile for context in fake.contexts) == [0, 0, 1]


def test_a_missing_profile_is_an_error_if_profiles_cannot_be_shared(pipe, engine, fake):
    fake.shares_profiles = False
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model=engine(), instance_num=2)
    assert message(raised) == (
        "TensorrtInferTensor: instance 1 cannot use profile 0 of the engine, which was built for instance_num = 1: "
        "Profile 0 has been chosen for another IExecutionContext.; build it for more instances, or set "
        "instance_num = 1"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (zeros(1, 3), 'FixTensor takes float32 [-1, 2] for input "x" of the engine, got float32 [1, 3]'),
        (zeros(1, 2, 1), 'FixTensor takes float32 [-1, 2] for input "x" of the engine, got float32 [1, 2, 1]'),
        (zeros(5, 2), 'TensorrtInferTensor: input "x" expects float32 [1..4, 2], got float32 [5, 2]'),
        ({"z": rows(1)}, "FixTensor: the engine has the inputs [x], got "),
        ([rows(1), rows(1)], "FixTensor: the engine has the inputs [x], got "),
    ],
)
def test_data_outside_the_profile_is_rejected(pipe, engine, data, expected):
    doubled = pipe("TensorrtTensor", model=engine())
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": data})
    assert message(raised).startswith(expected)
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_data_outside_the_profile_does_not_fail_its_batch(pipe, engine):
    requests = [{"data": rows(1)}, {"data": zeros(1, 3)}, {"data": rows(2)}]
    with pytest.raises(hami.BatchError) as raised:
        pipe("TensorrtTensor", model=engine(), batching="greedy")(requests)
    assert [index for index, _ in raised.value.errors] == [1]
    assert [requests[index]["result"].tolist() for index in (0, 2)] == [[[2, 2]], [[4, 4]]]


def test_more_rows_than_max_are_rejected(pipe, engine):
    with pytest.raises(hami.RequestError, match='request_size is 5; node "default" takes at most 4'):
        pipe("TensorrtTensor", model=engine())({"data": rows(1, 2, 3, 4, 5), "request_size": 5})


def test_rows_that_differ_from_request_size_are_rejected(pipe, engine):
    runner = pipe(ALONE, model=engine())
    with pytest.raises(hami.RequestError) as raised:
        runner({"data": rows(1, 2)})
    assert message(raised) == (
        'TensorrtInferTensor: "x" is float32 [2, 2], but request_size is 1; axis 0 must have request_size rows'
    )


def test_an_engine_without_a_batch_axis_runs_one_request_at_a_time(pipe, engine):
    """Axis 0 of input and output differ, so axis 0 is not a batch axis."""
    model = engine(
        tensors={"x": tensor("INPUT", shape=(3, 2)), "y": tensor("OUTPUT", shape=(3, 1))},
        profiles=[{"x": [(3, 2)] * 3}],
        program="rows",
    )
    expression = ALONE
    with_batch = pipe(expression, model=model)
    assert with_batch({"data": zeros(3, 2), "request_size": 3})["result"].tolist() == [[3], [3], [3]]
    without = engine(
        tensors={"x": tensor("INPUT", shape=(3, 2)), "y": tensor("OUTPUT", shape=(2, 3))},
        profiles=[{"x": [(3, 2)] * 3}],
        program="transposed",
    )
    transposed = pipe(expression, model=without)
    assert transposed({"data": np.arange(6, dtype=np.float32).reshape(3, 2)})["result"].tolist() == [
        [0, 2, 4],
        [1, 3, 5],
    ]


def test_a_tensor_elsewhere_is_rejected_with_a_remedy(pipe, engine, on_device, monkeypatch):
    runner = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    other = pipe("GpuTensor(device=cuda:1)")._pipe({"data": rows(1)})["result"]
    for data, place in ((rows(1), "the CPU"), (other, "cuda:1")):
        with pytest.raises(hami.DataTypeError) as raised:
            runner({"data": data})
        assert message(raised) == (
            f"TensorrtInferTensor takes a tensor on cuda:0, got one on {place}; put GpuTensor before it"
        )
    with pytest.raises(hami.DataTypeError) as raised:
        runner({"data": "text"})
    assert message(raised) == ("TensorrtInferTensor takes a tensor on cuda:0, or another object with DLPack, got str")


def test_unaligned_and_strided_input_is_copied(pipe, engine, on_device):
    """The fake records unaligned addresses as misuse, and reads memory as contiguous."""
    runner = pipe("IoC[LoadTensorrtEngine,TensorrtInferTensor;TensorrtInferTensor]", model=engine())
    many = on_device(np.arange(8, dtype=np.float32).reshape(4, 2))
    assert runner({"data": many[1:2]})["result"].tolist() == [[4, 6]]
    wide = on_device(np.arange(16, dtype=np.float32).reshape(4, 4))
    assert runner({"data": wide[1:2, ::2]})["result"].tolist() == [[8, 12]]
    assert runner({"data": wide[2:3, 1:3]})["result"].tolist() == [[18, 20]]


def test_out_of_memory_fails_the_batch_and_not_the_pipe(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine(), batching="greedy")
    fake.failures["execute_async_v3"] = (
        "[defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)"
    )
    requests = [{"data": rows(1)}, {"data": rows(2)}]
    with pytest.raises(hami.BatchError) as raised:
        doubled(requests)
    errors = [error for _, error in raised.value.errors]
    assert [type(error) for error in errors] == [MemoryError, MemoryError]
    assert str(errors[0]).splitlines()[0] == (
        "TensorrtInferTensor: out of memory on cuda:0: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime "
        "(out of memory); the batch failed and its memory was freed. Lower `max` or `instance_num`, or use a "
        "smaller dtype"
    )
    fake.failures.clear()
    assert doubled({"data": rows(3)})["result"].tolist() == [[6, 6]]


def test_a_failed_run_has_the_reason_and_does_not_stop_the_pipe(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    fake.failures["execute_async_v3"] = "Error Code 7: Internal Error (something inside)"
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": rows(1)})
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 failed to run the engine on float32 [1, 2]: "
        "Error Code 7: Internal Error (something inside)"
    )
    fake.failures.clear()
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_a_rejected_address_fails_the_batch_with_the_reason(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]
    fake.failures["set_tensor_address"] = "Error Code 3: API Usage Error (invalid address)"
    with pytest.raises(hami.RequestError, match="invalid address"):
        doubled({"data": rows(2)})


def test_tensors_without_elements_get_a_valid_address(pipe, engine):
    """Other packages give them a null address, which TensorRT rejects."""
    model = engine(
        tensors={"x": tensor("INPUT", shape=(-1, -1)), "y": tensor("OUTPUT", shape=(-1, -1))},
        profiles=[{"x": [(1, 0), (2, 2), (4, 4)]}],
    )
    doubled = pipe("TensorrtTensor", model=model)
    assert doubled({"data": zeros(2, 0), "request_size": 2})["result"].shape == (2, 0)
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_rejected_shapes_fail_the_request_and_not_the_next_one(pipe, engine, fake):
    doubled = pipe("TensorrtTensor", model=engine())
    fake.failures["infer_shapes"] = "broadcast dimensions must be conformable"
    with pytest.raises(hami.RequestError) as raised:
        doubled({"data": rows(1)})
    assert message(raised) == (
        "TensorrtInferTensor: tensorrt 10.9.0 rejects the input shapes [(1, 2)]: "
        "broadcast dimensions must be conformable"
    )
    fake.failures.clear()
    assert doubled({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_contexts_are_freed_before_the_engine_and_nothing_is_leaked(pipe, engine, fake):
    """The fake records an engine that is freed too early as misuse."""
    model = engine()
    for _ in range(200):
        opened = pipe("SyncTensor[TensorrtTensor]", model=model, instance_num=2)
        assert opened({"data": rows(1)})["result"].tolist() == [[2, 2]]
        opened.close()
        assert (len(fake.contexts), len(fake.engines)) == (0, 0)


def test_pipes_share_an_engine_with_the_same_content(pipe, engine, fake):
    first = pipe("TensorrtTensor", model=engine("a.trt"))
    pipe("TensorrtTensor", model=engine("b.trt"))
    assert (len(fake.engines), len(fake.contexts)) == (1, 2)
    first.close()
    assert (len(fake.engines), len(fake.contexts)) == (1, 1)


def test_the_backends_pass_the_checks_of_hami_testing(engine):
    config = {"model": str(engine()), "max": 4}
    check_backend("TensorrtTensor", config, {"data": rows(1)})
    check_backend("SyncTensor[TensorrtTensor]", config, {"data": rows(1)})


def test_engine_files_can_have_other_suffixes(pipe, engine):
    for name in ("model.engine", "model.plan"):
        assert pipe("TensorrtTensor", model=engine(name))({"data": rows(1)})["result"].tolist() == [[2, 2]]


def test_a_truncated_engine_is_rejected(pipe, tmp_path, fake):
    path = tmp_path / "model.trt"
    path.write_bytes(serialized()[:-5])
    with pytest.raises(hami.ConfigError) as raised:
        pipe("TensorrtTensor", model=path)
    assert "Serialization assertion plan.header.size == blobSize failed." in message(raised)


def test_the_model_can_be_set_in_the_expression(pipe, engine):
    path = engine()
    assert pipe(f"TensorrtTensor(model='{path}')")({"data": rows(1)})["result"].tolist() == [[2, 2]]
