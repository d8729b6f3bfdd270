// Values between Python and the core: small ones are copied, large ones are seen in place, others travel untouched.
#pragma once

#include "value/dict.hpp"
#include "gil.hpp"

namespace hami::bind {

// str, bytes, exact int (of 64 bits), float, bool, None, list, tuple, dict and the core's own objects become the core's
// kinds; anything else is opaque. What is not copied keeps its identity: it comes back as the same object.
// `nesting` is 1 more than the containers that it was found in; Error(kDataType) if it is one too many.
Value to_value(py::handle object, std::size_t nesting = 1);
py::object to_python(const Value& value);
// Whether a value is of a kind that backends of the core read without Python: text, a number, a container.
bool is_read_by_core(py::handle object) noexcept;

// A key as the core has it; DataTypeError, which names `what` whose key it is, for one that is no str.
std::string key_of(py::handle key, const char* what = "a request");

// The keys of a caller's dict; TypeError as DataTypeError for keys that are no str.
Dict snapshot(const py::dict& dict);
// What backends wrote goes back, `data` excepted.
void write_back(const Dict& from, py::dict& to);

// A name that the core says often: one str for as long as the process runs, which attributes and keys are found by soonest.
py::handle interned(const char* name);

// A Python object as an opaque value.
Value opaque(py::object object);

}  // namespace hami::bind
