// hami._core.BackendServices: what a Python backend reaches of its pipe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend/api.hpp"
#include "backend_handle.hpp"
#include "delegate.hpp"
#include "hami/sdk/request_store.hpp"

namespace hami::bind {

// Does not keep the pipe alive: Error(kPipeClosed) once it is gone.
class BackendServices {
 public:
  BackendServices(const Init& init, std::shared_ptr<DelegateSlot> delegate)
      : context_(init.shared_context()),
        options_(init.shared_options()),
        delegate_(std::move(delegate)),
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
  // Builds the backend that gets the batches of this one from now on; nullopt: this one gets them again.
  void delegate(const std::optional<std::string>& name, const std::string& distribution, const py::dict& params,
                py::object convert);

 private:
  std::shared_ptr<PipeContext> context() const {
    if (std::shared_ptr<PipeContext> context = context_.lock()) return context;
    throw Error::pipe_closed();
  }

  const std::weak_ptr<PipeContext> context_;
  const std::weak_ptr<Dict> options_;  // weak: they may hold the Python object, which holds this one
  const std::shared_ptr<DelegateSlot> delegate_;
  const std::string node_;
  Counters& counters_;  // of context_
  Remarks& remarks_;    // of context_
};

[[gnu::cold]] void register_backend_services(py::module_& module);

}  // namespace hami::bind
