// A list of address ranges, which a signal handler can read while a thread adds to it.
#include "plugin/plugin_code.hpp"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace hami {
namespace {

std::atomic<const PluginCode*> newest_code{nullptr};
static_assert(std::atomic<const PluginCode*>::is_always_lock_free, "a signal handler reads it");

struct CodeRange {
  std::uintptr_t function;  // in the wanted library
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// The executable segments of a library, from the first to the last, if they contain the wanted function.
int match_library(dl_phdr_info* info, std::size_t, void* wanted) {
  auto& range = *static_cast<CodeRange*>(wanted);
  CodeRange found{range.function, UINTPTR_MAX, 0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    found.begin = std::min(found.begin, begin);
    found.end = std::max(found.end, begin + segment.p_memsz);
  }
  if (range.function < found.begin || range.function >= found.end) return 0;
  range = found;
  return 1;
}

}  // namespace

void record_plugin_code(const void* function, const std::string& library, const std::string& plugin) {
  CodeRange range{reinterpret_cast<std::uintptr_t>(function)};
  if (!dl_iterate_phdr(match_library, &range)) return;
  const PluginCode* const known = find_plugin_code(range.function);
  if (known && known->plugin == plugin) return;
  auto code = std::make_unique<PluginCode>(PluginCode{range.begin, range.end, library, plugin, newest_code.load()});
  while (!newest_code.compare_exchange_weak(code->next, code.get())) {
  }
  (void)code.release();
}

const PluginCode* find_plugin_code(std::uintptr_t address) noexcept {
  for (const PluginCode* code = newest_code.load(std::memory_order_acquire); code; code = code->next)
    if (address >= code->begin && address < code->end) return code;
  return nullptr;
}

}  // namespace hami
