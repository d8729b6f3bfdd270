// Maps error codes to hami's exception classes, and exceptions to errors.
#include "errors.hpp"

#include <pybind11/critical_section.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include "gil.hpp"
#include "lang/api.hpp"
#include "pipe/api.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// Uses call_python because hami's classes have an __init__ in Python.
py::object construct(const char* module, const char* name, const std::string& message) {
  const py::object cls = py::module_::import(module).attr(name);
  return call_python(cls, py::str(message));
}

// A MemoryError that is not one of the 16 that CPython keeps for an exhausted memory: before 3.12 it aborts once the
// program holds them all. Only the constructor of MemoryError itself takes those.
py::object new_memory_error(const std::string& message) {
  const py::tuple arguments = py::make_tuple(message);
  const auto* base = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
  auto* const type = reinterpret_cast<PyTypeObject*>(PyExc_MemoryError);
  PyObject* const made = base->tp_new(type, arguments.ptr(), nullptr);
  if (!made) throw_python_error();
  return py::reinterpret_steal<py::object>(made);
}

py::object make_exception(const Error& error) {
  if (error.code() == ErrorCode::kOutOfMemory) return new_memory_error(error.message());
  const char* const module = error.code() == ErrorCode::kInvalidArgument ? "builtins"
                             : error.code() == ErrorCode::kCancelled     ? "concurrent.futures"
                                                                         : "hami._errors";
  return construct(module, exception_class(error.code()), error.message());
}

// "in backend DetectText, node "detect"", innermost first.
std::string note_of(const Error& error) {
  std::string text;
  for (const std::string& note : error.notes()) text += (text.empty() ? "in " : ", ") + note;
  return text;
}

// Python before 3.11 has no exception notes; there the note is appended to the message.
void append_note(py::object& exception, const std::string& note) {
  if (!py::hasattr(exception, "add_note")) {
    py::tuple args = exception.attr("args");
    if (args.empty() || !py::isinstance<py::str>(args[0])) return;
    const std::string message = py::str(args[0]);
    if (message.find(note) != std::string::npos) return;
    py::list changed(args);
    changed[0] = message + "\n" + note;
    exception.attr("args") = py::tuple(changed);
    return;
  }
  const py::scoped_critical_section exclusive(exception);  // several requests of a batch may share one exception
  const py::object notes = py::getattr(exception, "__notes__", py::list());
  if (!notes.contains(note)) exception.attr("add_note")(note);
}

// For what a method of an exception raises, which must not replace that exception. Ctrl-C is raised once it has arrived.
void ignore_unless_ctrl_c(const py::error_already_set& raised) noexcept {
  if (raised.matches(PyExc_KeyboardInterrupt)) raise_later(raised);
}

// Omits the note if the class rejects it, as a frozen dataclass does.
void add_note(py::object& exception, const std::string& note) {
  try {
    append_note(exception, note);
  } catch (const py::error_already_set& rejected) {
    ignore_unless_ctrl_c(rejected);
  }
}

py::object config_error(const PlanProblems& found) {
  if (found.problems.size() == 1) return to_exception(found.problems[0]);
  py::list problems;
  std::string text = std::to_string(found.problems.size()) + " problems in the configuration";
  for (const Error& problem : found.problems) {
    problems.append(to_exception(problem));
    text += "\n\n" + problem.message();
  }
  py::object exception = construct("hami._errors", "ConfigError", text);
  exception.attr("problems") = problems;
  return exception;
}

std::string text_of(const py::object& exception) {
  try {
    const py::object text = call_python(reinterpret_cast<PyObject*>(&PyUnicode_Type), exception);
    PyObject* const encoded = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace");  // names of files
    if (!encoded) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(encoded);
  } catch (const py::error_already_set& failed) {  // the type's name is enough
    ignore_unless_ctrl_c(failed);
    return "";
  }
}

Error wrap_exception(py::object exception) {
  HAMI_ASSERT(has_gil());
  PyObject* raw = exception.ptr();
  const std::string type = class_name(exception);
  const std::string text = text_of(exception);
  const bool is_final =
      PyErr_GivenExceptionMatches(raw, PyExc_MemoryError) || !PyErr_GivenExceptionMatches(raw, PyExc_Exception);
  return Error(ErrorCode::kForeign, text.empty() ? type : type + ": " + text, opaque(std::move(exception)), is_final);
}

// Whether it is an instance of a class of a module that the program may not have imported.
bool is_of(const py::object& exception, const char* module, const char* name) {
  const auto imported = py::reinterpret_steal<py::object>(PyImport_GetModule(py::str(module).ptr()));
  if (!imported) {
    PyErr_Clear();
    return false;
  }
  return PyErr_GivenExceptionMatches(exception.ptr(), py::object(imported.attr(name)).ptr());
}

// An event loop asks `isinstance`, and hangs if that raises: it then never learns that a task has ended.
bool has_readable_class(const py::object& exception) {
  PyObject* const found = PyObject_GetAttrString(exception.ptr(), "__class__");
  Py_XDECREF(found);
  PyErr_Clear();
  return found;
}

