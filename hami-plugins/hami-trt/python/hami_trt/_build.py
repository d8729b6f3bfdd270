"""Builds a serialized engine from an ONNX model: parse, add mean and std, configure, build."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import hami
import numpy as np
import numpy.typing as npt

from hami_trt._build_options import BuildOptions
from hami_trt._progress import show_progress
from hami_trt._shapes import Input, ShapeRange, profile_shapes
from hami_trt._tensorrt import first_error
from hami_trt._timing_cache import TimingCache

_DATA_TYPES = {"fp16": "HALF", "bf16": "BF16"}  # members of the library's DataType
_MAX_SHOWN_ERRORS = 3  # errors of the ONNX parser in one message


def build(options: BuildOptions) -> tuple[bytes, dict[str, ShapeRange]]:
    """Return the serialized engine and the shapes of its optimization profiles, by input name.

    Raises:
        hami.ConfigError: the engine cannot be built; the message starts with the owner of the options.
    """
    library = options.library
    with _on_device(options), library.collect_errors() as errors:
        try:
            builder = library.module.Builder(library.logger)
        except TypeError:  # the bindings raise it when the library returns no builder
            raise hami.ConfigError(
                f"{options.owner}: {library} cannot build engines on this machine: {first_error(errors)}"
            ) from None
        network = library.new_network(builder, options.precision)
        _parse(network, options)
        shapes = _profile_shapes(network, options)
        config = _builder_config(builder, shapes, options)
        constants = _add_normalization(network, config, options)
        _check_precision(network, options)
        timing_cache = TimingCache(options)
        timing_cache.load_into(config)
        with show_progress(f"building {options.model.name}", library, config) as progress:
            if options.init_event is not None:
                options.init_event.add_done_callback(lambda _: progress.cancelled.set())
            engine = progress.run(lambda: _serialized(builder, network, config, options))
        timing_cache.save_from(config)
        del constants  # the library reads their memory until the build has ended
        return engine, shapes


def _on_device(options: BuildOptions) -> AbstractContextManager[Any]:
    """Make the device current on this thread, because the library builds for the current device."""
    if options.device is None:
        return nullcontext()
    from hami_cuda.device import as_current

    return as_current(options.device)


def _serialized(builder: Any, network: Any, config: Any, options: BuildOptions) -> bytes:
    with _on_device(options), options.library.collect_errors() as errors:
        engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise hami.ConfigError(
            f'{options.owner}: {options.library} cannot build "{options.model}": {first_error(errors)}'
        )
    return bytes(engine)


def _parse(network: Any, options: BuildOptions) -> None:
    parser = options.library.module.OnnxParser(network, options.library.logger)
    if options.version_compatible or options.hardware_compatible:
        options.library.parse_without_plugins(parser)
    parsed = parser.parse_from_file(str(options.model))
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if parsed and not errors and network.num_outputs:
        return
    size = options.model.stat().st_size
    subject = f'{options.owner}: {options.library} cannot read "{options.model}" ({size} bytes)'
    shown = [_describe_error(error, options) for error in errors[:_MAX_SHOWN_ERRORS]]
    if len(errors) > _MAX_SHOWN_ERRORS:
        shown.append(f"and {len(errors) - _MAX_SHOWN_ERRORS} more")
    raise hami.ConfigError(f"{subject}: {'; '.join(shown) or 'it is truncated or is not an ONNX model'}")


def _describe_error(error: Any, options: BuildOptions) -> str:
    operator, name = options.library.node_of_error(error)
    code = getattr(error.code(), "name", str(error.code()))
    if error.node() < 0 and not operator:
        return f"{error.desc()} ({code})"
    node = f'node "{name}"' if name else "an unnamed node"
    subject = f"operator {operator or '?'} of {node} (number {error.node()})"
    if code == "UNSUPPORTED_NODE" or "Plugin not found" in error.desc():
        return f"{subject} is not supported ({code})"
    return f"{subject}: {error.desc()} ({code})"


def _profile_shapes(network: Any, options: BuildOptions) -> dict[str, ShapeRange]:
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    for tensor in tensors:
        if tensor.is_shape_tensor:
            raise hami.ConfigError(
                f'{options.owner}: the values of input "{tensor.name}" determine shapes inside the model, which an '
                "optimization profile cannot describe; export the model with these values fixed"
            )
    inputs = [Input(tensor.name, tuple(tensor.shape)) for tensor in tensors]
    return profile_shapes(inputs, options.max, options.min, options.opt, options.owner)


def _builder_config(builder: Any, shapes: dict[str, ShapeRange], options: BuildOptions) -> Any:
    library, module = options.library, options.library.module
    config = builder.create_builder_config()
    for _ in range(options.profiles):
        profile = builder.create_optimization_profile()
        for name, each in shapes.items():
            profile.set_shape(name, each.min, each.opt, each.max)
        config.add_optimization_profile(profile)
    library.share_profiles(config)
    library.set_precision(config, options.precision)
    if options.workspace is not None:
        config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, options.workspace)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.version_compatible:
        config.set_flag(module.BuilderFlag.VERSION_COMPATIBLE)
    if options.hardware_compatible is not None:
        library.set_hardware_compatible(config, options.hardware_compatible, options.owner)
    if options.compute_capability:
        library.set_compute_capabilities(config, options.compute_capability)
    return config


def _check_precision(network: Any, options: BuildOptions) -> None:
    """Reject a precision that this build cannot use, instead of ignoring it."""
    module, precision = options.library.module, options.precision
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    if precision == "int8":
        quantization = (module.LayerType.QUANTIZE, module.LayerType.DEQUANTIZE)
        if not any(layer.type in quantization for layer in layers):
            raise hami.ConfigError(
                f'{options.owner}: precision "int8" needs a model with QuantizeLinear and DequantizeLinear nodes, '
                f'"{options.model}" has none; quantize it first'
            )
    elif precision in _DATA_TYPES and not options.library.has_precision_flag(precision):
        dtype = getattr(module.DataType, _DATA_TYPES[precision])
        if not any(layer.get_output(index).dtype == dtype for layer in layers for index in range(layer.num_outputs)):
            raise hami.ConfigError(
                f'{options.owner}: {options.library} computes in the types of the model, and "{options.model}" has '
                f"no {precision} layers; export it in {precision} and leave out `precision`"
            )


def _add_normalization(network: Any, config: Any, options: BuildOptions) -> list[npt.NDArray[np.float32]]:
    """Insert (x - mean) / std, computed in fp32, behind the input that has the channels. Return the constants."""
    constants: list[npt.NDArray[np.float32]] = []
    if not options.mean and not options.std:
        return constants
    channels = max(len(options.mean), len(options.std))
    module = options.library.module
    floating = (module.DataType.FLOAT, module.DataType.HALF, module.DataType.BF16)
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    matching = [x for x in inputs if x.dtype in floating and len(x.shape) >= 2 and channels in (1, x.shape[1])]
    if len(matching) != 1:
        shown = ", ".join(f'"{x.name}" {tuple(x.shape)}' for x in inputs)
        raise hami.ConfigError(
            f'{options.owner}: "mean" and "std" need exactly one floating point input with as many channels (axis 1) '
            f"as they have values, got {channels} values and {len(matching)} matching inputs of {shown}"
        )
    (x,) = matching
    readers = [network.get_layer(index) for index in range(network.num_layers)]
    value = x if x.dtype == module.DataType.FLOAT else network.add_cast(x, module.DataType.FLOAT).get_output(0)
    steps = ((options.mean, module.ElementWiseOperation.SUB), (options.std, module.ElementWiseOperation.DIV))
    for numbers, operation in steps:
        if numbers:
            shape = (1, len(numbers), *(1 for _ in x.shape[2:]))
            constants.append(np.array(numbers, np.float32).reshape(shape))
            operand = network.add_constant(shape, constants[-1]).get_output(0)
            layer = network.add_elementwise(value, operand, operation)
            if options.library.chooses_layer_types(options.precision):
                options.library.fix_layer_type(layer, module.DataType.FLOAT, config)
            value = layer.get_output(0)
    if x.dtype != module.DataType.FLOAT:
        value = network.add_cast(value, x.dtype).get_output(0)
    for layer in readers:
        for index in range(layer.num_inputs):
            tensor = layer.get_input(index)
            if tensor is not None and tensor.name == x.name:
                layer.set_input(index, value)
    return constants
