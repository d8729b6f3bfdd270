// NativePlugin: what a native plugin declares, as classes for the registry.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend_class.hpp"
#include "plugin/abi.hpp"

namespace hami {

struct NativePlugin {
  std::string name;
  std::string version;
  std::string abi;  // the version that it was built with: "1.0"
  std::vector<ClassPtr> classes;
};

// Checks the tables, as far as this is possible. Error(kPlugin) says what is wrong. `library` is the path of its file, if it has
// one, for messages.
NativePlugin read_plugin(const hami_plugin& plugin, const std::string& owner, const std::string& library = "");

// The range that a class declares for all of its instances; empty if it declares none.
std::optional<Range> declared_range(const hami_backend_class& cls);
// A range as the ABI expresses it: without a limit, max is 0; HAMI_AUTO is auto.
Range range_of_abi(std::uint64_t min, std::uint64_t max) noexcept;

// Creates an instance. Fields of `cls` that its plugin does not have are zero. `origin` names the class and its plugin in messages.
BackendPtr make_native_backend(const hami_backend_class& cls, std::string origin = "a native backend");

}  // namespace hami
