// Delegate: a backend that gets the batches of a Python backend first, without the GIL.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/api.hpp"
#include "gil.hpp"

namespace hami::bind {

class Delegate {
 public:
  // Builds a backend of the pipe's node by its class, with these parameters and the defaults of the others. `convert`: makes what
  // Python code reads in place of a result that is a hami.Tensor; None: it reads that.
  Delegate(const std::shared_ptr<PipeContext>& context, const std::string& node, std::shared_ptr<Dict> options,
           const std::string& distribution, const std::string& name,
           const std::vector<std::pair<std::string, Value>>& params, py::object convert);

  // Runs a batch, and returns the requests that it left without a result and without an error.
  std::vector<Request*> forward(Batch batch) const;

 private:
  Plan plan_;  // as long as the backend
  BackendPtr backend_;
  std::shared_ptr<PyRef> convert_;  // null: no conversion
};

// Where a Python backend, and the services that it reaches, keep its delegate. Any thread may change it at any time.
class DelegateSlot {
 public:
  std::shared_ptr<const Delegate> get() const noexcept { return std::atomic_load(&delegate_); }
  void set(std::shared_ptr<const Delegate> delegate) noexcept { std::atomic_store(&delegate_, std::move(delegate)); }

 private:
  std::shared_ptr<const Delegate> delegate_;
};

}  // namespace hami::bind
