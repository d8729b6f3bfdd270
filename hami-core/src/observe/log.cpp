// Log messages to the sink in force.
#include "observe/log.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace hami {
namespace {

void to_standard_error(const std::string& source, const std::string& message) {
  std::fprintf(stderr, "hami %s: %s\n", source.c_str(), message.c_str());
}

int chosen_level() noexcept {
  const char* const given = std::getenv("HAMI_LOG");
  const std::string_view name = given ? given : "";
  if (name == "debug") return kLogDebug;
  if (name == "info") return kLogInfo;
  return name == "error" ? kLogError : kLogWarning;
}

std::atomic<LogSink> sink_in_force{to_standard_error};

}  // namespace

bool log_enabled(int level) noexcept {
  static const int in_force = chosen_level();
  return level >= in_force;
}

void set_log_sink(LogSink sink) noexcept { sink_in_force = sink; }

void log(const std::string& source, const std::string& message, int level) noexcept {
  if (!log_enabled(level)) return;
  try {
    sink_in_force.load()(source, message);
  } catch (...) {
    // nothing to be done
  }
}

}  // namespace hami
