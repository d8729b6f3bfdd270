// Conversion of errors between Python and the core. A backend's exception keeps its type and traceback.
#pragma once

#include "gil.hpp"
#include "value/api.hpp"

namespace hami::bind {

// All functions here require the GIL.

// The name of an object's class, without code of Python: a metaclass may raise for __name__, or return something else.
std::string class_name(py::handle object);
// An Error that carries the exception that Python raised.
Error from_python(py::error_already_set& raised);
// current_error() for code that uses Python: an exception of Python keeps its object, and is not set any more.
Error current_python_error();
// Throws current_python_error(); an Error, and what is not an exception of C++, as it is.
[[noreturn]] void rethrow_python_error();
// Whether the exception being handled means out of memory. pybind11 has several ways to report that. No exception
// of Python is set any more.
bool is_out_of_memory();
// Sets the exception being handled as that of Python, for a function that CPython calls. Call it only inside a catch block.
void set_python_error() noexcept;
// A MemoryError that exists before there is need of it; one for all.
py::object memory_error() noexcept;
// The same for an exception object that was not raised.
Error from_exception(py::object exception);
// The same for an exception of a signal handler. SystemExit is carried unchanged: it is for the waiting caller and does
// not count as a failure of a backend.
Error from_signal_handler(py::error_already_set& raised);
// The exception object that Python raised, with its traceback.
py::object exception_in(py::error_already_set& raised);
// Converts the argument of fail(), an exception class or object, to an object; Error(kDataType) for anything else.
py::object as_exception(py::object given);
// The exception that `error` carries, or a new object of one of hami's classes; with the notes of `error`. A MemoryError if
// it cannot be allocated.
py::object to_exception(const Error& error);
[[noreturn]] void raise(const Error& error);

// Registers the conversion of C++ errors that leave a bound function.
[[gnu::cold]] void register_translators();

}  // namespace hami::bind
