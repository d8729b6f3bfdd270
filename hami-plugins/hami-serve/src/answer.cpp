// Renders answers, byte for byte as the door in Python does.
#include "answer.hpp"

#include <simdjson.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <hami/elements.hpp>
#include <limits>
#include <new>

#include "half.hpp"
#include "json.hpp"
#include "outputs.hpp"

namespace hami_serve {
namespace {

constexpr std::size_t kMostInJson = 1 << 14;    // in JSON, on the thread of the connections: about 2 ms
constexpr std::size_t kMaxConverted = 1 << 20;  // elements from float32 to BF16: about a millisecond
constexpr std::size_t kMaxText = 1 << 16;       // bytes of a text in JSON
constexpr std::size_t kMaxNumber = 25;          // bytes of a number in JSON, with a comma: -1.7976931348623157e+308,

// The header `date` changes once a second.
const std::string& date_line() {
  thread_local std::time_t shown = -1;
  thread_local std::string line;
  const std::time_t now = std::time(nullptr);
  if (now != shown) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[64];
    const char* const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const int size = std::snprintf(text, sizeof text, "date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n",
                                   days[parts.tm_wday], parts.tm_mday, months[parts.tm_mon], parts.tm_year + 1900,
                                   parts.tm_hour, parts.tm_min, parts.tm_sec);
    line.assign(text, static_cast<std::size_t>(size));
    shown = now;
  }
  return line;
}

template <class T>
bool add_elements(std::string& json, const hami::Tensor& tensor) {
  const T* const elements = static_cast<const T*>(tensor.view().data);
  const std::size_t count = tensor.count();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) json += ',';
    if constexpr (std::is_same_v<T, bool>) {
      json += elements[i] ? "true" : "false";
    } else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Half>) {
      double number = 0;
      if constexpr (std::is_same_v<T, Half>)
        number = static_cast<double>(hami::half_to_float(elements[i].bits));
      else
        number = static_cast<double>(elements[i]);
      if (std::isinf(number)) return false;
      if (std::isnan(number))
        json += "null";
      else
        add_float(json, number);
    } else {
      add_integer(json, elements[i]);
    }
  }
  return true;
}

// False: it has an element that JSON does not have.
bool add_data(std::string& json, const hami::Tensor& tensor) {
  const DLDataType type = tensor.dtype();
  switch (type.code) {
    case kDLBool: return add_elements<bool>(json, tensor);
    case kDLFloat:
      if (type.bits == 16) return add_elements<Half>(json, tensor);
      return type.bits == 32 ? add_elements<float>(json, tensor) : add_elements<double>(json, tensor);
    case kDLInt:
      if (type.bits == 8) return add_elements<std::int8_t>(json, tensor);
      if (type.bits == 16) return add_elements<std::int16_t>(json, tensor);
      return type.bits == 32 ? add_elements<std::int32_t>(json, tensor) : add_elements<std::int64_t>(json, tensor);
    default:
      if (type.bits == 8) return add_elements<std::uint8_t>(json, tensor);
      if (type.bits == 16) return add_elements<std::uint16_t>(json, tensor);
      return type.bits == 32 ? add_elements<std::uint32_t>(json, tensor) : add_elements<std::uint64_t>(json, tensor);
  }
}

void begin_entry(std::string& json, std::string_view name, std::string_view datatype) {
  json += "{\"name\":";
  add_string(json, name);
  ((json += ",\"datatype\":\"") += datatype) += "\",\"shape\":[";
}

void end_binary(std::string& json, std::size_t size) {
  json += "],\"parameters\":{\"binary_data_size\":";
  add_integer(json, size);
  json += "}}";
}

bool add_text(Answer& answer, const Model& model, std::string_view name, const hami::Value& value, bool binary) {
  const std::string_view text = value.as_text();
  constexpr std::size_t kMaxLength = std::numeric_limits<std::uint32_t>::max();  // before an element
  if (!is_declared(model, name, "BYTES") || text.size() > (binary ? kMaxLength : kMaxText)) return false;
  begin_entry(answer.head, name, "BYTES");
  answer.head += '1';
  if (binary) {
    const auto size = static_cast<std::uint32_t>(text.size());
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
    end_binary(answer.head, bytes.append(text).size());
    answer.add_text(std::move(bytes));
    return true;
  }
  if (!simdjson::validate_utf8(text.data(), text.size())) return false;
  answer.head += "],\"data\":[";
  add_string(answer.head, text);
  answer.head += "]}";
  return true;
}

