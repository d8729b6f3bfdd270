// OpenvinoTensor: the backend, and the entry point of the plugin.
#include <hami/backend.hpp>
#include <memory>
#include <optional>

#include "batch_runner.hpp"
#include "error.hpp"

namespace hami_openvino {
namespace {

// Translates parameters into OpenVINO properties. A parameter of 0 leaves the choice to OpenVINO.
Settings read_settings(const hami::Params& params) {
  Settings settings{params.get<std::optional<std::string>>("library").value_or(""),
                    params.get<std::string>("model"),
                    params.get<std::string>("device"),
                    {},
                    params.get<std::optional<bool>>("batched")};
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
  return settings;
}

// The option `engine_inputs`, by which FixTensor makes data fit.
hami::Value announce(const Model& model) {
  std::vector<hami::Value> inputs;
  for (const Port& port : model.inputs()) {
    hami::Value shape;
    if (port.has_rank) {
      const std::vector<hami::Value> sizes(port.shape.begin(), port.shape.end());
      shape = hami::Value::list(sizes);
    }
    inputs.push_back(hami::Value::dict({{"name", port.name},
                                        {"dtype", std::string(port.type->name)},
                                        {"shape", shape},
                                        {"device", "cpu"},
                                        {"batch_axis", model.is_batched()}}));
  }
  return hami::Value::list(inputs);
}

class OpenvinoTensor : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags =
      HAMI_THREAD_SERIALIZED |
      HAMI_LIGHTWEIGHT;  // the infer request of an instance runs once at a time; all share a model

 private:
  void init_(const hami::Params& params) override {
    session_.emplace(Model::open(read_settings(params)));
    options()["engine_inputs"] = announce(session_->model());
  }
  void forward_(hami::Batch batch) override { run_batch(batch, *session_); }
  // N rows for a batch of exactly N, one request without a batch axis. With a free axis the node learns how many rows pay.
  hami::Range range_() const override {
    const Model& model = session_->model();
    if (model.batch_rows() == kDynamic) return {1, HAMI_AUTO};
    const std::uint64_t rows = model.is_batched() ? static_cast<std::uint64_t>(model.batch_rows()) : 1;
    return {rows, rows};
  }

  std::optional<Session> session_;
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
    "batched: bool? 'whether axis 0 is a batch axis; default: detected from the shapes of the model';"
    "library: library? 'path of libopenvino_c.so; default: that of the installed openvino package'",
    "Run an ONNX or OpenVINO model with OpenVINO.\n"
    "\n"
    "OpenvinoTensor(model='detector.onnx', hint=throughput)\n"
    "\n"
    "`data` is a tensor on the CPU. A model with several inputs takes a dict by input name, or a list in the order of\n"
    "the inputs. `result` is a hami.Tensor, or a dict by output name if the model has several outputs.");
HAMI_PLUGIN("hami-openvino", HAMI_OPENVINO_VERSION)
