// Errors between Python and the core: a backend's own exception keeps its type and traceback.
#pragma once

#include "value/error.hpp"
#include "gil.hpp"

namespace hami::bind {

// The exception that Python raised, as an Error that carries it. With the lock held.
Error from_python(py::error_already_set& raised);
// The same for an exception object that was never raised.
Error from_exception(py::object exception);
// What the handler of a signal raised: a SystemExit, too, is then for who waits, and no failure of a backend.
Error from_signal_handler(py::error_already_set& raised);
// The exception that Python raised, with its traceback.
py::object exception_in(py::error_already_set& raised);
// What a caller gave as an exception, a class or an object, as an object; DataTypeError if it is neither.
py::object exception_of(py::object given);
// The exception object for an Error: the one it carries, or one of hami's classes; with its notes.
py::object to_exception(const Error& error);
[[noreturn]] void raise(const Error& error);

// Lets C++ errors that leave a bound function become Python exceptions.
void register_translators();

}  // namespace hami::bind
