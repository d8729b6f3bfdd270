// The active log sink and level.
#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace hami {

void log_to_standard_error(const std::string& source, const std::string& message, int) {
  std::fprintf(stderr, "hami %s: %s\n", source.c_str(), message.c_str());
}

namespace {

// The level that HAMI_LOG names; 0: it names none.
int level_of_environment() noexcept {
  const char* const given = std::getenv("HAMI_LOG");
  const std::string_view name = given ? given : "";
  if (name == "debug") return kLogDebug;
  if (name == "info") return kLogInfo;
  if (name == "warning") return kLogWarning;
  return name == "error" ? kLogError : 0;
}

int fixed_level() noexcept {
  static const int level = level_of_environment();
  return level;
}

std::atomic<LogSink> active_sink{log_to_standard_error};
std::atomic<int> active_level{kLogWarning};  // unless fixed_level() is set

}  // namespace

bool log_enabled(int level) noexcept {
  const int fixed = fixed_level();
  return level >= (fixed ? fixed : active_level.load(std::memory_order_relaxed));
}

void set_log_level(int level) noexcept { active_level.store(level, std::memory_order_relaxed); }

void set_log_sink(LogSink sink) noexcept { active_sink = sink; }

void log(const std::string& source, const std::string& message, int level) noexcept {
  if (!log_enabled(level)) return;
  try {
    active_sink.load()(source, message, level);
  } catch (...) {
    // the sink failed; there is nowhere left to report it
  }
}

}  // namespace hami
