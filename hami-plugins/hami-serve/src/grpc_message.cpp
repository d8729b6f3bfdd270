// Messages in the encoding of protobuf. Numbers of fields are those of open_inference.proto.
#include "grpc_message.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "inputs.hpp"
#include "outputs.hpp"

namespace hami_serve {
namespace {

constexpr std::size_t kMaxTyped = 1 << 20;  // bytes of typed contents: at most 5 ms on the thread of the connections
constexpr std::size_t kMaxTypedElements = 1 << 18;  // of typed outputs: about 1 ms
constexpr std::size_t kMaxFields = 1 << 12;         // of a request, that are looked at to see whether it is long
constexpr std::size_t kMaxVarint = 10;              // bytes
constexpr std::size_t kMaxName = 1 << 12;           // bytes
constexpr std::size_t kMaxPath = 1 << 8;            // bytes of the names of a model and its version
constexpr std::size_t kPrefix = 5;                  // bytes before a message of gRPC

enum RequestField : std::uint32_t {
  kModelName = 1,
  kModelVersion = 2,
  kId = 3,
  kParameters = 4,
  kInputs = 5,
  kOutputs = 6,
  kRawInputs = 7
};
enum TensorField : std::uint32_t { kName = 1, kDatatype = 2, kShape = 3, kContents = 5 };
enum AnswerField : std::uint32_t { kAnswerOutputs = 5, kRawOutputs = 6 };  // the first three are those of a request
enum EntryField : std::uint32_t { kKey = 1, kValue = 2 };                  // of a map
enum ParameterField : std::uint32_t { kInt64 = 2 };
enum Contents : std::uint32_t { kBools = 1, kInts, kInt64s, kUints, kUint64s, kFloats, kDoubles, kTexts };
enum Wire : std::uint32_t { kVarint = 0, kDelimited = 2 };

// ---- reading

struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;
  std::uint64_t integer = 0;
  std::string_view bytes;
};

// The fields of a message. Only the two wire types that a request has.
class Fields {
 public:
  explicit Fields(std::string_view data) : data_(data) {}

  bool next(Field& field) {
    if (position_ == data_.size()) return false;
    const std::uint64_t key = varint();
    field.wire = static_cast<std::uint32_t>(key & 7);
    require(key >> 3 > 0 && key >> 3 <= std::numeric_limits<std::uint32_t>::max());
    field.number = static_cast<std::uint32_t>(key >> 3);
    require(field.wire == kVarint || field.wire == kDelimited);
    field.integer = varint();
    if (field.wire == kVarint) return true;
    require(field.integer <= data_.size() - position_);
    field.bytes = data_.substr(position_, static_cast<std::size_t>(field.integer));
    position_ += field.bytes.size();
    return true;
  }

