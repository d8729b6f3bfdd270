// DeviceBackends: finding and building the backend for a device.
#include "container/device_backends.hpp"

#include <algorithm>

#include "registry/registry.hpp"

namespace hami {
namespace {

constexpr const char* kDevice = "device";

bool same_device(DLDevice a, DLDevice b) noexcept {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

// "cuda" of "cuda:0".
std::string kind_of(const std::string& device) { return device.substr(0, device.find(':')); }

}  // namespace

void RequestsOnDevices::add(DLDevice device, Request* request) {
  const auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& each) { return same_device(each.first, device); });
  if (group != groups_.end())
    group->second.push_back(request);
  else
    groups_.push_back({device, {request}});
}

std::string RequestsOnDevices::show_devices() const {
  std::string text;
  for (const auto& [device, requests] : groups_) text += (text.empty() ? "" : ", ") + show_device(device);
  return text;
}

void DeviceBackends::init(const Init& init) {
  owner_ = init.cls();
  label_ = init.label();
  params_ = init.params();
  context_ = init.shared_context();
  node_ = init.node();
  options_ = init.shared_options();
}

void DeviceBackends::forward(DLDevice device, Batch batch) { on(device).forward(batch); }

void DeviceBackends::forward(const RequestsOnDevices& requests) {
  for (const auto& [device, group] : requests) forward(device, Batch(group));
}

// Building runs code of a plugin, so the mutex is not held meanwhile. If two threads build one, the first is kept.
Backend& DeviceBackends::on(DLDevice device) {
  const std::string name = show_device(device);
  {
    MutexLock lock(mutex_);
    if (const auto found = built_.find(name); found != built_.end()) return *found->second.backend;
  }
  Built fresh = build(device);  // declared before the lock: a superfluous one is destroyed after it
  MutexLock lock(mutex_);
  return *built_.try_emplace(name, std::move(fresh)).first->second.backend;
}

DeviceBackends::Built DeviceBackends::build(DLDevice device) const {
  const std::string name = show_device(device);
  const std::shared_ptr<PipeContext> context = context_.lock();
  if (!context) throw Error(ErrorCode::kPipeClosed, "the pipe is closed");
  Built built{std::make_unique<Plan>(), nullptr};
  try {
    built.plan->cls = Registry::instance().find_for_device(owner_->name, kind_of(name));
  } catch (const MissingBackend& missing) {
    throw Error(missing.code == ErrorCode::kBackendNotFound ? ErrorCode::kDataType : missing.code,
                label_ + " cannot take data on " + name + ": " + missing.headline +
                    (missing.hint.empty() ? "" : "\n  " + missing.hint));
  }
  const BackendClass& cls = *built.plan->cls;
  built.plan->label = label_;
  built.plan->traits = cls.traits;
  for (const ParamSpec& spec : cls.params) {
    const Value* own = params_.find(spec.name);
    built.plan->params.set(spec.name, spec.name == kDevice ? Value(name) : own ? *own : spec.fallback);
  }
  for (const auto& [param, value] : params_)
    if (!built.plan->params.find(param))
      throw Error(ErrorCode::kPlugin, cls.owner + "::" + cls.name + ", which serves " + name + ", has no parameter \"" +
                                          param + "\", which " + label_ + " has");
  built.backend = Init(context, node_, options_).make(*built.plan);
  return built;
}

}  // namespace hami
