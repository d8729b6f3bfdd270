// Conversion of values between Python and the core. Scalars are copied, text and containers are referenced, other
// objects are opaque.
#pragma once

#include "gil.hpp"
#include "value/api.hpp"

namespace hami::bind {

// Converts str, bytes, int (exact type, 64 bits), float, bool, None, list, tuple, dict and the core's own objects to
// the core's kinds; any other object becomes opaque. A value that is not copied keeps its identity: to_python returns
// the same object. `nesting` is 1 plus the number of containers around the value; Error(kDataType) if it exceeds the
// limit.
Value to_value(py::handle object, std::size_t nesting = 1);
py::object to_python(const Value& value);
// Whether the core reads the value without Python: text, a number, None or a container.
bool is_read_by_core(py::handle object) noexcept;

// A key as UTF-8. `what` names the owner of the key in messages; Error(kDataType) unless the key is a str of valid
// Unicode.
std::string key_of(py::handle key, const char* what = "a request");

// Copies the keys of a caller's dict and references its values. Error(kDataType) for a key that is not a str.
Dict snapshot(const py::dict& dict);
// Copies the entries that backends wrote, except `data`, into the caller's dict.
void write_back(const Dict& from, py::dict& to);

// The interned str of a name that the core uses often. Interned names make attribute and key look-ups fastest. Never
// freed.
py::handle interned(const char* name);

// The key `result` as a str of Python. Exists before the first request, so that failing one needs no memory.
py::handle result_key() noexcept;
void make_result_key();

// Wraps any Python object as an opaque value.
Value opaque(py::object object);

}  // namespace hami::bind
