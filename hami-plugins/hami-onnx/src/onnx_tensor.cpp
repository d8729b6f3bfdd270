// OnnxTensor and OnnxSession: the native backends, and the entry point of the plugin.
#include <atomic>
#include <hami/elements.hpp>

#include "batch_runner.hpp"
#include "plugin_providers.hpp"

namespace hami_onnx {
namespace {

std::vector<std::string> names_of(const std::vector<Port>& ports) {
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(port.name);
  return names;
}

// Runs batches of a model that its child, OnnxModel in Python, has opened and examined. Models with values that are not
// tensors of numbers run in the child.
class OnnxTensor final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT;  // all instances share a session
  static constexpr std::uint32_t kMaxChildren = 1;
  static constexpr const char* kDefaultChild = "OnnxModel";

 private:
  void init_(const hami::Params&) override {
    plan_ = Plan::of(options());
    if (!plan_.is_native) return;
    session_ = Session::open(plan_.settings);
    plan_.keys =
        hami::ModelKeys("OnnxTensor", names_of(session_->inputs()), names_of(session_->optional()), plan_.chosen);
    report_.convert = [this](const hami::Dict& of, const hami::Value& data) {
      return ask(of, {{"task", "convert"}, {"data", data}});
    };
    report_.count = [this](std::string_view name, std::int64_t by) { count(name, by); };
    report_.is_watch_due = [this] { return plan_.watch_every > 0 && ++joined_batches_ % plan_.watch_every == 0; };
    report_.is_same = [this](const hami::Dict& of, const std::vector<hami::Value>& together,
                             const std::vector<hami::Value>& alone, std::int64_t rows) {
      return ask(of, {{"task", "compare"},
                      {"together", hami::Value::list(together)},
                      {"alone", hami::Value::list(alone)},
                      {"rows", rows}})
          .as_bool();
    };
  }

  void forward_(hami::Batch batch) override {
    if (plan_.is_native) return run_batch(batch, *session_, plan_, report_);
    children()[0].forward(batch);
  }

  // Lets OnnxModel do what is rare, in Python: it converts data, and compares rows, of which it logs and remarks a difference.
  hami::Value ask(const hami::Dict& of, const std::vector<std::pair<std::string, hami::Value>>& task) const {
    std::vector<hami::OwnItem> items;
    items.emplace_back(of);
    items[0].dict()["data"] = hami::Value::dict(task);
    children()[0].forward(items);
    if (const std::optional<hami::Error> error = items[0].dict().error()) throw *error;
    return items[0].dict().get("result");
  }

  // One request at a time if requests are not joined, N rows where the model takes exactly N. With a free axis the node
  // learns the batch size.
  hami::Range range_() const override {
    if (!plan_.is_native) return children()[0].range();
    if (!plan_.joins) return {1, 1};
    return {1, plan_.fixed > 0 ? static_cast<std::uint64_t>(plan_.fixed) : HAMI_AUTO};
  }

  Plan plan_;
  std::shared_ptr<const Session> session_;
  BatchReport report_;
  std::atomic<std::int64_t> joined_batches_{0};
};

hami::Value describe(const std::vector<Port>& ports) {
  std::vector<hami::Value> all;
  for (const Port& port : ports) {
    const std::vector<hami::Value> shape(port.shape.begin(), port.shape.end());
    const std::vector<hami::Value> names(port.axis_names.begin(), port.axis_names.end());
    const hami::Value dtype = port.dtype ? hami::Value(hami::dtype_name(*port.dtype)) : hami::Value();
    all.push_back(hami::Value::dict({{"name", port.name},
                                     {"dtype", dtype},
                                     {"shape", hami::Value::list(shape)},
                                     {"axis_names", hami::Value::list(names)}}));
  }
  return hami::Value::list(all);
}

// Runs each request as it is. OnnxModel opens models with it, and tests their rows.
class OnnxSession final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT;

 private:
  void init_(const hami::Params& params) override {
    plan_.settings = {params.get<std::string>("onnxruntime"),
                      params.get<std::string>("model"),
                      params.get<std::int64_t>("threads"),
                      params.get<std::int64_t>("busy_threads"),
                      params.get<std::vector<std::string>>("custom_operators"),
                      params.get<std::vector<std::string>>("plugin_providers"),
                      params.get<bool>("cpu_fallback"),
                      params.get<std::string>("memory"),
                      params.get<std::vector<std::string>>("freed"),
                      {},
                      params.get<std::string>("version")};
    session_ = Session::open(plan_.settings);
    plan_.input_axes.assign(session_->inputs().size(), kShared);
    plan_.lone_axes = plan_.input_axes;
    plan_.output_axes.assign(session_->outputs().size(), kShared);
    report_.convert = [](const hami::Dict&, const hami::Value&) -> hami::Value {
      throw hami::Error(HAMI_DATA_TYPE, "OnnxSession takes a tensor of the model's type for each input");
    };
    report_.count = [](std::string_view, std::int64_t) {};
  }

  void forward_(hami::Batch batch) override {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].get("data").is_none())
        batch[i]["result"] = hami::Value::dict({{"onnxruntime", session_->library().version()},
                                                {"inputs", describe(session_->inputs())},
                                                {"optional", describe(session_->optional())},
                                                {"outputs", describe(session_->outputs())},
                                                {"assigned", assigned()}});
      else
        run_batch({batch.raw() + i, 1}, *session_, plan_, report_);
    }
  }

  // The operators by provider; empty if that is not known.
  hami::Value assigned() const {
    std::vector<std::pair<std::string, hami::Value>> all;
    for (const auto& [provider, operators] : session_->assigned())
      all.emplace_back(provider, hami::Value::list({operators.begin(), operators.end()}));
    return hami::Value::dict(all);
  }

  Plan plan_;
  std::shared_ptr<const Session> session_;
  BatchReport report_;
};