bool add_tensor(Answer& answer, const Model& model, std::string_view name, const hami::Value& value, bool binary) {
  const hami::Tensor tensor(value);
  const Datatype* const type = datatype_of_output(model, name, tensor);
  if (!type || tensor.device().device_type != kDLCPU || !tensor.is_contiguous()) return false;
  begin_entry(answer.head, name, type->name);
  const DLTensor& view = tensor.view();
  for (std::int32_t axis = 0; axis < view.ndim; ++axis) {
    if (axis > 0) answer.head += ',';
    add_integer(answer.head, view.shape[axis]);
  }
  if (binary && type->is_converted()) {
    std::string bytes = bytes_of_bf16(tensor);
    end_binary(answer.head, bytes.size());
    answer.add_text(std::move(bytes));
    return true;
  }
  if (binary) {
    end_binary(answer.head, tensor.nbytes());
    answer.values.push_back(tensor);
    answer.tail.emplace_back(static_cast<const char*>(view.data) + view.byte_offset, tensor.nbytes());
    return true;
  }
  answer.head += "],\"data\":[";
  if (view.byte_offset != 0 || !add_data(answer.head, tensor)) return false;
  answer.head += "]}";
  return true;
}

bool add_output(Answer& answer, const Model& model, const Keys& keys, std::string_view name, bool binary) {
  const hami::Value* const value = output_value(model, keys, name);
  if (!value) return false;
  if (value->kind() == HAMI_TENSOR) return add_tensor(answer, model, name, *value, binary);
  const bool is_text = value->kind() == HAMI_BYTES || value->kind() == HAMI_STR;
  return is_text && add_text(answer, model, name, *value, binary);
}

bool add_outputs(Answer& answer, const Model& model, const Inference& inference, const Keys& keys) {
  std::string& json = answer.head;
  json += "{\"model_name\":";
  add_string(json, model.name);
  json += ",\"model_version\":";
  add_string(json, model.version);
  if (!inference.id.empty()) {
    json += ",\"id\":";
    add_string(json, inference.id);
  }
  json += ",\"outputs\":[";
  bool first = true;
  const auto add = [&](std::string_view name, bool binary) {
    if (!std::exchange(first, false)) json += ',';
    return add_output(answer, model, keys, name, binary);
  };
  for (const WantedOutput& each : inference.outputs)
    if (!add(each.name, each.binary.value_or(inference.all_binary))) return false;
  if (inference.outputs.empty()) {
    for (const std::string_view name : output_names(model, inference))
      if (!add(name, inference.all_binary)) return false;
  }
  json += "]}";
  return true;
}

// Puts the head of HTTP before the body.
void add_head(Answer& answer) {
  const std::size_t size = answer.size();
  std::string head;
  head.reserve(answer.head.size() + 256);
  (head += "HTTP/1.1 200 OK\r\n") += date_line();
  head += "content-length: ";
  add_integer(head, size);
  if (answer.tail.empty()) {
    head += "\r\ncontent-type: application/json\r\n\r\n";
  } else {
    head += "\r\ncontent-type: application/octet-stream\r\ninference-header-content-length: ";
    add_integer(head, answer.head.size());
    head += "\r\n\r\n";
  }
  answer.head = std::move(head += answer.head);
}

// The bytes at most of an output that takes long, in JSON or as BF16; 0: it does not.
std::size_t size_if_long(const Model& model, std::string_view name, const hami::Value& value, bool binary) {
  if (value.kind() != HAMI_TENSOR) return 0;
  const hami::Tensor tensor(value);
  if (!binary) return tensor.count() > kMostInJson ? tensor.count() * kMaxNumber : 0;
  const Datatype* const type = tensor.count() > kMaxConverted ? datatype_of_output(model, name, tensor) : nullptr;
  return type && type->is_converted() ? tensor.count() * type->width : 0;
}

}  // namespace

std::int64_t size_of_long(const Model& model, const Inference& inference, const Keys& keys) {
  std::size_t size = 0;
  const auto add = [&](std::string_view name, bool binary) {
    if (const hami::Value* const value = output_value(model, keys, name))
      size += size_if_long(model, name, *value, binary);
  };
  try {
    for (const WantedOutput& each : inference.outputs) add(each.name, each.binary.value_or(inference.all_binary));
    if (inference.outputs.empty())
      for (const std::string_view name : output_names(model, inference)) add(name, inference.all_binary);
  } catch (const hami::Error&) {  // a tensor in the memory of a device: Python says what is wrong
    return 0;
  }
  return static_cast<std::int64_t>(size);
}

std::optional<Answer> render_outputs(const Model& model, const Inference& inference, const Keys& keys) {
  try {
    Answer answer;
    if (!add_outputs(answer, model, inference, keys)) return std::nullopt;
    add_head(answer);
    return answer;
  } catch (const hami::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

Answer render_timeout(std::string_view text) {
  std::string json = "{\"error\": ";
  add_string(json, text);
  json += '}';
  Answer answer;
  answer.head = "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: ";
  add_integer(answer.head, json.size());
  (answer.head += "\r\n\r\n") += json;
  return answer;
}

void add_header_lines(Answer& answer, std::string_view lines) {
  const std::size_t end = answer.head.find("\r\n\r\n");
  if (end != std::string::npos) answer.head.insert(end, lines);
}

Answer render_probe(std::string_view json) {
  Answer answer;
  answer.head = json;
  add_head(answer);
  return answer;
}

}  // namespace hami_serve
