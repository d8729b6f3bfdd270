// The recorder of a trace: empties the rings of all threads into a file while a trace is active.
#pragma once

#include <cstdint>
#include <string>

#include "sync/api.hpp"

namespace hami::trace {

struct Options {
  std::string path;
  Nanoseconds last =
      0;  // above 0: keep only the events of this time, and write them when a request takes at least `slow`
  Nanoseconds slow = kNever;
};
struct Summary {
  std::uint64_t events = 0;
  std::uint64_t lost = 0;     // of rings that were full
  std::uint64_t written = 0;  // bytes; with `last`, files
  std::string error;          // why the trace ended early; empty: it did not
};

// Error(kAlreadyExists) if a trace is active, Error(kConfig) if the file cannot be written.
void start(const Options& options);
// Writes what is left, and ends the trace. Without a trace it does nothing.
Summary stop();

}  // namespace hami::trace
