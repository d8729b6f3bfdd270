// Log messages of the core: to standard error, or to the sink of a language binding.
#pragma once

#include <string>

namespace hami {

// The environment variable HAMI_LOG (debug, info, warning, error) sets the lowest level that is written; default: warning.
enum LogLevel { kLogDebug = 10, kLogInfo = 20, kLogWarning = 30, kLogError = 40 };
bool log_enabled(int level) noexcept;

using LogSink = void (*)(const std::string& source, const std::string& message);

void log_to_standard_error(const std::string& source, const std::string& message);  // the default sink
void set_log_sink(LogSink sink) noexcept;
// Never throws. A message that cannot be written is lost.
void log(const std::string& source, const std::string& message, int level = kLogWarning) noexcept;

}  // namespace hami
