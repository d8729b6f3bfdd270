// FixTensor: makes tensors fit the engine of the instance, or checks their shape and casts them to one dtype.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda_backend.hpp"
#include "numbers.hpp"
#include "tensor_rows.hpp"

namespace hami_cuda {
namespace {

constexpr std::int64_t kAnySize = -1;  // of an axis

bool is_float(DLDataType type) { return type.code == kDLFloat || type.code == kDLBfloat; }

// The largest number of bits, without the sign, of which a type represents every integer; 0: of no integers.
int whole_bits(DLDataType type) {
  switch (type.code) {
    case kDLBool: return 1;
    case kDLUInt: return type.bits;
    case kDLInt: return type.bits - 1;
    case kDLBfloat: return 8;
    case kDLFloat: return type.bits == 16 ? 11 : type.bits == 32 ? 24 : 53;
    default: return 0;
  }
}

// Whether a type represents every value of another one; the same rule as in FixTensor of hami-tensor.
bool casts_safely(DLDataType from, DLDataType to) {
  if (same_type(from, to)) return true;
  if (to.code == kDLBool) return false;
  if (is_float(from)) return to.code == kDLFloat && to.bits > from.bits;
  if (to.code == kDLUInt && from.code == kDLInt) return false;
  return whole_bits(from) <= whole_bits(to);
}

std::optional<DLDataType> type_of(std::string_view name) {
  constexpr std::pair<std::uint8_t, int> kKinds[] = {
      {kDLBool, 8}, {kDLUInt, 8}, {kDLUInt, 16},  {kDLUInt, 32},  {kDLUInt, 64},  {kDLInt, 8},    {kDLInt, 16},
      {kDLInt, 32}, {kDLInt, 64}, {kDLFloat, 16}, {kDLFloat, 32}, {kDLFloat, 64}, {kDLBfloat, 16}};
  for (const auto& [code, bits] : kKinds) {
    const DLDataType type{code, static_cast<std::uint8_t>(bits), 1};
    if (type_name(type) == name) return type;
  }
  return std::nullopt;
}

// What a tensor must be: an entry of the option `engine_inputs`, or the parameters.
struct Target {
  std::string name;  // of the input of the engine; empty without an engine
  DLDataType type{};
  std::optional<Shape> shape;  // nullopt: any
  bool has_batch_axis = false;

  bool takes(const Shape& given) const {
    if (!shape) return true;
    if (given.size() != shape->size()) return false;
    for (std::size_t axis = has_batch_axis ? 1 : 0; axis < given.size(); ++axis)
      if ((*shape)[axis] != kAnySize && (*shape)[axis] != given[axis]) return false;
    return true;
  }
};

// A tensor of a request: how its axes are arranged, and its target.
struct Fitted {
  hami::Tensor given;
  Target target;
  Shape shape;
  Shape strides;        // in elements
  std::size_t in = 0;   // of a tensor in CPU memory: where it goes in the memory of the batch
  std::size_t out = 0;  // of a tensor that is cast

  bool is_here() const { return given.device().device_type == kDLCUDA; }
  bool is_cast() const { return !same_type(given.dtype(), target.type); }
};

class FixTensor final : public CudaBackend {
 public:
  static constexpr const char* kForDevice = "cuda";
  FixTensor() : CudaBackend("FixTensor") {}

 private:
  struct Request {
    hami::Dict item;
    hami::Value data;
    std::vector<Fitted> parts;
    bool is_row = false;  // the tensors lack the batch axis
  };

  void setup(const hami::Params& params) override {
    read_engine();
    std::vector<std::string> names;
    for (const Target& input : engine_) names.push_back(input.name);
    const auto chosen = params.get<std::vector<std::string>>("inputs");
    has_keys_ = !engine_.empty() || !chosen.empty();
    keys_ = hami::ModelKeys("FixTensor", engine_.empty() ? chosen : names, {}, chosen);
    if (const auto name = params.get<std::optional<std::string>>("dtype")) {
      type_ = type_of(*name);
      if (!type_)
        throw hami::Error(HAMI_FAILED_PRECONDITION, "FixTensor: \"dtype\" is not a known type: \"" + *name + "\"");
    }
    exact_ = params.get<std::optional<bool>>("exact").value_or(type_.has_value());
    const hami::Value shape = params.value("shape");
    if (shape.is_none()) return;
    const auto sizes = numbers_of(shape);
    if (!sizes || !std::all_of(sizes->begin(), sizes->end(),
                               [](double size) { return size >= kAnySize && size == std::floor(size); }))
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        "FixTensor: \"shape\" must be a list of sizes from 0 on, or -1 for any");
    shape_ = Shape(sizes->begin(), sizes->end());
  }

