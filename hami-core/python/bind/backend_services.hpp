// hami._core.BackendServices: what a Python backend reaches of its pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/api.hpp"
#include "backend_handle.hpp"
#include "hami/sdk/request_store.hpp"

namespace hami::bind {

// Does not keep the pipe alive: Error(kPipeClosed) once it is gone.
class BackendServices {
 public:
  explicit BackendServices(const Init& init)
      : context_(init.shared_context()),
        node_(init.node()),
        counters_(init.context().resources.counters(node_)),
        remarks_(init.context().resources.remarks(node_)) {}

  const std::string& node() const noexcept { return node_; }
  // An instance by name. While the pipe is built, it may be registered later; afterwards Error(kNotFound) names similar ones.
  Ref<BackendHandle> find(const std::string& name) const;
  Ref<Queue> queue(const std::string& name) const { return context()->resources.queue_by_name(name); }
  std::shared_ptr<RequestStore> store() const { return context()->resources.shared_store(); }
  void count(const std::string& name, std::int64_t by) const {
    const std::shared_ptr<PipeContext> owner = context();
    counters_.add(name, by);
  }
  void remark(const std::string& text) const {
    const std::shared_ptr<PipeContext> owner = context();
    remarks_.add(text);
  }

 private:
  std::shared_ptr<PipeContext> context() const {
    if (std::shared_ptr<PipeContext> context = context_.lock()) return context;
    throw Error::pipe_closed();
  }

  const std::weak_ptr<PipeContext> context_;
  const std::string node_;
  Counters& counters_;  // of context_
  Remarks& remarks_;    // of context_
};

void register_backend_services(py::module_& module);

}  // namespace hami::bind
