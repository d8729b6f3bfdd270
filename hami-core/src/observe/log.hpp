// Where the core's messages go: standard error, or wherever a language binding sends them.
#pragma once

#include <string>

namespace hami {

using LogSink = void (*)(const std::string& source, const std::string& message);

void set_log_sink(LogSink sink) noexcept;
// Never throws; a message that cannot be written is lost.
void log(const std::string& source, const std::string& message) noexcept;

}  // namespace hami