  bool at_end() const noexcept { return position_ == data_.size(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      require(position_ < data_.size());
      const auto byte = static_cast<unsigned char>(data_[position_++]);
      require(shift < 63 || byte < 2);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Unusual();
  }

 private:
  std::string_view data_;
  std::size_t position_ = 0;
};

void read_text(const Field& field, std::string& text) {
  require(field.wire == kDelimited && text.empty() && field.bytes.size() <= kMaxName);
  require(simdjson::validate_utf8(field.bytes.data(), field.bytes.size()));
  text.assign(field.bytes);
}

struct GrpcInput : Input {
  std::string_view contents;
  bool has_contents = false;
};

GrpcInput read_input(std::string_view data) {
  GrpcInput input;
  std::string datatype;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    switch (field.number) {
      case kName: read_text(field, input.name); break;
      case kDatatype: read_text(field, datatype); break;
      case kShape:
        if (field.wire == kVarint) {
          input.add_axis(static_cast<std::int64_t>(field.integer));
        } else {
          for (Fields sizes(field.bytes); !sizes.at_end();) input.add_axis(static_cast<std::int64_t>(sizes.varint()));
        }
        break;
      case kContents:
        require(field.wire == kDelimited && !std::exchange(input.has_contents, true));
        input.contents = field.bytes;
        break;
      default: throw Unusual();
    }
  }
  input.type = datatype_of(datatype);
  require(!input.name.empty() && input.type && !input.shape.empty());
  return input;
}

template <class T, class Wide>
hami::Value integers_of(std::string_view packed, const Input& input) {
  const hami::Tensor tensor = hami::Tensor::make(input.type->type, input.shape);
  T* const elements = static_cast<T*>(tensor.view().data);
  std::int64_t count = 0;
  for (Fields fields(packed); !fields.at_end(); ++count) {
    const std::uint64_t given = fields.varint();
    require(count < input.count);
    if constexpr (std::is_same_v<T, bool>) {
      elements[count] = given != 0;
    } else {
      const auto wide = static_cast<Wide>(given);
      require(wide >= static_cast<Wide>(std::numeric_limits<T>::min()) &&
              wide <= static_cast<Wide>(std::numeric_limits<T>::max()));
      elements[count] = static_cast<T>(wide);
    }
  }
  require(count == input.count);
  return tensor;
}

hami::Value floats_of(std::string_view packed, const Input& input) {
  const hami::Tensor tensor = hami::Tensor::make(input.type->type, input.shape);
  require(packed.size() == tensor.nbytes());
  std::memcpy(tensor.view().data, packed.data(), packed.size());
  return tensor;
}

// The field of the typed contents of a datatype; 0: it has only raw contents.
std::uint32_t contents_of(const Datatype& datatype) noexcept {
  if (datatype.is_bytes()) return kTexts;
  switch (datatype.type.code) {
    case kDLBool: return kBools;
    case kDLFloat:
      if (datatype.width == 2) return 0;
      return datatype.width == 4 ? kFloats : kDoubles;
    case kDLInt: return datatype.width == 8 ? kInt64s : kInts;
    default: return datatype.width == 8 ? kUint64s : kUints;
  }
}

// The only field of the typed contents.
std::string_view typed_elements(const GrpcInput& input) {
  require(input.count <= static_cast<std::int64_t>(input.contents.size()));
  Fields fields(input.contents);
  Field field;
  require(fields.next(field) && fields.at_end());
  require(field.wire == kDelimited && field.number == contents_of(*input.type));
  return field.bytes;
}

hami::Value tensor_of_contents(std::string_view elements, const GrpcInput& input) {
  const DLDataType type = input.type->type;
  switch (contents_of(*input.type)) {
    case kBools: return integers_of<bool, std::uint64_t>(elements, input);
    case kFloats:
    case kDoubles: return floats_of(elements, input);
    case kInt64s: return integers_of<std::int64_t, std::int64_t>(elements, input);
    case kUint64s: return integers_of<std::uint64_t, std::uint64_t>(elements, input);
    case kInts:
      if (type.bits == 8) return integers_of<std::int8_t, std::int64_t>(elements, input);
      if (type.bits == 16) return integers_of<std::int16_t, std::int64_t>(elements, input);
      return integers_of<std::int32_t, std::int64_t>(elements, input);
    default:
      if (type.bits == 8) return integers_of<std::uint8_t, std::uint64_t>(elements, input);
      if (type.bits == 16) return integers_of<std::uint16_t, std::uint64_t>(elements, input);
      return integers_of<std::uint32_t, std::uint64_t>(elements, input);
  }
}

struct Parts {
  std::string model;
  std::string version;
  std::vector<GrpcInput> inputs;
  std::vector<std::string_view> raw;
};

WantedOutput read_output(std::string_view data) {
  WantedOutput output;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    require(field.number == kName);
    read_text(field, output.name);
  }
  require(!output.name.empty());
  return output;
}

