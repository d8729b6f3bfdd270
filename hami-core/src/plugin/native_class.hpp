// The classes of a native plugin as the registry takes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hami/abi.h"
#include "backend/backend_class.hpp"

namespace hami {

struct NativePlugin {
  std::string name;
  std::string version;
  std::string abi;  // that it was built with: "1.0"
  std::vector<ClassPtr> classes;
};

// Checks the tables as far as that is possible. Error(kPlugin) says what is wrong with them.
NativePlugin read_plugin(const hami_plugin& plugin, const std::string& owner);

// What every instance of a class takes; empty if the class does not say.
std::optional<Range> declared_range(const hami_backend_class& cls);

// An instance of a class. `cls` has every field that its plugin gave, zero for the others.
BackendPtr make_native_backend(const hami_backend_class& cls);

}  // namespace hami
