// Backends written in Python.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backend/api.hpp"
#include "gil.hpp"

namespace hami::bind {

// The attribute of the Python object that holds a parameter, and how the value is converted.
struct Attribute {
  std::string name;
  bool is_path = false;      // to pathlib.Path
  bool is_duration = false;  // from milliseconds to seconds
};
using Attributes = std::map<std::string, Attribute>;  // by parameter name

// Returns a backend whose object is made of this class in its init. Null attributes: the object takes all keys.
BackendPtr make_python_backend(std::shared_ptr<PyRef> cls, std::shared_ptr<const Attributes> attributes);

}  // namespace hami::bind
