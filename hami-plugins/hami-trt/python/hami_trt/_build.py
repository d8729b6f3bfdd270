"""From an ONNX model to a serialized engine: parse, put mean and std in front, set the build up, build."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import hami
import numpy as np

from hami_trt._options import Options
from hami_trt._progress import shown
from hami_trt._shapes import Input, Range, ranges_of
from hami_trt._tensorrt import first_of
from hami_trt._timing_cache import TimingCache

_TYPES = {"fp16": "HALF", "bf16": "BF16"}  # what a network of fixed types has to contain
_MOST = 3  # errors of the parser that a message tells


def build(options: Options) -> tuple[bytes, dict[str, Range]]:
    """Return the serialized engine and the shapes of its inputs. Errors are hami.ConfigError, named after the owner."""
    library = options.library
    with _on_device(options), library.errors() as said:
        try:
            builder = library.module.Builder(library.logger)
        except TypeError:  # what the bindings raise when the library gave no builder
            raise hami.ConfigError(f"{options.owner}: {library} cannot build here: {first_of(said)}") from None
        network = library.new_network(builder, options.precision)
        _parse(network, options)
        ranges = _ranges(network, options)
        config = _configured(builder, ranges, options)
        constants = _normalise(network, config, options)
        _check_precision(network, options)
        timing = TimingCache(options)
        timing.give_to(config)
        with shown(f"building {options.model.name}", library, config) as progress:
            if options.ready is not None:
                options.ready.add_done_callback(lambda _: progress.stopped.set())
            engine = progress.watch(lambda: _serialized(builder, network, config, options))
        timing.keep(config)
        del constants  # the library read them until here
        return engine, ranges


def _on_device(options: Options) -> AbstractContextManager[Any]:
    """Make the device current on this thread: the library builds for that one."""
    if options.device is None:
        return nullcontext()
    from hami_torch.backend import as_current

    return as_current(options.device)


def _serialized(builder: Any, network: Any, config: Any, options: Options) -> bytes:
    with _on_device(options), options.library.errors() as said:
        engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise hami.ConfigError(f'{options.owner}: {options.library} cannot build "{options.model}": {first_of(said)}')
    return bytes(engine)


def _parse(network: Any, options: Options) -> None:
    parser = options.library.module.OnnxParser(network, options.library.logger)
    if options.version_compatible or options.hardware_compatible:
        options.library.avoid_plugins(parser)
    parsed = parser.parse_from_file(str(options.model))
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    if parsed and not errors and network.num_outputs:
        return
    size = options.model.stat().st_size
    subject = f'{options.owner}: {options.library} cannot read "{options.model}" ({size} bytes)'
    told = [_node_error(error, options) for error in errors[:_MOST]]
    if len(errors) > _MOST:
        told.append(f"and {len(errors) - _MOST} more")
    raise hami.ConfigError(f"{subject}: {'; '.join(told) or 'it is truncated or is not an ONNX model'}")


def _node_error(error: Any, options: Options) -> str:
    operator, name = options.library.where(error)
    code = getattr(error.code(), "name", str(error.code()))
    if error.node() < 0 and not operator:
        return f"{error.desc()} ({code})"
    node = f'node "{name}"' if name else "a node without a name"
    where = f"operator {operator or '?'} of {node}"
    if code == "UNSUPPORTED_NODE" or "Plugin not found" in error.desc():
        return f"{where} (number {error.node()}) is not supported ({code})"
    return f"{where} (number {error.node()}): {error.desc()} ({code})"


def _ranges(network: Any, options: Options) -> dict[str, Range]:
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    for tensor in tensors:
        if tensor.is_shape_tensor:
            raise hami.ConfigError(
                f'{options.owner}: input "{tensor.name}" decides shapes inside the model by its values, '
                "which a profile of shapes cannot say; export the model with that value fixed"
            )
    inputs = [Input(tensor.name, tuple(tensor.shape)) for tensor in tensors]
    return ranges_of(inputs, options.max, options.min, options.opt, options.owner)


def _configured(builder: Any, ranges: dict[str, Range], options: Options) -> Any:
    library, module = options.library, options.library.module
    config = builder.create_builder_config()
    for _ in range(options.profiles):
        profile = builder.create_optimization_profile()
        for name, shapes in ranges.items():
            profile.set_shape(name, shapes.min, shapes.opt, shapes.max)
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


def _check_precision(network: Any, options: Options) -> None:
    """Refuse a precision that this build cannot give, rather than leave it out in silence."""
    module, wanted = options.library.module, options.precision
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    if wanted == "int8":
        kinds = (module.LayerType.QUANTIZE, module.LayerType.DEQUANTIZE)
        if not any(layer.type in kinds for layer in layers):
            raise hami.ConfigError(
                f'{options.owner}: precision "int8" takes a model with QuantizeLinear and DequantizeLinear nodes, '
                f'"{options.model}" has none; quantize it first'
            )
    elif wanted in _TYPES and not options.library.takes_precision(wanted):
        dtype = getattr(module.DataType, _TYPES[wanted])
        if not any(layer.get_output(index).dtype == dtype for layer in layers for index in range(layer.num_outputs)):
            raise hami.ConfigError(
                f'{options.owner}: {options.library} computes in the types of the model, and "{options.model}" has '
                f"nothing in {wanted}; export it in {wanted}, then leave `precision` out"
            )


def _normalise(network: Any, config: Any, options: Options) -> list[np.ndarray]:
    """Put (x - mean) / std in front of the one input that has channels, computed in fp32; return its constants."""
    constants: list[np.ndarray] = []
    if not options.mean and not options.std:
        return constants
    channels = max(len(options.mean), len(options.std))
    module = options.library.module
    floating = (module.DataType.FLOAT, module.DataType.HALF, module.DataType.BF16)
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    fitting = [x for x in inputs if x.dtype in floating and len(x.shape) >= 2 and channels in (1, x.shape[1])]
    if len(fitting) != 1:
        shown = ", ".join(f'"{x.name}" {tuple(x.shape)}' for x in inputs)
        raise hami.ConfigError(
            f'{options.owner}: "mean" and "std" of {channels} channels go to the one floating point input '
            f"with so many on axis 1; {len(fitting)} of the inputs fit: {shown}"
        )
    (x,) = fitting
    readers = [network.get_layer(index) for index in range(network.num_layers)]
    value = x if x.dtype == module.DataType.FLOAT else network.add_cast(x, module.DataType.FLOAT).get_output(0)
    steps = ((options.mean, module.ElementWiseOperation.SUB), (options.std, module.ElementWiseOperation.DIV))
    for numbers, operation in steps:
        if numbers:
            shape = (1, len(numbers), *(1 for _ in x.shape[2:]))
            constants.append(np.array(numbers, np.float32).reshape(shape))
            right = network.add_constant(shape, constants[-1]).get_output(0)
            layer = network.add_elementwise(value, right, operation)
            if options.library.chooses_types(options.precision):
                options.library.keep_type(layer, module.DataType.FLOAT, config)
            value = layer.get_output(0)
    if x.dtype != module.DataType.FLOAT:
        value = network.add_cast(value, x.dtype).get_output(0)
    for layer in readers:
        for index in range(layer.num_inputs):
            found = layer.get_input(index)
            if found is not None and found.name == x.name:
                layer.set_input(index, value)
    return constants
