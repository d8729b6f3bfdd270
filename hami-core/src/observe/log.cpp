// Log messages to the sink in force.
#include "observe/log.hpp"

#include <atomic>
#include <cstdio>

namespace hami {
namespace {

void to_standard_error(const std::string& source, const std::string& message) {
  std::fprintf(stderr, "hami %s: %s\n", source.c_str(), message.c_str());
}

std::atomic<LogSink> sink_in_force{to_standard_error};

}  // namespace

void set_log_sink(LogSink sink) noexcept { sink_in_force = sink; }

void log(const std::string& source, const std::string& message) noexcept {
  try {
    sink_in_force.load()(source, message);
  } catch (...) {
    // nothing to be done
  }
}

}  // namespace hami
