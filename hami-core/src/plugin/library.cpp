// Loads the library of a plugin and calls its entry.
#include "plugin/library.hpp"

#include <dlfcn.h>

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text ? text : "the library cannot be loaded, and the system reports no reason";
}

// An entry must not throw. If it does, this must not end the process.
const hami_plugin* call_without_exceptions(hami_entry entry, hami_error** error) {
  try {
    return entry(fill_host, error);
  } catch (...) {
    throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " threw: " + escape_invalid_utf8(current_error().message()));
  }
}

}  // namespace

NativePlugin call_entry(hami_entry entry, const std::string& owner) {
  hami_error* error = nullptr;
  const hami_plugin* plugin = call_without_exceptions(entry, &error);
  const bool is_incompatible = error && error->is_incompatible_abi;
  try {
    throw_if(error);
  } catch (const Error& failure) {
    if (is_incompatible) throw IncompatibleAbi(failure.message());
    throw Error(ErrorCode::kPlugin, failure.message());
  }
  if (!plugin) throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " returned neither a plugin nor an error");
  return read_plugin(*plugin, owner);
}

NativePlugin load_library(const std::string& path, const std::string& owner) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::kPlugin, escape_invalid_utf8(last_dl_error()));
  if (void* entry = dlsym(library, HAMI_ENTRY_NAME)) return call_entry(reinterpret_cast<hami_entry>(entry), owner);
  for (int major = 2; major <= 9; ++major)
    if (dlsym(library, ("hami_plugin_v" + std::to_string(major)).c_str()))
      throw IncompatibleAbi("needs hami ABI " + std::to_string(major) + ".0; hami-core " HAMI_VERSION " serves " +
                            served_abi() + ": pip install -U hami-core");
  throw Error(ErrorCode::kPlugin,
              in_quotes(path, 200) + " does not export " HAMI_ENTRY_NAME ", so it is not a HAMi plugin");
}

}  // namespace hami
