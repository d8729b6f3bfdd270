// Opens models once per process and settings, and reads their inputs and outputs.
#include "session.hpp"

#include <pthread.h>

#include "model_in_memory.hpp"
#include "plugin_providers.hpp"
#include "profile.hpp"

#include <hami/elements.hpp>
#include <map>
#include <mutex>
#include <utility>

namespace hami_onnx {
namespace {

struct NumberType {
  int onnx_type;  // of a tensor's elements, in ONNX Runtime
  DLDataType dtype;
};
constexpr NumberType kNumberTypes[] = {{1, hami::kFloat32},  {2, hami::kUInt8},   {3, hami::kInt8},
                                       {4, hami::kUInt16},   {5, hami::kInt16},   {6, hami::kInt32},
                                       {7, hami::kInt64},    {9, hami::kBool8},   {10, hami::kFloat16},
                                       {11, hami::kFloat64}, {12, hami::kUInt32}, {13, hami::kUInt64}};

// On x86-64, onnxruntime 1.32 makes an int8 QuantizeLinear of opset 21 that it has moved behind a Transpose, Reshape, Slice
// or MaxPool uint8, but not its attribute, and then refuses its own graph. Without that move, it loads the model.
constexpr char kRefusedOwnGraph[] = "output_dtype INT8 does not match y_zero_point type UINT8";
constexpr char kQdqPropagation[] = "QDQPropagationTransformer";

// Sessions of this process. Never destroyed, because backends may be freed after static objects.
struct Opened {
  std::mutex mutex;  // guards `sessions`
  std::map<std::string, std::weak_ptr<const Session>> sessions;
};

Opened*& opened() {
  static Opened* current = [] {
    // The threads of the parent's sessions do not exist in a forked child, and a thread of the parent may hold the mutex.
    pthread_atfork(nullptr, nullptr, [] { opened() = new Opened; });
    return new Opened;
  }();
  return current;
}

std::string key_of(const Settings& settings) {
  const bool has_busy = settings.busy_threads < settings.threads;
  std::string key = settings.library + '\n' + settings.model + '\n' + std::to_string(settings.threads) + '\n' +
                    std::to_string(has_busy ? settings.busy_threads : 0) + '\n' + settings.version + '\n' +
                    settings.memory;
  for (const std::string& library : settings.custom_operators) key += '\n' + library;
  for (const std::string& at : settings.freed) key += "\n\t" + at;
  for (const std::string& provider : settings.providers) key += "\n\n" + provider;
  if (!settings.cpu_fallback) key += "\n\n";
  if (!settings.profile.empty()) key += "\n\r" + settings.profile;
  return key;
}

using Count = OrtStatus* (*)(const OrtSession*, std::size_t*);
using Name = OrtStatus* (*)(const OrtSession*, std::size_t, OrtAllocator*, char**);
using Type = OrtStatus* (*)(const OrtSession*, std::size_t, OrtTypeInfo**);

void read_tensor_type(const Library& library, const OrtTensorTypeAndShapeInfo* info, Port& port) {
  const Api& api = library.api();
  std::size_t axes = 0;
  library.check(api.GetTensorElementType(info, &port.onnx_type));
  library.check(api.GetDimensionsCount(info, &axes));
  std::vector<const char*> names(axes, nullptr);
  port.shape.resize(axes);
  library.check(api.GetDimensions(info, port.shape.data(), axes));
  library.check(api.GetSymbolicDimensions(info, names.data(), axes));
  for (const char* name : names) port.axis_names.emplace_back(name ? name : "");
  for (std::int64_t& size : port.shape)
    if (size < 0) size = kAnySize;
  port.dtype = dtype_of_type(port.onnx_type);
}

// Names are keys of requests and results.
void check_utf8(const std::string& name) {
  try {
    const hami::Value text(name);
  } catch (const hami::Error&) {
    throw hami::Error(HAMI_FAILED_PRECONDITION, "the name of an input or output is not valid UTF-8");
  }
}

std::vector<Port> read_ports(const Library& library, const OrtSession* session, Count count, Name name, Type type) {
  const Api& api = library.api();
  std::size_t size = 0;
  library.check(count(session, &size));
  std::vector<Port> ports(size);
  for (std::size_t i = 0; i < size; ++i) {
    char* text = nullptr;
    library.check(name(session, i, library.allocator(), &text));
    ports[i].name = text;
    library.check(api.AllocatorFree(library.allocator(), text));
    check_utf8(ports[i].name);
    Owned<OrtTypeInfo> info(api.ReleaseTypeInfo);
    library.check(type(session, i, info.out()));
    int kind = 0;
    library.check(api.GetOnnxTypeFromTypeInfo(info.get(), &kind));
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    if (kind == kTensorType) library.check(api.CastTypeInfoToTensorInfo(info.get(), &tensor));
    if (tensor) read_tensor_type(library, tensor, ports[i]);
  }
  return ports;
}

// Runs that share the threads of a pool wait for each other: with a run for each core, one thread for each is faster. Other providers
// have threads of their own, and a profile is of one session: these have no other settings.
std::optional<Settings> busy_settings(const Settings& settings) {
  if (settings.busy_threads == 0 || settings.busy_threads >= settings.threads || !settings.providers.empty() ||
      !settings.profile.empty())
    return std::nullopt;
  Settings busy = settings;
  busy.threads = std::exchange(busy.busy_threads, 0);
  return busy;
}

std::map<std::string, std::vector<std::string>> read_assigned(const Library& library, const OrtSession* session) {
  const Api& api = library.api();
  std::map<std::string, std::vector<std::string>> operators;
  const OrtEpAssignedSubgraph* const* parts = nullptr;
  std::size_t size = 0;
  library.check(api.Session_GetEpGraphAssignmentInfo(session, &parts, &size));
  for (std::size_t i = 0; i < size; ++i) {
    const char* name = nullptr;
    const OrtEpAssignedNode* const* nodes = nullptr;
    std::size_t count = 0;
    library.check(api.EpAssignedSubgraph_GetEpName(parts[i], &name));
    library.check(api.EpAssignedSubgraph_GetNodes(parts[i], &nodes, &count));
    for (std::size_t j = 0; j < count; ++j) {
      const char* type = nullptr;
      library.check(api.EpAssignedNode_GetOperatorType(nodes[j], &type));
      operators[name].emplace_back(type);
    }
  }
  return operators;
}

}  // namespace

std::optional<DLDataType> dtype_of_type(int onnx_type) noexcept {
  for (const NumberType& type : kNumberTypes)
    if (type.onnx_type == onnx_type) return type.dtype;
  return std::nullopt;
}

std::string show_shape(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis > 0 ? ", " : "") + (shape[axis] == kAnySize ? "?" : std::to_string(shape[axis]));
  return text + "]";
}

