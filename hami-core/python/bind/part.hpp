// Parts: what a backend gives a whole batch in one value, which is taken apart for who looks at the part of one request.
#pragma once

#include <atomic>
#include <memory>

#include "value/value.hpp"
#include "gil.hpp"

namespace hami::bind {

class Part final : public OpaqueObject {
 public:
  Part(std::shared_ptr<PyRef> parts, std::size_t index) noexcept;
  ~Part() override;

  // The part in a value; null for any other value.
  static const Part* in(const Value& value) noexcept;

  // parts[index], the same object each time. With the lock held; what making it raises is thrown.
  py::object look() const;
  // All parts and which of them this is, unless somebody looked at this one, and may have changed it.
  PyObject* untouched_parts() const noexcept { return foreign() ? nullptr : parts_->get().ptr(); }
  std::size_t index() const noexcept { return index_; }

  void* foreign() const noexcept override { return seen_.load(std::memory_order_acquire); }
  void* pointer() const noexcept override;
  std::string type_name() const override;
  Value to_tensor() const override;

 private:
  std::shared_ptr<PyRef> parts_;
  std::size_t index_;
  mutable std::atomic<PyObject*> seen_{nullptr};  // owned
};

void register_parts(py::module_& module);

}  // namespace hami::bind
