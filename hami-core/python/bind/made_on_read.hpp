// MadeOnRead: a value whose Python object is made when Python code first reads it.
#pragma once

#include <atomic>
#include <string>

#include "gil.hpp"
#include "value/api.hpp"

namespace hami::bind {

class MadeOnRead : public OpaqueObject {
 public:
  MadeOnRead() noexcept : OpaqueObject("python.object") {}
  ~MadeOnRead() override {
    if (PyObject* made = made_.load(std::memory_order_relaxed)) decref_from_any_thread(made);
  }

  // The MadeOnRead that `value` holds; null for any other value.
  static const MadeOnRead* from(const Value& value) noexcept {
    return value.kind() == Kind::kOpaque ? dynamic_cast<const MadeOnRead*>(value.object()) : nullptr;
  }

  // The same object each time. Requires the GIL. Throws any exception of `make`.
  py::object get() const;
  bool is_made() const noexcept { return foreign() != nullptr; }

  void* foreign() const noexcept override { return made_.load(std::memory_order_acquire); }
  void* pointer() const noexcept override;
  std::string type_name() const override;

 private:
  // Two threads may both make one; the first is kept.
  virtual py::object make() const = 0;

  mutable std::atomic<PyObject*> made_{nullptr};  // an owned reference
};

}  // namespace hami::bind