std::string show_tensor(const hami::Tensor& tensor) {
  return hami::dtype_name(tensor.dtype()) + " " + show_shape(tensor.shape());
}

std::string Port::show() const { return (dtype ? hami::dtype_name(*dtype) : "?") + " " + show_shape(shape); }

std::shared_ptr<const Session> Session::open(const Settings& settings) {
  Opened& known = *opened();
  const std::lock_guard lock(known.mutex);
  std::weak_ptr<const Session>& found = known.sessions[key_of(settings)];
  if (std::shared_ptr<const Session> session = found.lock()) return session;
  const std::shared_ptr<const Session> session(new Session(settings));
  found = session;
  return session;
}

Session::Session(const Settings& settings)
    : library_(hami::library_at<Library>(settings.library)),
      threads_(settings.threads),
      profile_(settings.profile),
      runs_(library_, settings.memory == "shrink"),
      handle_(library_.api().ReleaseSession) {
  const Api& api = library_.api();
  Owned<OrtSessionOptions> options(api.ReleaseSessionOptions);
  library_.check(api.CreateSessionOptions(options.out()));
  library_.check(api.SetIntraOpNumThreads(options.get(), static_cast<int>(settings.threads)));
  library_.check(api.SetSessionLogSeverityLevel(options.get(), kErrors));
  if (settings.memory == "none") {
    library_.check(api.DisableCpuMemArena(options.get()));
    library_.check(api.DisableMemPattern(options.get()));
  }
  // Idle threads sleep, so that the pools of several models do not take time from each other. Small blocks of work: a run
  // does not wait for a thread of the pool that is busy with another run.
  library_.check(api.AddSessionConfigEntry(options.get(), "session.intra_op.allow_spinning", "0"));
  library_.check(api.AddSessionConfigEntry(options.get(), "session.inter_op.allow_spinning", "0"));
  library_.check(api.AddSessionConfigEntry(options.get(), "session.dynamic_block_base", "4"));
  for (const std::string& provider : settings.providers) use_provider(library_, options.get(), provider);
  const bool asks = !settings.providers.empty() && api.Session_GetEpGraphAssignmentInfo;
  if (asks) library_.check(api.AddSessionConfigEntry(options.get(), "session.record_ep_graph_assignment_info", "1"));
  if (!settings.cpu_fallback)
    library_.check(api.AddSessionConfigEntry(options.get(), "session.disable_cpu_ep_fallback", "1"));
  for (const std::string& library : settings.custom_operators)
    if (const std::string why = library_.take_message(api.RegisterCustomOpsLibrary_V2(options.get(), library.c_str()));
        !why.empty())
      fail(HAMI_FAILED_PRECONDITION, "\"custom_operators\" names \"" + library +
                                         "\", which is not a library of operators for onnxruntime " +
                                         library_.version() + ": " + why);
  if (!profile_.empty()) library_.check(api.EnableProfiling(options.get(), profile_.c_str()));
  std::string why = create(settings, options.get());
  if (why.find(kRefusedOwnGraph) != std::string::npos) {
    library_.check(
        api.AddSessionConfigEntry(options.get(), "optimization.disable_specified_optimizers", kQdqPropagation));
    why = create(settings, options.get());
  }
  if (!why.empty()) throw hami::Error(HAMI_FAILED_PRECONDITION, why);
  inputs_ = read_ports(library_, handle_.get(), api.SessionGetInputCount, api.SessionGetInputName,
                       api.SessionGetInputTypeInfo);
  optional_ = read_ports(library_, handle_.get(), api.SessionGetOverridableInitializerCount,
                         api.SessionGetOverridableInitializerName, api.SessionGetOverridableInitializerTypeInfo);
  outputs_ = read_ports(library_, handle_.get(), api.SessionGetOutputCount, api.SessionGetOutputName,
                        api.SessionGetOutputTypeInfo);
  if (asks) assigned_ = read_assigned(library_, handle_.get());
  for (const Port& port : outputs_) output_names_.push_back(port.name.c_str());
  if (const std::optional<Settings> busy = busy_settings(settings)) busy_.reset(new Session(*busy));
}

