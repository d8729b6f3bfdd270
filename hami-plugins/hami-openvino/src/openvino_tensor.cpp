// OpenvinoTensor: the backend, and the entry point of the plugin.
#include <algorithm>
#include <hami/backend.hpp>
#include <memory>
#include <optional>

#include "batch_runner.hpp"
#include "error.hpp"

namespace hami_openvino {
namespace {

// OpenVINO computes float32 models in bfloat16 or float16 where the device is faster with it. A model computes in float32
// unless the user chooses otherwise, by the parameter or by a property of OpenVINO. NPUs have no float32.
void set_precision(Settings& settings, const std::optional<std::string>& precision) {
  constexpr const char* kHint = "INFERENCE_PRECISION_HINT";
  const auto has = [&](const char* name) {
    return std::any_of(settings.properties.begin(), settings.properties.end(),
                       [&](const auto& property) { return property.first == name; });
  };
  if (has(kHint) || precision == "auto") return;
  const bool chooses_itself = has("EXECUTION_MODE_HINT") || settings.device.find("NPU") != std::string::npos;
  if (precision || !chooses_itself) settings.properties.emplace_back(kHint, precision.value_or("f32"));
}

// Translates parameters into OpenVINO properties. A parameter of 0 leaves the choice to OpenVINO.
Settings read_settings(const hami::Params& params, const hami::Dict& options) {
  Settings settings{params.get<std::optional<std::string>>("library").value_or(""),
                    params.get<std::string>("model"),
                    params.get<std::string>("device"),
                    {},
                    params.get<std::optional<bool>>("batched"),
                    Plan::of(options)};
  if (settings.library.empty())
    fail_setup(
        "parameter \"library\" is missing; set it to the path of libopenvino_c.so, or install hami-openvino, which "
        "finds the library of the openvino package");
  const auto set = [&](const std::string& name, const std::string& value) {
    settings.properties.emplace_back(name, value);
  };
  const std::string hint = params.get<std::string>("hint");
  if (hint != "none") set("PERFORMANCE_HINT", hint == "latency" ? "LATENCY" : "THROUGHPUT");
  if (const int streams = params.get<int>("streams")) set("NUM_STREAMS", std::to_string(streams));
  if (const int threads = params.get<int>("threads")) set("INFERENCE_NUM_THREADS", std::to_string(threads));
  if (const auto folder = params.get<std::optional<std::string>>("cache_dir")) set("CACHE_DIR", *folder);
  for (const std::string& property : params.get<std::vector<std::string>>("properties")) {
    const std::size_t equals = property.find('=');
    if (equals == std::string::npos || equals == 0)
      fail_setup("each of \"properties\" must have the form KEY=value, got \"" + property + "\"");
    set(property.substr(0, equals), property.substr(equals + 1));
  }
  set_precision(settings, params.get<std::optional<std::string>>("precision"));
  return settings;
}

// The option `engine_inputs`, by which FixTensor makes data fit.
hami::Value announce(const Model& model) {
  std::vector<hami::Value> inputs;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const Port& port = model.inputs()[i];
    hami::Value shape;
    if (port.has_rank) {
      const std::vector<hami::Value> sizes(port.shape.begin(), port.shape.end());
      shape = hami::Value::list(sizes);
    }
    inputs.push_back(hami::Value::dict({{"name", port.name},
                                        {"dtype", std::string(port.type->name)},
                                        {"shape", shape},
                                        {"device", "cpu"},
                                        {"batch_axis", model.axes().inputs[i] == 0}}));
  }
  return hami::Value::list(inputs);
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const Port& port : model.inputs()) names.push_back(port.name);
  return names;
}

// Inputs of the file on which no output depends: a request may have or lack them.
std::vector<std::string> unused_inputs(const Model& model, const Plan& plan) {
  std::vector<std::string> names;
  for (const std::string& name : plan.inputs)
    if (model.is_unused_input(name)) names.push_back(name);
  return names;
}