// Lists the devices of a provider's library, for people.
class OnnxDevices final : public hami::Backend {
 private:
  void init_(const hami::Params& params) override {
    library_ = &hami::library_at<Library>(params.get<std::string>("onnxruntime"));
  }

  void forward_(hami::Batch batch) override {
    const Api& api = library_->api();
    for (const hami::Dict& item : batch) {
      std::vector<std::string> lines;
      for (const hami::Value& line : item.get("data").as_list()) lines.emplace_back(line.as_text());
      std::vector<hami::Value> devices;
      for (const OrtEpDevice* device : devices_of(*library_, ProviderLibrary::of(lines)))
        devices.push_back(hami::Value::dict({{"provider", api.EpDevice_EpName(device)},
                                             {"vendor", api.EpDevice_EpVendor(device)},
                                             {"kind", kind_of(*library_, device)},
                                             {"hardware", api.HardwareDevice_Vendor(api.EpDevice_Device(device))}}));
      item["result"] = hami::Value::list(devices);
    }
  }

  const Library* library_ = nullptr;
};

}  // namespace
}  // namespace hami_onnx

HAMI_REGISTER(
    hami_onnx::OnnxTensor, "OnnxTensor",
    "model: file 'path of the ONNX file';"
    "provider: list = 'cpu' 'execution provider: cpu, cuda, openvino, … or its full name; or several, the preferred one "
    "first';"
    "cpu_fallback: bool = true 'whether the CPU runs operators that the provider does not take';"
    "provider_options: list = '' 'options of the provider, each written as key=value';"
    "threads: int = 0 'threads of the session; 0: all cores that this process may use';"
    "busy_threads: int = 0 'threads of a run on the CPU while more runs last than half of `threads`; 0: always `threads`';"
    "custom_operators: list = '' 'libraries with operators of your own; they must be allowed files';"
    "memory: str = 'arena' {arena,shrink,none} 'memory that a run has used: keep it, give it back after the run, or use no "
    "arena';"
    "onnxruntime: library? 'path of libonnxruntime.so; default: that of the installed onnxruntime package';"
    "batched: bool? 'whether requests are joined; default: if the graph proves, or a test shows, that rows are "
    "independent';"
    "batch_axes: list = '' 'the axis of the rows, each written as name=axis or name=none; default: found';"
    "inputs: list = '' 'read each input from the key of its name: the names of all inputs; default: if there is no `data`';"
    "cast: str = 'exact' 'conversion of inputs: exact (values that the declared type has), safe, or false';"
    "batch_invariant: bool = false 'run only with numbers of rows for which each row is equal bit for bit; lone rows run "
    "alone';"
    "profile: str? 'file for the times of the operators, for hami trace; written when the pipe is closed';"
    "isolate_load: bool = false 'load the model in a child process first, which must succeed';"
    "max_nodes: int = 100000 'ONNX: largest number of nodes after local functions are inlined';"
    "max_graph_depth: int = 10 'ONNX: deepest nesting of subgraphs (If, Loop, Scan)';"
    "max_call_depth: int = 64 'ONNX: deepest nesting of calls of local functions'",
    "Run an ONNX model on batches of requests.\n"
    "\n"
    "data: one array, a dict of arrays by input name, or a list of arrays in the order of the inputs; without `data`, each\n"
    "input is the key of its name\n"
    "result: a hami.Tensor, or a dict by output name if the model has several outputs, which are also keys\n"
    "request_size: key of the request, the number of rows in `data`; by default found from its shape\n"
    "\n"
    "Requests with equal shapes run together if the graph proves, or a test at the start shows, that rows are\n"
    "independent; every other model runs request by request. `batched` and `batch_axes` say otherwise. Data without the\n"
    "batch axis is one row, and its result has no batch axis. A model with a fixed batch size N runs in blocks of N rows,\n"
    "and a short block is padded with copies of a row; with a dynamic one, the node learns the batch size.");
HAMI_REGISTER(
    hami_onnx::OnnxSession, "OnnxSession",
    "model: file 'path of the ONNX file';"
    "threads: int = 1 {1..} 'threads of the session';"
    "busy_threads: int = 0 'threads of a run while more runs last than half of `threads`; 0: always `threads`';"
    "custom_operators: list = '' 'libraries with operators of your own';"
    "plugin_providers: list = '' 'libraries of execution providers, as OnnxModel finds them';"
    "cpu_fallback: bool = true 'whether the CPU runs operators that no provider takes';"
    "memory: str = 'arena' {arena,shrink,none} 'memory that a run has used: keep it, give it back, or no arena';"
    "freed: list = '' 'offsets in the file, as OnnxModel finds them: lengths of 1 that are left free';"
    "onnxruntime: library? 'path of libonnxruntime.so; default: that of the installed onnxruntime package';"
    "version: str = '' 'differs after a file of the model was replaced'",
    "Run a model on each request as it is, on the CPU; the other backends open models with it.");
HAMI_REGISTER(hami_onnx::OnnxDevices, "OnnxDevices",
              "onnxruntime: library? 'path of libonnxruntime.so; default: that of the installed onnxruntime package'",
              "List the devices that a library of an execution provider offers.\n"
              "\n"
              "data: a list: the name with which the library is registered, and its path\n"
              "result: a list of dicts with provider, vendor, kind (cpu, gpu or npu) and hardware");
HAMI_PLUGIN("hami-onnx", HAMI_ONNX_VERSION)
