// Reads inference requests with simdjson.
#include "inference.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "half.hpp"
#include "inputs.hpp"

namespace hami_serve {
namespace {

using simdjson::ondemand::object;

constexpr std::size_t kMaxJson = 1 << 30;  // bytes
constexpr std::size_t kMaxRaw = 8 << 20;   // bytes of a body that is copied to a value

// ---- JSON numbers, directly to the memory of a tensor

template <class T>
T element_of(simdjson::ondemand::value given) {
  if constexpr (std::is_same_v<T, bool>) {
    return given.get_bool();
  } else if constexpr (std::is_same_v<T, Half>) {
    const Half half = half_of(given.get_double());
    require((half.bits & 0x7FFF) < kHalfMax);
    return half;
  } else if constexpr (std::is_floating_point_v<T>) {
    const double wide = given.get_double();
    const T number = static_cast<T>(wide);
    require(std::isfinite(number));
    return number;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return given.get_uint64();
  } else {
    const std::int64_t wide = given.get_int64();
    require(wide >= static_cast<std::int64_t>(std::numeric_limits<T>::min()) &&
            wide <= static_cast<std::int64_t>(std::numeric_limits<T>::max()));
    return static_cast<T>(wide);
  }
}

template <class T>
hami::Value numbers_of(simdjson::ondemand::array given, const Input& input) {
  const hami::Tensor tensor = hami::Tensor::make(input.type->type, input.shape);
  T* const elements = static_cast<T*>(tensor.view().data);
  std::int64_t count = 0;
  for (simdjson::ondemand::value each : given) {
    require(count < input.count);
    elements[count++] = element_of<T>(each);
  }
  require(count == input.count);
  return tensor;
}

hami::Value tensor_of_json(simdjson::ondemand::array given, const Input& input) {
  const DLDataType type = input.type->type;
  switch (type.code) {
    case kDLBool: return numbers_of<bool>(given, input);
    case kDLFloat:
      if (type.bits == 16) return numbers_of<Half>(given, input);
      return type.bits == 32 ? numbers_of<float>(given, input) : numbers_of<double>(given, input);
    case kDLInt:
      if (type.bits == 8) return numbers_of<std::int8_t>(given, input);
      if (type.bits == 16) return numbers_of<std::int16_t>(given, input);
      return type.bits == 32 ? numbers_of<std::int32_t>(given, input) : numbers_of<std::int64_t>(given, input);
    default:
      if (type.bits == 8) return numbers_of<std::uint8_t>(given, input);
      if (type.bits == 16) return numbers_of<std::uint16_t>(given, input);
      return type.bits == 32 ? numbers_of<std::uint32_t>(given, input) : numbers_of<std::uint64_t>(given, input);
  }
}

// ---- the members of a request

// The strings of a request without their escapes. Memory of the parser for them is not used: simdjson 3.12 does not notice if it
// got none, and would write there. A key with escapes is unusual.
class Texts {
 public:
  Texts(const simdjson::ondemand::parser& parser, std::size_t json) : parser_(parser), size_(json + Body::kPadding) {}

  std::string_view of(simdjson::ondemand::value given) {
    const simdjson::ondemand::raw_json_string raw = given.get_raw_json_string();
    if (!memory_) {
      memory_.reset(new std::uint8_t[size_]);
      next_ = memory_.get();
    }
    return parser_.unescape(raw, next_);
  }

