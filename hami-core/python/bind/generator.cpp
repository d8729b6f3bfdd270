// Generators: they are driven and closed on the thread of the backend.
#include "generator.hpp"

#include <optional>

#include "errors.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Runs its `finally` blocks now.
void close_generator(const py::object& generator) noexcept {
  try {
    call_python(generator.attr("close"));
  } catch (py::error_already_set& raised) {
    const bool may_be_of_signal_handler = !raised.matches(PyExc_Exception);
    if (may_be_of_signal_handler && raise_later(raised)) return;
    raised.discard_as_unraisable("hami: closing the generator of a forward");
  } catch (const std::exception&) {  // no memory
    PyErr_NoMemory();
    PyErr_WriteUnraisable(generator.ptr());
  }
}

// What Python does between two instructions of a function, and not between two parts: `yield from iter(int, 1)` runs no instruction.
// Signal handlers run, and other threads if this one has had the GIL for a while.
class BetweenParts {
 public:
  void operator()() {
    if (PyErr_CheckSignals() != 0) throw_python_error();
    if (now() < until_) return;
    {
      const ReleaseGil released;
    }
    until_ = after(kGilShare);
  }

 private:
  static constexpr Nanoseconds kGilShare = 1'000'000;  // 1 ms; Python's own switch interval is 5 ms
  Nanoseconds until_ = after(kGilShare);
};

void emit_unless_cancelled(Request& request, Value part) {
  try {
    request.emit(std::move(part));
  } catch (const Error&) {
    if (!request.cancelled()) throw;
  }
}

// Delivers each yielded value. Returns what the generator returns; nothing once the request is cancelled.
std::optional<py::object> deliver_parts(const py::object& generator, Request& request, py::list& untaken) {
  BetweenParts between_parts;
  for (;;) {
    PyObject* raw = nullptr;
    const PySendResult state = hami_resume(generator.ptr(), &raw);
    if (state == PYGEN_ERROR) throw_python_error();
    const py::object value = py::reinterpret_steal<py::object>(raw);
    if (state == PYGEN_RETURN) return value;
    if (request.cancelled()) return std::nullopt;
    if (request.has_listener())
      emit_unless_cancelled(request, to_value(value));
    else
      untaken.append(value);
    between_parts();
    if (request.cancelled()) return std::nullopt;
  }
}

}  // namespace

bool is_generator_function(const py::object& method) {
  constexpr int kGenerator = 0x20;  // inspect.CO_GENERATOR
  const py::object code = py::getattr(method, "__code__", py::none());
  return !code.is_none() && (code.attr("co_flags").cast<int>() & kGenerator) != 0;
}

void run_generator(const py::object& generator, Batch batch, const std::string& label) {
  if (batch.size() != 1)
    throw Error(ErrorCode::kConfig, label +
                                        ".forward is a generator, which runs one request at a time, got a batch of " +
                                        std::to_string(batch.size()) + "; set max = 1");
  Request& request = batch[0];
  py::list untaken;
  try {
    const std::optional<py::object> returned = deliver_parts(generator, request, untaken);
    if (!returned) {
      close_generator(generator);
      request.fail_if_cancelled();
    } else if (!returned->is_none()) {
      request.dict.set(kResult, to_value(*returned));
    } else if (!request.dict.contains(kResult)) {
      request.dict.set(kResult, request.has_listener() ? Value() : to_value(untaken));
    }
  } catch (...) {
    close_generator(generator);
    throw;
  }
}

}  // namespace hami::bind
