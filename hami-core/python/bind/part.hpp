// Parts of a value for a whole batch (hami.batching.scatter). A part is extracted only when it is read.
#pragma once

#include <memory>
#include <optional>

#include "made_on_read.hpp"

namespace hami::bind {

// One request's part: parts[index], extracted on first access and then kept.
class Part final : public MadeOnRead {
 public:
  Part(std::shared_ptr<PyRef> parts, std::size_t index) noexcept;

  // The Part that `value` holds; null for any other value.
  static const Part* from(const Value& value) noexcept;

  // The whole sequence; null once this part was extracted, because the reader may have changed it.
  PyObject* parts_if_unread() const noexcept { return is_made() ? nullptr : parts_->get().ptr(); }
  std::size_t index() const noexcept { return index_; }

  Value to_tensor() const override;
  DLDevice device() const override;
  Value to_device_tensor(std::int64_t stream) const override;

 private:
  py::object make() const override;
  Value exported(std::optional<std::int64_t> stream) const;

  std::shared_ptr<PyRef> parts_;
  std::size_t index_;
};

[[gnu::cold]] void register_parts(py::module_& module);

}  // namespace hami::bind
