// The active log sink and level.
#include "observe/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace hami {

void log_to_standard_error(const std::string& source, const std::string& message) {
  std::fprintf(stderr, "hami %s: %s\n", source.c_str(), message.c_str());
}

namespace {

int configured_level() noexcept {
  const char* const given = std::getenv("HAMI_LOG");
  const std::string_view name = given ? given : "";
  if (name == "debug") return kLogDebug;
  if (name == "info") return kLogInfo;
  return name == "error" ? kLogError : kLogWarning;
}

std::atomic<LogSink> active_sink{log_to_standard_error};

}  // namespace

bool log_enabled(int level) noexcept {
  static const int active_level = configured_level();
  return level >= active_level;
}

void set_log_sink(LogSink sink) noexcept { active_sink = sink; }

void log(const std::string& source, const std::string& message, int level) noexcept {
  if (!log_enabled(level)) return;
  try {
    active_sink.load()(source, message);
  } catch (...) {
    // the sink failed; there is nowhere left to report it
  }
}

}  // namespace hami
