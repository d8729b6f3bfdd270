"""read_config: reads a config.pbtxt of Triton, the text form of its message ModelConfig."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import hami

MAX_CONFIG = 4 << 20  # bytes

# The fields that hami import-triton reads, by message; * is repeated. Field numbers do not occur in the text form.
# Ignored has no fields, so that only its presence is known.
_MESSAGES = {
    "Ignored": "",
    "Entry": "string key; string value",
    "Reshape": "int64* shape",
    "Input": "string name; DataType data_type; int64* dims; Reshape reshape; bool is_shape_tensor; bool optional",
    "Output": "string name; DataType data_type; int64* dims; Reshape reshape; string label_filename",
    "Group": "string name; Kind kind; int32 count; int32* gpus; string* profile; Ignored* secondary_devices",
    "QueuePolicy": "uint32 max_queue_size; TimeoutAction timeout_action; uint64 default_timeout_microseconds",
    "Dynamic": "int32* preferred_batch_size; uint64 max_queue_delay_microseconds; bool preserve_ordering; "
    "uint64 priority_levels; uint64 default_priority_level; QueuePolicy default_queue_policy; "
    "Ignored* priority_queue_policy",
    "Latest": "uint32 num_versions",
    "Specific": "int64* versions",
    "Policy": "Latest latest; Ignored all; Specific specific",
    "Step": "string model_name; int64 model_version; Entry* input_map; Entry* output_map",
    "Steps": "Step* step",
    "ModelConfig": "string name; string platform; string backend; string runtime; Policy version_policy; "
    "int32 max_batch_size; Input* input; Output* output; Group* instance_group; string default_model_filename; "
    "Dynamic dynamic_batching; Steps ensemble_scheduling; Ignored sequence_batching; Ignored* parameters; "
    "Ignored optimization; Ignored* model_warmup; Ignored model_operations; Ignored model_transaction_policy; "
    "Ignored response_cache; Ignored* batch_input; Ignored* batch_output; Entry* metric_tags; "
    "Entry* cc_model_filenames; Ignored* model_repository_agents",
}
_ENUMS = {
    "DataType": "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 TYPE_INT32 "
    "TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16",
    "Kind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
    "TimeoutAction": "REJECT DELAY",
}


@functools.cache
def _config_class() -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise hami.ConfigError('reading config.pbtxt needs protobuf: pip install "hami-serve[grpc]"') from None
    file = descriptor_pb2.FileDescriptorProto(name="config.proto", package="triton", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(filter(None, fields.split("; ")), 1):
            kind, label = text.split()
            made = message.field.add(name=label, number=number)
            made.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind[0].isupper():
                made.type = field.TYPE_ENUM if kind in _ENUMS else field.TYPE_MESSAGE
                made.type_name = f".triton.{kind}"
            else:
                made.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("triton.ModelConfig"))


def read_config(path: Path) -> Any:
    """Return the message ModelConfig of a file; fields that Triton does not have are ignored.

    Raises:
        ConfigError: The file cannot be read or is not a configuration of a model, or protobuf is not installed.
    """
    config = _config_class()()
    from google.protobuf import text_format

    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG + 1)
        if len(data) > MAX_CONFIG:
            raise hami.ConfigError(f'"{path}" has more than {MAX_CONFIG} bytes')
        text_format.Parse(data.decode(), config, allow_unknown_field=True)
    except OSError as error:
        raise hami.ConfigError(f'"{path}" cannot be read: {error.strerror}') from error
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise hami.ConfigError(f'"{path}" is not a model configuration of Triton: {error}') from None
    return config
