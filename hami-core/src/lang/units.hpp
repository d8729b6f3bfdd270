// Reads and prints numbers, durations and sizes, independent of the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hami {

std::string_view trim(std::string_view text) noexcept;

// "1.5", "-2", "1e3", "inf", "nan"; no other text around it.
std::optional<double> read_number(std::string_view text);
// "4", "4.0", "4e3": any notation of a 64-bit whole number.
std::optional<std::int64_t> read_integer(std::string_view text);
std::optional<std::int64_t> whole_number(double value) noexcept;
// 1 0 true false yes no on off, in any case.
std::optional<bool> read_bool(std::string_view text);

// Milliseconds: "5" and "5ms" are the same; the other units are us, s, min, h. Never negative, always finite.
std::optional<double> read_duration(std::string_view text);
// Bytes: "1024", "512k" and "512KiB" (times 1024), "512kB" (times 1000); k, m, g, t in any case. Never negative.
std::optional<std::int64_t> read_bytesize(std::string_view text);

// Shortest texts that read back as the same value.
std::string show_float(double value);            // "4.0", "0.1", "inf"
std::string show_duration(double milliseconds);  // "5ms", "2s"
std::string show_bytesize(std::int64_t bytes);   // "64MiB", "1000B"

}  // namespace hami