void read_parameter(std::string_view data, Inference& inference) {
  std::string name;
  std::string_view value;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    require(field.wire == kDelimited && (field.number == kKey || (field.number == kValue && value.empty())));
    if (field.number == kKey)
      read_text(field, name);
    else
      value = field.bytes;
  }
  Fields choices(value);
  Field choice;
  require(choices.next(choice) && choices.at_end() && choice.number == kInt64 && choice.wire == kVarint);
  const auto given = static_cast<std::int64_t>(choice.integer);
  if (name == "timeout")
    inference.set_timeout(given);
  else if (name == "priority")
    inference.set_priority(given);
  else
    throw Unusual();
}

Parts read_parts(std::string_view data, Inference& inference) {
  Parts parts;
  Fields fields(data);
  for (Field field; fields.next(field);) {
    require(field.wire == kDelimited);
    switch (field.number) {
      case kModelName: read_text(field, parts.model); break;
      case kModelVersion: read_text(field, parts.version); break;
      case kId: read_text(field, inference.id); break;
      case kParameters: read_parameter(field.bytes, inference); break;
      case kInputs: {
        GrpcInput input = read_input(field.bytes);
        require_new(parts.inputs, input.name);
        parts.inputs.push_back(std::move(input));
        break;
      }
      case kOutputs: {
        WantedOutput output = read_output(field.bytes);
        require_new(inference.outputs, output.name);
        inference.outputs.push_back(std::move(output));
        break;
      }
      case kRawInputs:
        require(parts.raw.size() < kMaxTensors);
        parts.raw.push_back(field.bytes);
        break;
      default: throw Unusual();
    }
  }
  require(!parts.inputs.empty() && (parts.raw.empty() || parts.raw.size() == parts.inputs.size()));
  return parts;
}

// The model of a name and a version, which may be empty.
ModelPtr model_of(const Parts& parts, const Table& table) {
  const auto is_plain = [](char each) {
    return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
           each == '_' || each == '-' || each == '.';
  };
  require(!parts.model.empty() && parts.model.size() + parts.version.size() <= kMaxPath);
  for (const std::string& each : {parts.model, parts.version}) require(std::all_of(each.begin(), each.end(), is_plain));
  std::string path = "/v2/models/" + parts.model;
  if (!parts.version.empty()) (path += "/versions/") += parts.version;
  const auto found = table.by_path.find(path += "/infer");
  require(found != table.by_path.end());
  return found->second;
}

// ---- writing

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, std::uint32_t field, std::size_t size) {
  put_varint(out, field << 3 | kDelimited);
  put_varint(out, size);
}

void put_text(std::string& out, std::uint32_t field, std::string_view text) {
  if (text.empty()) return;
  put_key(out, field, text.size());
  out += text;
}

template <class T>
std::string varints_of(const hami::Tensor& tensor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const T* const elements = static_cast<const T*>(tensor.view().data);
  const std::size_t count = tensor.count();
  std::string packed;
  packed.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    put_varint(packed, static_cast<std::uint64_t>(static_cast<Wide>(elements[i])));
  return packed;
}

std::string varints_of(const hami::Tensor& tensor, DLDataType type) {
  if (type.code == kDLBool) return varints_of<std::uint8_t>(tensor);
  if (type.code == kDLInt) {
    if (type.bits == 8) return varints_of<std::int8_t>(tensor);
    if (type.bits == 16) return varints_of<std::int16_t>(tensor);
    return type.bits == 32 ? varints_of<std::int32_t>(tensor) : varints_of<std::int64_t>(tensor);
  }
  if (type.bits == 8) return varints_of<std::uint8_t>(tensor);
  if (type.bits == 16) return varints_of<std::uint16_t>(tensor);
  return type.bits == 32 ? varints_of<std::uint32_t>(tensor) : varints_of<std::uint64_t>(tensor);
}

struct Output {
  std::string_view name;
  std::string_view datatype;
  std::vector<std::int64_t> shape;
  const hami::Value* value = nullptr;
  const Datatype* type = nullptr;  // null: it is text
};

std::string_view bytes_of(const Output& output) {
  if (!output.type) return output.value->as_text();
  const hami::Tensor tensor(*output.value);
  return {static_cast<const char*>(tensor.view().data) + tensor.view().byte_offset, tensor.nbytes()};
}

