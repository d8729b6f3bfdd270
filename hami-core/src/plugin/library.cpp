// Loads the library of a plugin and calls its entry.
#include "plugin/library.hpp"

#include <dlfcn.h>

#include "plugin/elf_file.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/plugin_call.hpp"
#include "plugin/plugin_code.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text ? text : "the library cannot be loaded, and the system reports no reason";
}

}  // namespace

NativePlugin call_entry(hami_entry entry, const std::string& owner, const std::string& library) {
  hami_error* error = nullptr;
  const hami_plugin* plugin = call_plugin(HAMI_ENTRY_NAME, library.c_str(), [&] { return entry(fill_host, &error); });
  const bool is_incompatible = error && error->is_incompatible_abi;
  try {
    throw_if(error);
  } catch (const Error& failure) {
    if (is_incompatible) throw IncompatibleAbi(failure.message());
    throw Error(ErrorCode::kPlugin, failure.message());
  }
  if (!plugin) throw Error(ErrorCode::kPlugin, "its " HAMI_ENTRY_NAME " returned neither a plugin nor an error");
  return read_plugin(*plugin, owner, library);
}

NativePlugin load_library(const std::string& path, const std::string& owner) {
  check_elf_file(path);
  report_crashes();
  const std::string name = escape_invalid_utf8(path);
  void* library =
      call_plugin("the initialisation", name.c_str(), [&] { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); });
  if (!library) throw Error(ErrorCode::kPlugin, escape_invalid_utf8(last_dl_error()));
  if (void* entry = dlsym(library, HAMI_ENTRY_NAME)) {
    record_plugin_code(entry, name, name);  // the entry may start threads
    NativePlugin plugin = call_entry(reinterpret_cast<hami_entry>(entry), owner, name);
    record_plugin_code(entry, name, "plugin " + plugin.name + " (" + name + ")");
    return plugin;
  }
  for (int major = 2; major <= 9; ++major)
    if (dlsym(library, ("hami_plugin_v" + std::to_string(major)).c_str()))
      throw IncompatibleAbi("needs hami ABI " + std::to_string(major) + ".0; hami-core " HAMI_VERSION " serves " +
                            served_abi() + ": pip install -U hami-core");
  throw Error(ErrorCode::kPlugin,
              in_quotes(path, 200) + " does not export " HAMI_ENTRY_NAME ", so it is not a HAMi plugin");
}

}  // namespace hami