 private:
  const simdjson::ondemand::parser& parser_;
  const std::size_t size_;  // bytes
  std::unique_ptr<std::uint8_t[]> memory_;
  std::uint8_t* next_ = nullptr;
};

std::string_view only_text_of(simdjson::ondemand::array given, Texts& texts) {
  std::optional<std::string_view> text;
  for (simdjson::ondemand::value each : given) {
    require(!text);
    text = texts.of(each);
  }
  require(text.has_value());
  return *text;
}

void read_shape(simdjson::ondemand::array given, Input& input) {
  for (simdjson::ondemand::value each : given) input.add_axis(each.get_int64());
}

Input read_input(object given, Texts& texts) {
  Input input;
  bool has_shape = false;
  bool has_data = false;
  bool has_parameters = false;
  for (auto field : given) {
    const std::string_view key = field.escaped_key();
    if (key == "name") {
      require(input.name.empty());
      input.name = std::string(texts.of(field.value()));
    } else if (key == "datatype") {
      require(!input.type);
      input.type = datatype_of(texts.of(field.value()));
      require(input.type);
    } else if (key == "shape") {
      require(!std::exchange(has_shape, true));
      read_shape(field.value(), input);
    } else if (key == "data") {
      require(input.type && has_shape && !std::exchange(has_data, true));
      if (input.type->is_bytes())
        input.text = only_text_of(field.value(), texts);
      else
        input.value = tensor_of_json(field.value(), input);
    } else if (key == "parameters") {
      require(!std::exchange(has_parameters, true));
      for (auto parameter : field.value().get_object()) {
        require(parameter.escaped_key().value() == "binary_data_size" && !input.size);
        input.size = parameter.value().get_uint64();
      }
    } else {
      throw Unusual();
    }
  }
  require(!input.name.empty() && input.type && has_shape && has_data != input.size.has_value());
  return input;
}

WantedOutput read_output(object given, Texts& texts) {
  WantedOutput output;
  bool has_parameters = false;
  for (auto field : given) {
    const std::string_view key = field.escaped_key();
    if (key == "name") {
      require(output.name.empty());
      output.name = std::string(texts.of(field.value()));
    } else if (key == "parameters") {
      require(!std::exchange(has_parameters, true));
      for (auto parameter : field.value().get_object()) {
        require(parameter.escaped_key().value() == "binary_data" && !output.binary);
        output.binary = parameter.value().get_bool();
      }
    } else {
      throw Unusual();
    }
  }
  require(!output.name.empty());
  return output;
}

void read_parameter(simdjson::simdjson_result<simdjson::ondemand::field>& parameter, Inference& inference) {
  const std::string_view name = parameter.escaped_key();
  if (name == "binary_data_output")
    inference.all_binary = parameter.value().get_bool();
  else if (name == "timeout")
    inference.set_timeout(parameter.value().get_int64());
  else if (name == "priority")
    inference.set_priority(parameter.value().get_int64());
  else
    throw Unusual();
}

// Texts of the inputs are in the memory of `texts`.
std::vector<Input> read_members(simdjson::ondemand::parser& parser, std::string_view json, Texts& texts,
                                Inference& inference) {
  std::vector<Input> inputs;
  bool has_id = false;
  bool has_inputs = false;
  bool has_outputs = false;
  bool has_parameters = false;
  simdjson::ondemand::document document = parser.iterate(json.data(), json.size(), json.size() + Body::kPadding);
  for (auto field : document.get_object()) {
    const std::string_view key = field.escaped_key();
    if (key == "id") {
      require(!std::exchange(has_id, true));
      inference.id = std::string(texts.of(field.value()));
    } else if (key == "inputs") {
      require(!std::exchange(has_inputs, true));
      for (auto each : field.value().get_array()) {
        Input input = read_input(each.get_object(), texts);
        require_new(inputs, input.name);
        inputs.push_back(std::move(input));
      }
    } else if (key == "outputs") {
      require(!std::exchange(has_outputs, true));
      for (auto each : field.value().get_array()) {
        WantedOutput output = read_output(each.get_object(), texts);
        require_new(inference.outputs, output.name);
        inference.outputs.push_back(std::move(output));
      }
    } else if (key == "parameters") {
      require(!std::exchange(has_parameters, true));
      for (auto parameter : field.value().get_object()) read_parameter(parameter, inference);
    } else {
      throw Unusual();
    }
  }
  require(document.at_end() && !inputs.empty());
  return inputs;
}

// A body that is the input itself, of a model that declares none.
Inference read_raw(const Body& body, const Model& model) {
  require(model.inputs.empty() && body.size() <= kMaxRaw && !model.takes_text.value_or(false));
  Inference inference;
  inference.keys.emplace_back("data", hami::Value::bytes(body.text(0, body.size())));
  return inference;
}

}  // namespace

void Inference::set_timeout(std::int64_t microseconds) {
  constexpr std::int64_t kMicrosecond = 1'000;  // ns
  require(!timeout && microseconds >= 0 && microseconds < std::numeric_limits<std::int64_t>::max() / kMicrosecond);
  timeout = microseconds * kMicrosecond;
}

void Inference::set_priority(std::int64_t given) {
  require(priority == 0 && given > 0 && given <= std::numeric_limits<std::uint8_t>::max());
  priority = given;
}

bool is_raw(const Head& head) noexcept { return head.is_image || head.json_length == std::size_t{0}; }

bool is_long_to_read(const Head& head) noexcept {
  constexpr std::size_t kLong = 1 << 18;  // bytes of JSON: less than a millisecond
  return !head.is_image && head.json_length.value_or(head.length) > kLong;
}

std::optional<Inference> read_inference(const Head& head, const std::shared_ptr<Body>& body, const Model& model,
                                        const Table& table) {
  thread_local simdjson::ondemand::parser kept;  // with memory for short texts
  try {
    if (is_raw(head)) return read_raw(*body, model);
    const std::size_t before = head.json_length.value_or(body->size());
    require(!head.is_text && before <= body->size() && before <= kMaxJson);
    simdjson::ondemand::parser for_long;
    Inference inference;
    simdjson::ondemand::parser& parser = is_long_to_read(head) ? for_long : kept;
    Texts texts(parser, before);
    std::vector<Input> inputs = read_members(parser, body->text(0, before), texts, inference);
    std::size_t position = before;
    for (Input& input : inputs) {
      if (!input.size) continue;
      require(*input.size <= body->size() - position);
      read_elements(body, input, body->data() + position, *input.size);
      position += *input.size;
    }
    require(position == body->size());
    bind_inputs(inputs, model, table, inference);
    return inference;
  } catch (const Unusual&) {
  } catch (const simdjson::simdjson_error& error) {
    // A parser that got no memory to grow has lost the memory it had, and would use it for the next short text.
    if (error.error() == simdjson::MEMALLOC) kept = simdjson::ondemand::parser();
  } catch (const hami::Error&) {
  } catch (const std::bad_alloc&) {
  }
  return std::nullopt;
}

}  // namespace hami_serve
