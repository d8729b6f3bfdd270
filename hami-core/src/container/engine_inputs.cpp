// EngineInputs: reads the option `engine_inputs`.
#include "container/engine_inputs.hpp"

#include "value/visible.hpp"

namespace hami {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorCode::kConfig, "option \"engine_inputs\": " + why +
                                      "; it must be a list with a dict for each input: "
                                      "name, dtype, shape, device, batch_axis");
}

const Value& get(const MapObject& entry, std::string_view key) {
  for (const auto& [name, value] : entry.entries())
    if (name == key) return value;
  refuse("an input has no " + in_quotes(key));
}

EngineInput read(const MapObject& entry) {
  EngineInput input;
  input.name = get(entry, "name").as_text();
  const std::string_view type = get(entry, "dtype").as_text();
  const std::optional<DLDataType> known = dtype_of(type);
  if (!known) refuse("unknown dtype " + in_quotes(type));
  input.dtype = *known;
  if (const Value& shape = get(entry, "shape"); !shape.is_none()) {
    input.shape.emplace();
    for (std::size_t axis = 0; axis < shape.as_list().size(); ++axis)
      input.shape->push_back(shape.as_list().at(axis).as_int());
  }
  input.device = get(entry, "device").as_text();
  input.has_batch_axis = get(entry, "batch_axis").as_bool();
  return input;
}

}  // namespace

std::string EngineInput::show() const { return dtype_name(dtype) + (shape ? " " + show_shape(*shape) : ""); }

bool EngineInput::takes(const Shape& given) const {
  if (!shape) return true;
  if (given.size() != shape->size()) return false;
  for (std::size_t axis = has_batch_axis ? 1 : 0; axis < given.size(); ++axis)
    if ((*shape)[axis] != kAnySize && (*shape)[axis] != given[axis]) return false;
  return true;
}

std::vector<EngineInput> read_engine_inputs(const Dict& options) {
  std::vector<EngineInput> inputs;
  const Value* announced = options.find(kEngineInputs);
  if (!announced || announced->is_none()) return inputs;
  try {
    const ListObject& list = announced->as_list();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Value entry = list.at(i);
      inputs.push_back(read(entry.as_dict()));
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kConfig) throw;
    refuse(error.message());
  }
  return inputs;
}

}  // namespace hami