// Nothing: native code does not render it.
std::optional<Output> output_of(const Model& model, const Keys& keys, std::string_view name) {
  Output output;
  output.name = name;
  output.value = output_value(model, keys, name);
  if (!output.value) return std::nullopt;
  const std::int32_t kind = output.value->kind();
  if (kind == HAMI_TENSOR) {
    const hami::Tensor tensor(*output.value);
    output.type = datatype_of_output(model, name, tensor);
    if (!output.type || tensor.device().device_type != kDLCPU || !tensor.is_contiguous() || tensor.count() == 0)
      return std::nullopt;
    output.datatype = output.type->name;
    output.shape = tensor.shape();
  } else if (kind == HAMI_BYTES || kind == HAMI_STR) {
    output.datatype = "BYTES";
    output.shape = {1};
    if (output.value->as_text().size() > kMaxTypedElements || !is_declared(model, name, output.datatype))
      return std::nullopt;
  } else {
    return std::nullopt;
  }
  return output;
}

std::string typed_contents(const Output& output) {
  std::string contents;
  if (!output.type) {
    put_key(contents, kTexts, output.value->as_text().size());
    return contents += output.value->as_text();
  }
  const DLDataType type = output.type->type;
  const std::uint32_t field = contents_of(*output.type);
  if (field == kFloats || field == kDoubles) {
    put_text(contents, field, bytes_of(output));
  } else {
    put_text(contents, field, varints_of(hami::Tensor(*output.value), type));
  }
  return contents;
}

void put_output(std::string& out, const Output& output, bool raw) {
  std::string entry;
  put_text(entry, kName, output.name);
  put_text(entry, kDatatype, output.datatype);
  std::string sizes;
  for (const std::int64_t each : output.shape) put_varint(sizes, static_cast<std::uint64_t>(each));
  put_text(entry, kShape, sizes);
  if (!raw) put_text(entry, kContents, typed_contents(output));
  put_key(out, kAnswerOutputs, entry.size());
  out += entry;
}

std::optional<std::vector<Output>> outputs_of(const Model& model, const Inference& inference, const Keys& keys) {
  std::vector<Output> outputs;
  for (const std::string_view name : output_names(model, inference)) {
    std::optional<Output> output = output_of(model, keys, name);
    if (!output) return std::nullopt;
    outputs.push_back(std::move(*output));
  }
  return outputs;
}

bool has_raw_only(const Output& output) { return output.type && contents_of(*output.type) == 0; }

// Whether an answer has raw contents.
bool is_raw(const Inference& inference, const std::vector<Output>& outputs) {
  return inference.all_binary || std::any_of(outputs.begin(), outputs.end(), has_raw_only);
}

// The bytes at most of an output that takes long; 0: it does not.
std::size_t size_if_long(const Output& output, bool raw) {
  if (!output.type || (raw && !output.type->is_converted())) return 0;
  const std::size_t count = hami::Tensor(*output.value).count();
  return count > kMaxTypedElements ? count * kMaxVarint : 0;
}

// The raw contents of an output: after the key that `before` gets, a piece of the answer.
void add_raw(Answer& answer, const Output& output, std::string& before) {
  if (!output.type) {
    const std::string_view text = output.value->as_text();
    const auto size = static_cast<std::uint32_t>(text.size());
    put_key(before, kRawOutputs, sizeof size + text.size());
    before.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
    return;
  }
  if (output.type->is_converted()) return put_text(before, kRawOutputs, bytes_of_bf16(hami::Tensor(*output.value)));
  const std::string_view bytes = bytes_of(output);
  put_key(before, kRawOutputs, bytes.size());
  if (bytes.size() <= kMaxName) {
    before += bytes;
    return;
  }
  if (&before != &answer.head) answer.tail.emplace_back(before);
  answer.values.push_back(*output.value);
  answer.tail.push_back(bytes);
}

}  // namespace

