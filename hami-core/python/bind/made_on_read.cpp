// MadeOnRead: makes the object once.
#include "made_on_read.hpp"

#include <exception>

#include "tensor.hpp"

namespace hami::bind {

py::object MadeOnRead::get() const {
  HAMI_ASSERT(has_gil());
  if (void* made = foreign()) return py::reinterpret_borrow<py::object>(static_cast<PyObject*>(made));
  const py::object fresh = make();
  PyObject* first = nullptr;
  if (!made_.compare_exchange_strong(first, fresh.ptr(), std::memory_order_acq_rel))
    return py::reinterpret_borrow<py::object>(first);  // another thread made it meanwhile
  return py::reinterpret_borrow<py::object>(fresh.inc_ref());
}

void* MadeOnRead::pointer() const noexcept {
  const HoldGil gil;
  try {
    return get().ptr();
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: a value that is made on its first read");
  } catch (const std::exception&) {  // the caller reports the null pointer
    PyErr_Clear();
  }
  return nullptr;
}

std::string MadeOnRead::type_name() const {
  const HoldGil gil;
  PyObject* const made = static_cast<PyObject*>(pointer());
  return made ? python_type_name(made) : OpaqueObject::type_name();
}

}  // namespace hami::bind
