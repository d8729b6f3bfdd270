// The code of loaded plugins in memory: which plugin an instruction belongs to, also in a thread that the plugin started.
#pragma once

#include <cstdint>
#include <string>

namespace hami {

struct PluginCode {
  std::uintptr_t begin;
  std::uintptr_t end;
  const std::string library;  // the path of the file
  const std::string plugin;   // such as "plugin acme-cv (/site/acme/cv.so)"
  const PluginCode* next;     // recorded earlier
};

// Records the code of the library that contains `function`. The last record of a library counts. It is never removed, as
// libraries of plugins are never unloaded.
void record_plugin_code(const void* function, const std::string& library, const std::string& plugin);

// Async-signal-safe. Null: the address is not in code of a plugin.
const PluginCode* find_plugin_code(std::uintptr_t address) noexcept;

}  // namespace hami
