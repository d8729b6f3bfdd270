// Log messages of the core: to standard error, or to the sink of a language binding.
#pragma once

#include <string>

namespace hami {

enum LogLevel { kLogDebug = 10, kLogInfo = 20, kLogWarning = 30, kLogError = 40 };
// The lowest level that is logged: that of the environment variable HAMI_LOG (debug, info, warning, error) if it is set, else
// that of set_log_level; default: warning.
bool log_enabled(int level) noexcept;
void set_log_level(int level) noexcept;

// `source` is the name of a node, or "hami" for the core itself.
using LogSink = void (*)(const std::string& source, const std::string& message, int level);

void log_to_standard_error(const std::string& source, const std::string& message, int level);  // the default sink
void set_log_sink(LogSink sink) noexcept;
// Never throws. A message that cannot be written is lost.
void log(const std::string& source, const std::string& message, int level = kLogWarning) noexcept;

}  // namespace hami
