// NativeClass: the classes of a native plugin for the registry.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend_class.hpp"
#include "hami/abi.h"

namespace hami {

struct NativePlugin {
  std::string name;
  std::string version;
  std::string abi;  // that it was built with: "1.0"
  std::vector<ClassPtr> classes;
};

// Checks the tables as far as possible. Error(kPlugin) names the error.
NativePlugin read_plugin(const hami_plugin& plugin, const std::string& owner);

// The range of all instances of a class; empty if it is not declared.
std::optional<Range> declared_range(const hami_backend_class& cls);

// An instance of a class. `cls` has every field that its plugin gave, zero for the others.
BackendPtr make_native_backend(const hami_backend_class& cls);

}  // namespace hami