class OpenvinoTensor : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags =
      HAMI_THREAD_SERIALIZED |
      HAMI_LIGHTWEIGHT;  // the infer request of an instance runs once at a time; all share a model

 private:
  void init_(const hami::Params& params) override {
    const Settings settings = read_settings(params, options());
    cast_ = read_cast(params.get<std::string>("cast"));
    session_.emplace(Model::open(settings));
    const Model& model = session_->model();
    options()["engine_inputs"] = announce(model);
    keys_ = {"OpenvinoTensor", names_of(model), unused_inputs(model, settings.plan),
             params.get<std::vector<std::string>>("inputs")};
    if (const auto& tested = model.tested())
      options()["openvino_tested"] = hami::Value::dict({{"independent", tested->independent}, {"why", tested->why}});
    report_.watched = [this] { count("watched_batches"); };
    report_.stopped = [this, file = settings.model](const std::string& found) {
      count("joining_stopped");
      log("rows of \"" + file + "\" influence each other: " + found +
          "; requests run one by one from now on; set batched = false");
    };
    if (instance() > 0) return;
    if (settings.batched == true && settings.plan.rows == Plan::Rows::kMix)
      log("batched = true joins requests of \"" + settings.model + "\" although " + settings.plan.why);
    if (!model.why_not_joined().empty())
      log("requests of \"" + settings.model + "\" run one by one: " + model.why_not_joined(), HAMI_LOG_INFO);
    log("\"" + settings.model + "\" on " + settings.device + " computes with INFERENCE_PRECISION_HINT = " +
            (model.precision().empty() ? "(not reported)" : model.precision()),
        HAMI_LOG_INFO);
  }
  void forward_(hami::Batch batch) override { run_batch(batch, *session_, keys_, cast_, report_); }
  // One request at a time if requests are not joined, N rows where the model takes exactly N. With a free axis the node
  // learns the batch size.
  hami::Range range_() const override {
    const Model& model = session_->model();
    if (!model.joins()) return {1, 1};
    if (model.batch_rows() == kDynamic) return {1, HAMI_AUTO};
    return {1, static_cast<std::uint64_t>(model.batch_rows())};
  }

  std::optional<Session> session_;
  hami::ModelKeys keys_;
  Cast cast_ = Cast::kExact;
  BatchReport report_;
};

}  // namespace
}  // namespace hami_openvino

HAMI_REGISTER(
    hami_openvino::OpenvinoTensor, "OpenvinoTensor",
    "model: file 'ONNX file, or .xml file of an OpenVINO IR';"
    "device: str = 'CPU' 'OpenVINO device: CPU, GPU, NPU, AUTO, …';"
    "hint: str = 'latency' {latency,throughput,none} 'performance hint of OpenVINO';"
    "streams: int = 0 {0..} 'number of requests that the device runs in parallel; 0: chosen by the hint';"
    "threads: int = 0 {0..} 'number of CPU threads for this model; 0: chosen by OpenVINO';"
    "cache_dir: path? 'folder for compiled models, which makes the next start faster';"
    "properties: list = '' 'further OpenVINO properties, each as KEY=value';"
    "precision: str? {f32,bf16,f16,auto} 'arithmetic of float32 models; auto: what OpenVINO considers fastest; default: f32';"
    "batched: bool? 'whether requests are joined; default: if a proof or a test shows that rows are independent';"
    "inputs: list = '' 'read each input from the key of its name: the names of all inputs; default: if there is no `data`';"
    "cast: str = 'exact' 'conversion of inputs: exact (values that the declared type has), safe, or false';"
    "library: library? 'path of libopenvino_c.so; default: that of the installed openvino package'",
    "Run an ONNX or OpenVINO model with OpenVINO.\n"
    "\n"
    "OpenvinoTensor(model='detector.onnx', hint=throughput)\n"
    "\n"
    "`data` is a tensor on the CPU. A model with several inputs takes a dict by input name, or a list in the order of\n"
    "the inputs. Without `data`, each input is the key of its name. `result` is a hami.Tensor, or a dict by output name if\n"
    "the model has several outputs, which are also keys.");
HAMI_PLUGIN("hami-openvino", HAMI_OPENVINO_VERSION)