std::size_t raw_start(std::string_view first) noexcept {
  std::size_t position = 0;
  const auto varint = [&](std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 63 && position < first.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(first[position++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  for (std::uint64_t key = 0, size = 0; varint(key) && (key & 7) == kDelimited && varint(size);) {
    if (key >> 3 == kRawInputs) return position;
    if (size > first.size() - position) return 0;
    position += static_cast<std::size_t>(size);
  }
  return 0;
}

bool is_long_to_read(const Body& body) noexcept {
  std::size_t count = 0;
  try {
    Fields fields(body.text(0, body.size()));
    for (Field field; ++count < kMaxFields && fields.next(field);) {
      if (field.number != kInputs || field.wire != kDelimited) continue;
      Fields of_input(field.bytes);
      for (Field each; ++count < kMaxFields && of_input.next(each);)
        if (each.number == kContents && each.bytes.size() > kMaxTyped) return true;
    }
  } catch (const Unusual&) {
  }
  return false;
}

std::int64_t size_of_long_message(const Model& model, const Inference& inference, const Keys& keys) {
  std::size_t size = 0;
  try {
    const std::optional<std::vector<Output>> outputs = outputs_of(model, inference, keys);
    for (std::size_t i = 0; outputs && i < outputs->size(); ++i)
      size += size_if_long((*outputs)[i], is_raw(inference, *outputs));
  } catch (const hami::Error&) {  // a tensor in the memory of a device: Python says what is wrong
    return 0;
  }
  return static_cast<std::int64_t>(size);
}

std::optional<GrpcInference> read_message(const std::shared_ptr<Body>& body, const Table& table) {
  try {
    GrpcInference found;
    Parts parts = read_parts(body->text(0, body->size()), found.inference);
    found.model = model_of(parts, table);
    found.inference.all_binary = !parts.raw.empty();
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < parts.inputs.size(); ++i) {
      GrpcInput& input = parts.inputs[i];
      require(parts.raw.empty() == input.has_contents);
      if (!parts.raw.empty()) {
        const std::string_view raw = parts.raw[i];
        read_elements(body, input, const_cast<char*>(raw.data()), raw.size());
      } else if (const std::string_view elements = typed_elements(input); input.type->is_bytes()) {
        input.text = elements;
      } else {
        input.value = tensor_of_contents(elements, input);
      }
      inputs.push_back(std::move(input));
    }
    bind_inputs(inputs, *found.model, table, found.inference);
    return found;
  } catch (const Unusual&) {
  } catch (const hami::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

std::optional<Answer> render_message(const Model& model, const Inference& inference, const Keys& keys) {
  try {
    const std::optional<std::vector<Output>> outputs = outputs_of(model, inference, keys);
    if (!outputs) return std::nullopt;
    const bool raw = is_raw(inference, *outputs);
    Answer answer;
    std::string& head = answer.head;
    head.assign(kPrefix, '\0');
    put_text(head, kModelName, model.name);
    put_text(head, kModelVersion, model.version);
    put_text(head, kId, inference.id);
    for (const Output& each : *outputs) put_output(head, each, raw);
    for (std::size_t i = 0; raw && i < outputs->size(); ++i) {
      const bool after_piece = !answer.tail.empty();
      if (after_piece) answer.texts.emplace_back();
      std::string& before = after_piece ? answer.texts.back() : head;
      const std::size_t pieces = answer.tail.size();
      add_raw(answer, (*outputs)[i], before);
      if (after_piece && answer.tail.size() == pieces) answer.tail.emplace_back(before);
    }
    std::size_t size = head.size() - kPrefix;
    for (const std::string_view each : answer.tail) size += each.size();
    put_prefix(head.data(), size);
    return answer;
  } catch (const hami::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

void put_prefix(char* five, std::size_t size) noexcept {
  five[0] = 0;
  for (int i = 0; i < 4; ++i) five[1 + i] = static_cast<char>(size >> (24 - 8 * i));
}

}  // namespace hami_serve
