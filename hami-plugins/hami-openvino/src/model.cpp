// Opens models once per process and settings, and compiles them.
#include "model.hpp"

#include <unistd.h>

#include <array>
#include <map>
#include <set>
#include <tuple>

#include "error.hpp"
#include "row_test.hpp"

namespace hami_openvino {
namespace {

// One of so many joined batches is watched. It costs one more run of one request, which is below 1 % of the work.
constexpr unsigned kWatchEvery = 256;

// Models with equal keys are one model. Replacing a file changes the key.
std::string key_of(const Settings& settings, const ModelFiles& files) {
  std::string key = settings.library + '\n' + settings.device + '\n';
  key += settings.batched ? (*settings.batched ? "batched" : "not batched") : "";
  for (const auto& [name, value] : settings.properties) key += '\n' + name + '=' + value;
  key += settings.plan.fingerprint();
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
  std::shared_ptr<Model> model(new Model(hami::library_at<Library>(settings.library), settings, files));
  decide_joining(model);
  known = model;
  return model;
}

Model::Model(const Library& library, const Settings& settings, const ModelFiles& files)
    : settings_(settings), path_(files.model.string()), graph_(library, files) {
  inputs_ = graph_.inputs();
  outputs_ = graph_.outputs();
  if (!settings.plan.inputs.empty())
    places_ = graph_.rename(settings.plan.inputs, settings.plan.outputs, inputs_, outputs_);
  axes_ = find_batch_axes(graph_, inputs_, outputs_, settings.batched, settings.plan);
  compiled_ = compile();
  const std::string computed = precision();
  computes_in_16_bits_ = computed == "bf16" || computed == "f16";
}

void Model::decide_joining(const std::shared_ptr<Model>& model) {
  const Settings& settings = model->settings_;
  if (!model->is_batched() || model->batch_rows() == 1) return;
  if (settings.batched == true || settings.plan.rows == Plan::Rows::kIndependent) {
    model->joins_ = true;
    return;
  }
  if (settings.plan.rows == Plan::Rows::kMix) {
    model->why_not_joined_ = settings.plan.why;
  } else {
    Session session(model);
    const RowTest test = test_rows(session, [&](const std::vector<Shape>& shapes) {
      const bool accepted = model->graph_.reshape(shapes);
      std::vector<Shape> original;
      for (const Port& port : model->inputs_) original.push_back(port.shape);
      if (!model->graph_.reshape(original)) fail_setup("cannot restore the shapes of the model");
      return accepted;
    });
    model->joins_ = test.independent;
    if (test.ran) model->tested_ = test;
    if (!test.independent)
      model->why_not_joined_ = (settings.plan.why.empty() ? "" : settings.plan.why + "; ") + test.why;
  }
  // A fixed number of rows that may not be shared between requests is the shape of one request.
  if (!model->joins_ && model->batch_rows() != kDynamic)
    model->axes_ = {kNoBatchAxis, std::vector<int>(model->inputs_.size(), kShared),
                    std::vector<int>(model->outputs_.size(), kShared)};
}

std::string Model::show_row_axes() const {
  std::string text;
  for (const int axis : std::set<int>(axes_.inputs.begin(), axes_.inputs.end()))
    if (axis != kShared) text += (text.empty() ? "axis " : " or ") + std::to_string(axis);
  return text;
}

bool Model::is_watch_due() const noexcept {
  return settings_.batched != true &&
         joined_batches_.fetch_add(1, std::memory_order_relaxed) % kWatchEvery == kWatchEvery - 1;
}

std::string Model::precision() const {
  char* value = nullptr;
  const Api& api = library().api();
  if (api.ov_compiled_model_get_property(compiled_->handle.get(), "INFERENCE_PRECISION_HINT", &value) != 0 || !value)
    return "";
  const std::string text = value;
  api.ov_free(value);
  return text;
}

bool Model::is_unused_input(const std::string& name) const {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (!places_[i] && settings_.plan.inputs[i] == name) return true;
  return false;
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
