// EngineInputs: reads the option `engine_inputs`.
#include "engine_inputs.hpp"

namespace hami_tensor {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw hami::Error(HAMI_FAILED_PRECONDITION, "option \"engine_inputs\": " + why +
                                                  "; it must be a list with a dict for each input: "
                                                  "name, dtype, shape, device, batch_axis");
}

using Entry = std::vector<std::pair<std::string, hami::Value>>;

const hami::Value& get(const Entry& entry, std::string_view key) {
  for (const auto& [name, value] : entry)
    if (name == key) return value;
  refuse("an input has no " + in_quotes(key));
}

EngineInput read(const Entry& entry) {
  EngineInput input;
  input.name = get(entry, "name").as_text();
  const std::string_view type = get(entry, "dtype").as_text();
  const std::optional<DLDataType> known = hami::dtype_of(type);
  if (!known) refuse("unknown dtype " + in_quotes(type));
  input.dtype = *known;
  if (const hami::Value& shape = get(entry, "shape"); !shape.is_none()) {
    input.shape.emplace();
    for (const hami::Value& size : shape.as_list()) input.shape->push_back(size.as_int());
  }
  input.device = get(entry, "device").as_text();
  input.has_batch_axis = get(entry, "batch_axis").as_bool();
  return input;
}

}  // namespace

bool EngineInput::takes(const Shape& given) const {
  if (!shape) return true;
  if (given.size() != shape->size()) return false;
  for (std::size_t axis = has_batch_axis ? 1 : 0; axis < given.size(); ++axis)
    if ((*shape)[axis] != kAnySize && (*shape)[axis] != given[axis]) return false;
  return true;
}

std::vector<EngineInput> read_engine_inputs(const hami::Dict& options) {
  std::vector<EngineInput> inputs;
  const std::optional<hami::Value> announced = options.find(kEngineInputs);
  if (!announced || announced->is_none()) return inputs;
  try {
    for (const hami::Value& entry : announced->as_list()) inputs.push_back(read(entry.as_dict()));
  } catch (const hami::Error& error) {
    if (error.code() == HAMI_FAILED_PRECONDITION) throw;
    refuse(error.what());
  }
  return inputs;
}

}  // namespace hami_tensor
