// Parts of a value for a whole batch (hami.batching.scatter). A part is extracted only when it is read.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "gil.hpp"
#include "value/api.hpp"

namespace hami::bind {

// One request's part: parts[index], extracted on first access and then kept.
class Part final : public OpaqueObject {
 public:
  Part(std::shared_ptr<PyRef> parts, std::size_t index) noexcept;
  ~Part() override;

  // The Part that `value` holds; null for any other value.
  static const Part* from(const Value& value) noexcept;

  // parts[index], the same object each time. Requires the GIL. Throws any exception of the extraction.
  py::object get() const;
  // The whole sequence; null once this part was extracted, because the reader may have changed it.
  PyObject* parts_if_unread() const noexcept { return foreign() ? nullptr : parts_->get().ptr(); }
  std::size_t index() const noexcept { return index_; }

  void* foreign() const noexcept override { return extracted_.load(std::memory_order_acquire); }
  void* pointer() const noexcept override;
  std::string type_name() const override;
  Value to_tensor() const override;
  DLDevice device() const override;
  Value to_device_tensor(std::int64_t stream) const override;

 private:
  Value exported(std::optional<std::int64_t> stream) const;

  std::shared_ptr<PyRef> parts_;
  std::size_t index_;
  mutable std::atomic<PyObject*> extracted_{nullptr};  // an owned reference
};

void register_parts(py::module_& module);

}  // namespace hami::bind
