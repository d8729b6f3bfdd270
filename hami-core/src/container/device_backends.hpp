// DeviceBackends: the backend of the same name for memory that the core cannot read, from the plugin that serves its device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/init.hpp"
#include "base/mutex.hpp"
#include "value/tensor.hpp"

namespace hami {

// Requests whose data is in device memory, by device.
class RequestsOnDevices {
 public:
  void add(DLDevice device, Request* request);
  bool empty() const noexcept { return groups_.empty(); }
  std::string show_devices() const;  // "cuda:0, cuda:1"
  auto begin() const noexcept { return groups_.begin(); }
  auto end() const noexcept { return groups_.end(); }
  std::size_t size() const noexcept { return groups_.size(); }

 private:
  std::vector<std::pair<DLDevice, std::vector<Request*>>> groups_;
};

// Builds the backend for a device when the first data on that device arrives: most pipes never see any. It gets the
// parameters of its owner, and `device`, such as "cuda:0".
class DeviceBackends {
 public:
  void init(const Init& init);
  // Error(kDataType) if no installed plugin has this backend for the device.
  void forward(DLDevice device, Batch batch);
  void forward(const RequestsOnDevices& requests);

 private:
  struct Built {
    std::unique_ptr<Plan> plan;  // as long as the backend
    BackendPtr backend;
  };

  Backend& on(DLDevice device);
  Built build(DLDevice device) const;

  ClassPtr owner_;
  std::string label_;
  Params params_;
  std::weak_ptr<PipeContext> context_;  // the context owns the backends of its pipe
  std::string node_;
  std::shared_ptr<Dict> options_;
  Mutex mutex_;
  std::map<std::string, Built> built_ HAMI_GUARDED_BY(mutex_);
};

}  // namespace hami
