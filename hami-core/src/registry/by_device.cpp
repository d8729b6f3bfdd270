// ByDevice: groups the requests of a batch by device, and finds and builds the implementation for each.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "registry/api.hpp"

namespace hami {
namespace {

constexpr const char* kDevice = "device";
constexpr DLDevice kCpu{kDLCPU, 0};
constexpr std::string_view kEngineInputs = "engine_inputs";  // reference/backends.md, "Inputs of engines"

// Where a tensor lies, or the first element of a list or dict that does not lie in CPU memory.
DLDevice device_of(const Value& data) {
  const auto of_item = [](const Value& value) {
    DLDevice device = kCpu;
    if (value.kind() == Kind::kTensor) device = static_cast<const TensorObject*>(value.object())->device();
    if (value.kind() == Kind::kOpaque) device = static_cast<const OpaqueObject*>(value.object())->device();
    return is_cpu_memory(device) ? kCpu : device;
  };
  if (data.kind() == Kind::kList) {
    const ListObject& list = data.as_list();
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const DLDevice device = of_item(list.at(i)); !is_cpu_memory(device)) return device;
  } else if (data.kind() == Kind::kDict) {
    for (const auto& [key, value] : data.as_dict().entries())
      if (const DLDevice device = of_item(value); !is_cpu_memory(device)) return device;
  }
  return of_item(data);
}

// The device of the first input that the instance's engine has announced. The reader of all entries reports wrong ones.
DLDevice engine_device(const Dict& options) {
  const Value* inputs = options.find(kEngineInputs);
  if (!inputs || inputs->kind() != Kind::kList || inputs->as_list().size() == 0) return kCpu;
  const Value first = inputs->as_list().at(0);
  if (first.kind() != Kind::kDict) return kCpu;
  for (const auto& [key, value] : first.as_dict().entries())
    if (key == kDevice && value.kind() == Kind::kStr) return read_device(std::string(value.as_text()));
  return kCpu;
}

// The requests of a batch that lie on one device.
struct Group {
  DLDevice device;
  std::vector<Request*> requests;
};

class ByDevice final : public Backend {
 public:
  ByDevice(DeviceChoice choice, BackendPtr host) : choice_(choice), host_(std::move(host)) {}

  bool acquires_gil() const noexcept override { return host_->acquires_gil(); }
  const BackendPtr& host() const noexcept { return host_; }

 private:
  struct Built {
    std::unique_ptr<Plan> plan;  // as long as the backend
    BackendPtr backend;
  };

  void init_(Init& init) override {
    host_->describe(label(), traits());
    host_->init(init);
    cls_ = init.cls();
    params_ = init.params();
    context_ = init.shared_context();
    node_ = init.node();
    options_ = init.shared_options();
    if (choice_ == DeviceChoice::kEngine) engine_ = engine_device(init.options());
  }

  void forward_(Batch batch) override {
    const auto stays = [&](const Request* request) { return is_cpu_memory(device_for(*request)); };
    if (std::all_of(batch.begin(), batch.end(), stays)) return host_->forward(batch);
    std::vector<Group> groups;
    for (Request* request : batch) {
      const DLDevice device = device_for(*request);
      const auto same = [&](const Group& group) {
        return group.device.device_type == device.device_type && group.device.device_id == device.device_id;
      };
      const auto group = std::find_if(groups.begin(), groups.end(), same);
      if (group == groups.end())
        groups.push_back({device, {request}});
      else
        group->requests.push_back(request);
    }
    if (groups.size() > 1 && choice_ == DeviceChoice::kWholeBatch) refuse(groups);
    for (const Group& group : groups) on(group.device).forward(Batch(group.requests));
  }

  DLDevice device_for(const Request& request) const {
    const Value* data = request.dict.find(kData);
    const DLDevice device = data ? device_of(*data) : kCpu;
    return is_cpu_memory(device) ? engine_ : device;  // also without data: the inputs may be in other keys
  }

  // The node then runs each request alone.
  [[noreturn]] void refuse(const std::vector<Group>& groups) const {
    std::string text;
    for (const Group& group : groups) text += (text.empty() ? "" : ", ") + show_device(group.device);
    throw Error(ErrorCode::kRequest, label() + " takes batches on one device, got data on " + text + " in one batch");
  }

  // Building runs code of a plugin, so the mutex is not held meanwhile. If two threads build one, the first is kept.
  Backend& on(DLDevice device) {
    if (is_cpu_memory(device)) return *host_;
    const std::string name = show_device(device);
    {
      MutexLock lock(mutex_);
      if (const auto found = built_.find(name); found != built_.end()) return *found->second.backend;
    }
    Built fresh = build(name);  // declared before the lock: a superfluous one is destroyed after it
    MutexLock lock(mutex_);
    return *built_.try_emplace(name, std::move(fresh)).first->second.backend;
  }

  Built build(const std::string& device) const {
    const std::shared_ptr<PipeContext> context = context_.lock();
    if (!context) throw Error(ErrorCode::kPipeClosed, "the pipe is closed");
    Built built{std::make_unique<Plan>(), nullptr};
    try {
      built.plan->cls = Registry::instance().find_for_device(cls_->name, device.substr(0, device.find(':')));
    } catch (const MissingBackend& missing) {
      throw Error(missing.code == ErrorCode::kBackendNotFound ? ErrorCode::kDataType : missing.code,
                  label() + " cannot take data on " + device + ": " + missing.headline +
                      (missing.hint.empty() ? "" : "\n  " + missing.hint));
    }
    const BackendClass& cls = *built.plan->cls;
    built.plan->label = label();
    built.plan->traits = cls.traits;
    for (const ParamSpec& spec : cls.params) {
      const Value* own = params_.find(spec.name);
      built.plan->params.set(spec.name, spec.name == kDevice ? Value(device) : own ? *own : spec.fallback);
    }
    for (const auto& [param, value] : params_)
      if (!built.plan->params.find(param))
        throw Error(ErrorCode::kPlugin, cls.owner + "::" + cls.name + ", which serves " + device +
                                            ", has no parameter \"" + param + "\", which " + label() + " has");
    built.backend = Init(context, node_, options_).make(*built.plan);
    return built;
  }

  void forward_with_dep_(Batch batch, Backend& dependency) override { host_->forward_with_dep(batch, dependency); }
  void inject_dependency_(const BackendPtr& dependency) override { host_->inject_dependency(dependency); }
  Range range_() const override { return host_->range(); }
  CostFunction request_cost_() const override { return host_->request_cost(); }

  const DeviceChoice choice_;
  const BackendPtr host_;
  ClassPtr cls_;
  Params params_;
  std::weak_ptr<PipeContext> context_;  // the context owns the backends of its pipe
  std::string node_;
  std::shared_ptr<Dict> options_;
  DLDevice engine_ = kCpu;
  Mutex mutex_;
  std::map<std::string, Built> built_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace

BackendPtr choose_by_device(DeviceChoice choice, BackendPtr host) {
  if (choice == DeviceChoice::kNone) return host;
  return std::make_shared<ByDevice>(choice, std::move(host));
}

BackendPtr for_cpu_memory(BackendPtr backend) {
  const auto* const by_device = dynamic_cast<const ByDevice*>(backend.get());
  return by_device ? by_device->host() : backend;
}

}  // namespace hami
