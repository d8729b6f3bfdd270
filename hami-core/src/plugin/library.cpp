// Loads a plugin's library and calls its entry.
#include "plugin/library.hpp"

#include <dlfcn.h>

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text ? text : "the system gives no reason";
}

// An entry must not throw; if it does, that must not crash the process.
const hami_plugin* enter(hami_entry entry, hami_error** error) {
  try {
    return entry(fill_host, error);
  } catch (...) {
    throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " threw: " + readable(current_error().message()));
  }
}

}  // namespace

NativePlugin enter_plugin(hami_entry entry, const std::string& owner) {
  hami_error* error = nullptr;
  const hami_plugin* plugin = enter(entry, &error);
  const bool is_refused = error && error->refuses_abi;
  try {
    throw_if(error);
  } catch (const Error& failure) {
    if (is_refused) throw AbiRefused(failure.message());
    throw Error(ErrorCode::kPlugin, failure.message());
  }
  if (!plugin) throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " returned neither a plugin nor an error");
  return read_plugin(*plugin, owner);
}

NativePlugin load_library(const std::string& path, const std::string& owner) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::kPlugin, readable(last_dl_error()));
  if (void* entry = dlsym(library, HAMI_ENTRY_NAME)) return enter_plugin(reinterpret_cast<hami_entry>(entry), owner);
  for (int major = 2; major <= 9; ++major)
    if (dlsym(library, ("hami_plugin_v" + std::to_string(major)).c_str()))
      throw AbiRefused("needs hami ABI " + std::to_string(major) + ".0; hami-core " HAMI_VERSION " serves " +
                       served_abi() + ": pip install -U hami-core");
  throw Error(ErrorCode::kPlugin, in_quotes(path, 200) + " exports no " HAMI_ENTRY_NAME ": it is not a hami plugin");
}

}  // namespace hami