  void read_engine() {
    const std::optional<hami::Value> announced = options().find("engine_inputs");
    if (!announced || announced->is_none()) return;
    for (const hami::Value& entry : announced->as_list()) {
      Target input;
      for (const auto& [key, value] : entry.as_dict()) {
        if (key == "name") input.name = value.as_text();
        if (key == "batch_axis") input.has_batch_axis = value.as_bool();
        if (key == "dtype") {
          const auto type = type_of(value.as_text());
          if (!type)
            throw hami::Error(HAMI_FAILED_PRECONDITION,
                              "FixTensor: the engine takes a type that is not known: " + std::string(value.as_text()));
          input.type = *type;
        }
        if (key == "shape" && !value.is_none()) {
          input.shape.emplace();
          for (const hami::Value& size : value.as_list()) input.shape->push_back(size.as_int());
        }
      }
      engine_.push_back(std::move(input));
    }
  }

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    Layout layout;
    for_each(batch, [&](const hami::Dict& item) {
      Request request = fit(item);
      for (Fitted& part : request.parts) {
        if (!part.is_here()) part.in = layout.add(part.given.nbytes());
        if (part.is_cast()) part.out = layout.add(count_of(part.shape) * item_size(part.target.type));
      }
      requests.push_back(std::move(request));
    });
    const std::shared_ptr<Memory> memory = layout.size() > 0 ? allocate(layout.size()) : nullptr;
    std::vector<Upload> uploads;
    std::vector<hami_cuda_cast> casts;
    for (Request& request : requests)
      for (Fitted& part : request.parts) {
        if (!part.is_here()) {
          uploads.push_back({part.given, memory->start() + part.in});
          part.given = device_tensor(memory, part.in, part.given.dtype(), part.given.shape());
        }
        if (part.is_cast() && count_of(part.shape) > 0) casts.push_back(cast_of(part, memory->start() + part.out));
      }
    upload(uploads);
    if (!casts.empty()) device().kernels().cast(*stream(), casts);
    for (const Request& request : requests) {
      std::size_t next = 0;
      request.item["result"] = map_parts(request.data, [&](const hami::Value&) -> hami::Value {
        const Fitted& part = request.parts[next++];
        if (part.is_cast()) return device_tensor(memory, part.out, part.target.type, part.shape);
        if (part.shape == part.given.shape()) return part.given;
        return part_view(part.given, 0, part.shape, part.strides);
      });
      if (request.is_row)
        request.item[kTensorRows] = hami::Value(kWithoutBatchAxis);
      else
        request.item.erase(kTensorRows);
    }
  }

  // Without an engine, the core hands only data on the device to this backend.
  Request fit(const hami::Dict& item) {
    Request request{item, has_keys_ ? keys_.data_of(item) : data_of(item, name()), {}};
    std::vector<std::string> keys;
    if (request.data.kind() == HAMI_DICT)
      for (const auto& entry : request.data.as_dict()) keys.push_back(entry.first);
    map_parts(request.data, [&](const hami::Value& value) {
      Fitted part{engine_.empty() ? tensor(value) : any_tensor(value), {}, {}, {}};
      if (!number_of(part.given.dtype()))
        throw hami::Error(HAMI_DATA_TYPE, "FixTensor takes real numbers, got " + show(part.given));
      part.shape = part.given.shape();
      part.strides.assign(part.given.view().strides, part.given.view().strides + part.given.view().ndim);
      if (!part.is_here()) make_row_major(part);
      request.parts.push_back(std::move(part));
      return hami::Value();
    });
    set_targets(request.parts, keys, request.data.kind() == HAMI_DICT);
    request.is_row =
        !shape_ && !engine_.empty() && std::all_of(request.parts.begin(), request.parts.end(), [](const Fitted& part) {
      return part.target.has_batch_axis && part.target.shape && part.shape.size() + 1 == part.target.shape->size();
    });
    for (Fitted& part : request.parts) arrange(part, request.is_row);
    return request;
  }

  // As the tensor is on the device after it was copied there.
  static void make_row_major(Fitted& part) {
    std::int64_t step = 1;
    for (std::size_t axis = part.shape.size(); axis-- > 0;) {
      part.strides[axis] = step;
      step *= part.shape[axis];
    }
  }

