// Generators: they are driven and closed on the thread of the backend.
#include "generator.hpp"

#include "values.hpp"

namespace hami::bind {
namespace {

// Runs its `finally` blocks now.
void close_generator(const py::object& generator) noexcept {
  try {
    generator.attr("close")();
  } catch (py::error_already_set& raised) {
    raised.discard_as_unraisable("hami: closing the generator of a forward");
  } catch (const std::exception&) {  // no memory
    PyErr_NoMemory();
    PyErr_WriteUnraisable(generator.ptr());
  }
}

// Delivers each yielded value. Returns what the generator returns.
py::object deliver_parts(const py::object& generator, Request& request, py::list& untaken) {
  for (;;) {
    PyObject* raw = nullptr;
    const PySendResult state = PyIter_Send(generator.ptr(), Py_None, &raw);
    if (state == PYGEN_ERROR) throw py::error_already_set();
    py::object value = py::reinterpret_steal<py::object>(raw);
    if (state == PYGEN_RETURN) return value;
    if (request.has_listener())
      request.emit(to_value(value));
    else
      untaken.append(value);
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
    const py::object returned = deliver_parts(generator, request, untaken);
    if (!returned.is_none())
      request.dict.set(kResult, to_value(returned));
    else if (!request.dict.contains(kResult))
      request.dict.set(kResult, request.has_listener() ? Value() : to_value(untaken));
  } catch (...) {
    close_generator(generator);
    throw;
  }
}

}  // namespace hami::bind