// Whether the exception steers the code that it passes: it ends a thread, a loop, a generator or a task. The caller of a request
// has none of them to end.
bool steers(const py::object& exception) {
  PyObject* const raw = exception.ptr();
  if (!PyErr_GivenExceptionMatches(raw, PyExc_Exception))
    return !(PyErr_GivenExceptionMatches(raw, PyExc_KeyboardInterrupt) && runs_signal_handlers());  // Ctrl-C
  return PyErr_GivenExceptionMatches(raw, PyExc_StopIteration) ||
         PyErr_GivenExceptionMatches(raw, PyExc_StopAsyncIteration) ||
         is_of(exception, "concurrent.futures._base", "CancelledError") || !has_readable_class(exception);
}

}  // namespace

std::string class_name(py::handle object) {
  const char* const name = Py_TYPE(object.ptr())->tp_name;
  const char* const last = std::strrchr(name, '.');  // after the module of a class of C
  return last ? last + 1 : name;
}

Error from_exception(py::object exception) {
  if (!steers(exception)) return wrap_exception(std::move(exception));
  const std::string message = "the backend raised " + class_name(exception) + "(" + text_of(exception) + ")";
  py::object exit = construct("hami._errors", "BackendExit", message);
  PyException_SetCause(exit.ptr(), exception.release().ptr());
  return Error(ErrorCode::kForeign, message, opaque(std::move(exit)));
}

bool is_out_of_memory() {
  const bool is_set = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError);
  PyErr_Clear();
  try {
    throw;
  } catch (const py::error_already_set& raised) {
    return raised.matches(PyExc_MemoryError);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::runtime_error& error) {
    // Before CPython 3.12, an exception object is created when the exception is fetched.
    return is_set || std::strstr(error.what(), "REPLACED BY MemoryError");
  } catch (const std::exception&) {
    return false;
  }
}

namespace {
PyObject* spare_memory_error = nullptr;  // never freed
}

py::object memory_error() noexcept {
  PyException_SetTraceback(spare_memory_error, Py_None);  // of its last use
  PyException_SetContext(spare_memory_error, nullptr);
  return py::reinterpret_borrow<py::object>(spare_memory_error);
}

Error current_python_error() {
  try {
    throw;
  } catch (py::error_already_set& raised) {
    try {
      return from_python(raised);
    } catch (const std::exception&) {
      PyErr_Clear();
      return Error::out_of_memory();
    }
  } catch (const std::runtime_error&) {
    if (is_out_of_memory()) return Error::out_of_memory();
    return current_error();
  } catch (...) {
    PyErr_Clear();
    return current_error();
  }
}

void set_python_error() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      raise(error);  // runs Python code, which may itself fail
    }
  } catch (py::error_already_set& raised) {
    raised.restore();
  } catch (const py::builtin_exception& error) {
    error.set_error();
  } catch (const std::exception& error) {
    if (is_out_of_memory())
      PyErr_NoMemory();
    else
      PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void rethrow_python_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw current_python_error();
  }
}

py::object exception_in(py::error_already_set& raised) {
  py::object exception = raised.value();
  if (raised.trace()) PyException_SetTraceback(exception.ptr(), raised.trace().ptr());
  return exception;
}

Error from_python(py::error_already_set& raised) { return from_exception(exception_in(raised)); }

Error from_signal_handler(py::error_already_set& raised) { return wrap_exception(exception_in(raised)); }

py::object as_exception(py::object given) {
  if (PyExceptionClass_Check(given.ptr())) given = given();
  if (!PyExceptionInstance_Check(given.ptr()))
    throw Error(ErrorCode::kDataType, "fail() takes an exception, got " + std::string(py::repr(given)));
  return given;
}

py::object to_exception(const Error& error) {
  HAMI_ASSERT(has_gil());
  try {
    py::object exception = error.code() == ErrorCode::kForeign && error.payload().is_counted()
                               ? to_python(error.payload())
                               : make_exception(error);
    const std::string note = note_of(error);
    if (!note.empty()) add_note(exception, note);
    return exception;
  } catch (...) {
    if (!is_out_of_memory()) throw;
    return memory_error();
  }
}

void raise(const Error& error) {
  const py::object exception = to_exception(error);
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

void register_translators() {
  spare_memory_error = new_memory_error(Error::out_of_memory().message()).release().ptr();
  py::register_exception_translator([](std::exception_ptr thrown) {
    const auto set = [](const py::object& exception) {
      PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
    };
    try {
      std::rethrow_exception(thrown);
    } catch (const PlanProblems& found) {
      set(config_error(found));
    } catch (const Error& error) {
      set(to_exception(error));
    } catch (const py::builtin_exception&) {
      throw;
    } catch (const std::runtime_error&) {  // pybind11 throws it where Python has no memory
      if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_MemoryError)) throw;
    }
  });
}

}  // namespace hami::bind