Session::~Session() {
  if (!profile_.empty() && handle_.get()) write_profile(library_, handle_.get(), profile_);
}

std::string Session::create(const Settings& settings, OrtSessionOptions* options) {
  const Api& api = library_.api();
  if (settings.freed.empty())
    return library_.take_message(api.CreateSession(library_.env(), settings.model.c_str(), options, handle_.out()));
  const ModelInMemory model(settings.model, settings.freed);
  const std::string folder = settings.model.substr(0, settings.model.rfind('/') + 1);
  library_.check(
      api.AddSessionConfigEntry(options, "session.model_external_initializers_file_folder_path", folder.c_str()));
  return library_.take_message(
      api.CreateSessionFromArray(library_.env(), model.data(), model.size(), options, handle_.out()));
}

std::vector<Owned<OrtValue>> Session::run(const std::vector<Input>& inputs, const Callers& callers) const {
  const Api& api = library_.api();
  std::vector<Owned<OrtValue>> held;
  std::vector<const char*> names;
  std::vector<const OrtValue*> values;
  for (const Input& input : inputs) {
    // The library reads inputs only. An empty tensor needs an address too.
    static char empty;
    void* const data = input.data ? const_cast<void*>(input.data) : &empty;
    Owned<OrtValue> value(api.ReleaseValue);
    library_.check(api.CreateTensorWithDataAsOrtValue(library_.cpu(), data, input.bytes, input.shape, input.axes,
                                                      input.port->onnx_type, value.out()),
                   HAMI_REQUEST);
    names.push_back(input.port->name.c_str());
    values.push_back(value.get());
    held.push_back(std::move(value));
  }
  std::vector<OrtValue*> results(outputs_.size(), nullptr);
  const Run run(runs_, callers);
  OrtStatus* const status = api.Run(handle_.get(), run.options(), names.data(), values.data(), values.size(),
                                    output_names_.data(), output_names_.size(), results.data());
  std::vector<Owned<OrtValue>> outputs;
  for (OrtValue* result : results) outputs.emplace_back(api.ReleaseValue, result);
  library_.check(status, HAMI_REQUEST);
  return outputs;
}

}  // namespace hami_onnx
