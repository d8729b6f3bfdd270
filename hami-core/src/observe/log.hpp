// Where the core's messages go: standard error, or wherever a language binding sends them.
#pragma once

#include <string>

namespace hami {

// Messages below the level in force are not written: that of the variable HAMI_LOG (debug, info, warning or error), else
// warning. The core's own are warnings.
enum LogLevel { kLogDebug = 10, kLogInfo = 20, kLogWarning = 30, kLogError = 40 };
bool log_enabled(int level) noexcept;

using LogSink = void (*)(const std::string& source, const std::string& message);

void set_log_sink(LogSink sink) noexcept;
// Never throws; a message that cannot be written is lost.
void log(const std::string& source, const std::string& message, int level = kLogWarning) noexcept;

}  // namespace hami
