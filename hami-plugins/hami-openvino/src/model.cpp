// Opens models once per process and settings, and compiles them.
#include "model.hpp"

#include <unistd.h>

#include <array>
#include <map>
#include <tuple>

#include "error.hpp"

namespace hami_openvino {
namespace {

// Models with equal keys are one model. Replacing a file changes the key.
std::string key_of(const Settings& settings, const ModelFiles& files) {
  std::string key = settings.library + '\n' + settings.device + '\n';
  key += settings.batched ? (*settings.batched ? "batched" : "not batched") : "";
  for (const auto& [name, value] : settings.properties) key += '\n' + name + '=' + value;
  return key + files.fingerprint();
}

// A forked child has none of OpenVINO's threads. Even a model that the child opens itself would wait for them
// indefinitely.
void check_is_not_forked() {
  static const pid_t first_user = getpid();
  if (getpid() == first_user) return;
  fail_setup(
      "OpenVINO was in use when this process was forked, and does not work in the child; build pipes after forking, or "
      "start processes with \"spawn\"");
}

}  // namespace

std::shared_ptr<const Model> Model::open(const Settings& settings) {
  // Guards `open_models`. Held while a model is opened, so that many instances open it once.
  static std::mutex mutex;
  static auto& open_models = *new std::map<std::string, std::weak_ptr<const Model>>;
  const ModelFiles files = find_model_files(settings.model);
  const std::string key = key_of(settings, files);
  check_is_not_forked();  // before the mutex, which a thread of the parent may have held
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Model>& known = open_models[key];
  if (std::shared_ptr<const Model> model = known.lock()) return model;
  std::shared_ptr<const Model> model(new Model(Library::load(settings.library), settings, files));
  known = model;
  return model;
}

Model::Model(const Library& library, const Settings& settings, const ModelFiles& files)
    : settings_(settings), path_(files.model.string()), graph_(library, files) {
  inputs_ = graph_.inputs();
  outputs_ = graph_.outputs();
  batch_rows_ = find_batch_rows(graph_, inputs_, outputs_, settings.batched);
  compiled_ = compile();
}

std::optional<std::size_t> Model::find_input(const std::string& name) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].name == name) return i;
  return graph_.find_input(name);
}

std::shared_ptr<CompiledModel> Model::compiled() const {
  const std::lock_guard lock(compiling_);
  if (compiled_->poisoned) compiled_ = compile();
  return compiled_;
}

Owned<ov_infer_request_t> Model::create_infer_request(const CompiledModel& compiled) const {
  Owned<ov_infer_request_t> request(library().api().ov_infer_request_free);
  library().check(library().api().ov_compiled_model_create_infer_request(compiled.handle.get(), request.out()),
                  "OpenvinoTensor: cannot create an infer request");
  return request;
}

std::shared_ptr<CompiledModel> Model::compile() const {
  // ov_core_compile_model is variadic and takes names and values alternately. It reads the first `count` of them.
  constexpr std::size_t kMaxProperties = 16;
  if (settings_.properties.size() > kMaxProperties)
    fail_setup("at most " + std::to_string(kMaxProperties) + " OpenVINO properties are supported, got " +
               std::to_string(settings_.properties.size()) + " (those of other parameters included)");
  std::array<const char*, 2 * kMaxProperties> arguments{};
  std::size_t count = 0;
  for (const auto& [name, value] : settings_.properties) {
    arguments[count++] = name.c_str();
    arguments[count++] = value.c_str();
  }
  auto compiled = std::make_shared<CompiledModel>();
  compiled->handle = Owned<ov_compiled_model_t>(library().api().ov_compiled_model_free);
  const ov_status_e status = std::apply([&](auto... all) {
    return library().api().ov_core_compile_model(library().core(), graph_.handle(), settings_.device.c_str(), count,
                                                 compiled->handle.out(), all...);
  }, arguments);
  if (status == 0) return compiled;
  const std::string reason = library().last_error();
  std::string devices;
  for (const std::string& device : library().devices()) devices += (devices.empty() ? "" : ", ") + device;
  fail_setup("OpenVINO " + library().version() + " cannot compile \"" + path_ + "\" for device \"" + settings_.device +
             "\"; available devices are " + devices + ", and AUTO and HETERO over these: " + reason);
}

}  // namespace hami_openvino
