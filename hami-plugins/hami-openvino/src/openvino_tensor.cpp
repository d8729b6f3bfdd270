// OpenvinoTensor: a model of OpenVINO as a backend, and the plugin's entry.
#include <hami/backend.hpp>
#include <memory>
#include <optional>

#include "run.hpp"

namespace hami_openvino {
namespace {

// "latency" to LATENCY, a setting of 0 to OpenVINO's own choice.
Settings settings_of(const hami::Params& params) {
  Settings settings{params.get<std::optional<std::string>>("library").value_or(""),
                    params.get<std::string>("model"),
                    params.get<std::string>("device"),
                    {},
                    params.get<std::optional<bool>>("batched")};
  if (settings.library.empty())
    throw hami::Error(
        HAMI_FAILED_PRECONDITION,
        "OpenvinoTensor: \"library\" is needed where no Python package finds it: the path of libopenvino_c.so");
  const auto set = [&](const char* name, const std::string& value) { settings.properties.emplace_back(name, value); };
  const std::string hint = params.get<std::string>("hint");
  if (hint != "none") set("PERFORMANCE_HINT", hint == "latency" ? "LATENCY" : "THROUGHPUT");
  if (const int streams = params.get<int>("streams")) set("NUM_STREAMS", std::to_string(streams));
  if (const int threads = params.get<int>("threads")) set("INFERENCE_NUM_THREADS", std::to_string(threads));
  if (const auto folder = params.get<std::optional<std::string>>("cache_dir")) set("CACHE_DIR", *folder);
  for (const std::string& property : params.get<std::vector<std::string>>("properties")) {
    const std::size_t equals = property.find('=');
    if (equals == std::string::npos || equals == 0)
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        "OpenvinoTensor: \"properties\" are written KEY=value, got \"" + property + "\"");
    set(property.substr(0, equals).c_str(), property.substr(equals + 1));
  }
  return settings;
}

class OpenvinoTensor : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_ANY_THREAD;  // its infer request runs once at a time

 private:
  void init_(const hami::Params& params) override {
    session_.emplace(Model::open(settings_of(params)));
  }
  void forward_(hami::Batch batch) override { run_batch(batch, *session_); }
  // A batch of N takes N, no batch one at a time; of any size is for the node to say.
  hami::Range range_() const override {
    const Model& model = session_->model();
    if (model.rows() == kFree) return {};
    const std::uint64_t rows = model.is_batched() ? static_cast<std::uint64_t>(model.rows()) : 1;
    return {rows, rows};
  }

  std::optional<Session> session_;
};

}  // namespace
}  // namespace hami_openvino

HAMI_REGISTER(
    hami_openvino::OpenvinoTensor, "OpenvinoTensor",
    "model: path 'the ONNX file, or the .xml of an IR';"
    "device: str = 'CPU' 'CPU, GPU, NPU, AUTO, … as OpenVINO names it';"
    "hint: str = 'latency' {latency,throughput,none} 'what OpenVINO chooses its settings for';"
    "streams: int = 0 {0..} 'how many requests the device runs at a time; 0: as the hint says';"
    "threads: int = 0 {0..} 'threads of the CPU for this model; 0: as OpenVINO chooses';"
    "cache_dir: path? 'folder for compiled models, for a faster start the next time';"
    "properties: list = '' 'more properties of OpenVINO, each KEY=value';"
    "batched: bool? 'whether axis 0 is a batch; if not said: where the outputs have the rows of the inputs';"
    "library: path? 'libopenvino_c.so; if not said: that of the installed openvino package'",
    "Runs a model of OpenVINO on `data`: a tensor, a dict by input name or a list; `result`: a tensor or a dict.");
HAMI_PLUGIN("hami-openvino", HAMI_OPENVINO_VERSION)