  // The inputs of the engine for the parts, by their order or, of a dict, by their names; parameters replace them.
  void set_targets(std::vector<Fitted>& parts, const std::vector<std::string>& keys, bool is_dict) const {
    const bool has_engine = !engine_.empty() && !(shape_ && type_);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Target target;
      if (has_engine) {
        const auto found = std::find_if(engine_.begin(), engine_.end(),
                                        [&](const Target& input) { return is_dict && input.name == keys[i]; });
        if (parts.size() != engine_.size() || (is_dict && found == engine_.end())) refuse_structure(parts.size(), keys);
        target = is_dict ? *found : engine_[i];
      }
      if (shape_) {
        target.shape = shape_;
        target.has_batch_axis = false;
      }
      if (type_ || !has_engine) target.type = type_.value_or(parts[i].given.dtype());
      parts[i].target = std::move(target);
    }
    if (has_engine && parts.empty()) refuse_structure(0, keys);
  }

  [[noreturn]] void refuse_structure(std::size_t count, const std::vector<std::string>& keys) const {
    std::string inputs;
    for (const Target& input : engine_) inputs += (inputs.empty() ? "" : ", ") + input.name;
    std::string given;
    for (const std::string& key : keys) given += (given.empty() ? "" : ", ") + key;
    throw hami::Error(HAMI_REQUEST, "FixTensor: the engine has the inputs [" + inputs + "], got " +
                                        (given.empty() ? std::to_string(count) + " tensors" : "[" + given + "]"));
  }

  void arrange(Fitted& part, bool is_row) const {
    if (is_row) {
      part.shape.insert(part.shape.begin(), 1);
      part.strides.insert(part.strides.begin(), 0);
    }
    if (!part.target.takes(part.shape) && (shape_ || !permute(part))) refuse(part, HAMI_REQUEST, "");
    const DLDataType from = part.given.dtype();
    const bool may_round = !exact_ && is_float(from) && is_float(part.target.type);
    if (!may_round && !casts_safely(from, part.target.type))
      refuse(part, HAMI_DATA_TYPE, "; a cast from " + type_name(from) + " would lose values");
  }

  // Images with channels last as channels first, or the reverse, if the target takes those.
  static bool permute(Fitted& part) {
    if (part.shape.size() != 4) return false;
    constexpr std::array<std::size_t, 4> kOrders[] = {{0, 3, 1, 2}, {0, 2, 3, 1}};
    for (const auto& order : kOrders) {
      Shape shape;
      Shape strides;
      for (const std::size_t axis : order) {
        shape.push_back(part.shape[axis]);
        strides.push_back(part.strides[axis]);
      }
      if (!part.target.takes(shape)) continue;
      part.shape = std::move(shape);
      part.strides = std::move(strides);
      return true;
    }
    return false;
  }

  [[noreturn]] void refuse(const Fitted& part, std::int32_t code, const std::string& why) const {
    const Target& target = part.target;
    std::string wanted;
    if (type_ || !target.name.empty()) wanted = type_name(target.type);
    if (target.shape) wanted += (wanted.empty() ? "" : " ") + show(*target.shape);
    if (!target.name.empty()) wanted += " for input \"" + target.name + "\" of the engine";
    throw hami::Error(code, "FixTensor takes " + wanted + ", got " + show(part.given) + why);
  }

  hami_cuda_cast cast_of(const Fitted& part, CUdeviceptr to) const {
    if (part.shape.size() > HAMI_CUDA_MAX_AXES)
      throw hami::Error(HAMI_DATA_TYPE, "FixTensor casts tensors of at most " + std::to_string(HAMI_CUDA_MAX_AXES) +
                                            " axes, got " + show(part.given));
    hami_cuda_cast cast{};
    cast.from_type = *number_of(part.given.dtype());
    cast.to_type = *number_of(part.target.type);
    hami_cuda_copy& copy = cast.copy;
    copy.from = static_cast<const unsigned char*>(part.given.view().data);
    copy.to = reinterpret_cast<unsigned char*>(to);
    copy.count = static_cast<long long>(count_of(part.shape));
    copy.size = static_cast<int>(item_size(part.given.dtype()));
    copy.axes = static_cast<int>(part.shape.size());
    for (std::size_t axis = 0; axis < part.shape.size(); ++axis) {
      copy.shape[axis] = part.shape[axis];
      copy.strides[axis] = part.strides[axis] * copy.size;
    }
    return cast;
  }

  std::vector<Target> engine_;
  hami::ModelKeys keys_;  // where the inputs of the engine are in a request
  bool has_keys_ = false;
  std::optional<DLDataType> type_;
  std::optional<Shape> shape_;
  bool exact_ = true;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::FixTensor, "FixTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; shape: list? '-1: any size'"
    "; dtype: str? 'a NumPy name, or bfloat16'"
    "; exact: bool? 'whether to refuse casts that round floating-point numbers; default: true with `dtype`, else false'"
    "; inputs: list = '' 'read each input of the engine from the key of its name: the names of all; default: if there is no "
    "`data`'",
    "Make tensors fit the engine of the instance, or check their shape and cast them to `dtype`.\n"
    "\n"
    "An engine announces its inputs: FixTensor casts, moves and permutes the data, and adds the batch axis. Parameters\n"
    "replace what the engine says. A request fails if its tensor does not fit. `data` is a tensor, or a list or dict of\n"
    "tensors. The core hands data on CUDA devices to this backend.");
