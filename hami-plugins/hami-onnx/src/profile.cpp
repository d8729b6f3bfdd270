// Moves the file that ONNX Runtime has written, whose name ends with a date, and adds an event with the clock.
#include "profile.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace hami_onnx {
namespace {

std::int64_t now(clockid_t clock) noexcept {
  timespec moment = {};
  clock_gettime(clock, &moment);
  return std::int64_t{moment.tv_sec} * 1'000'000'000 + moment.tv_nsec;
}

// ONNX Runtime reads the finest clock of its C++ library, which counts from 1970 or from the start of the machine.
std::int64_t on_monotonic_clock(std::int64_t start) noexcept {
  const std::int64_t monotonic = now(CLOCK_MONOTONIC);
  const std::int64_t since_1970 = now(CLOCK_REALTIME) - start;
  const std::int64_t since_start = monotonic - start;
  return std::llabs(since_1970) < std::llabs(since_start) ? monotonic - since_1970 : start;
}

}  // namespace

void write_profile(const Library& library, OrtSession* session, const std::string& path) noexcept try {
  const Api& api = library.api();
  std::uint64_t start = 0;
  library.check(api.SessionGetProfilingStartTimeNs(session, &start));
  char* text = nullptr;
  library.check(api.SessionEndProfiling(session, library.allocator(), &text));
  const std::string written = text;
  library.check(api.AllocatorFree(library.allocator(), text));
  std::ifstream events(written);
  std::ofstream out(path);
  events.ignore(1);  // the bracket of the list
  out << R"([{"ph": "M", "name": "hami_clock", "pid": )" << getpid() << R"(, "tid": 0, "args": {"monotonic_ns": )"
      << on_monotonic_clock(static_cast<std::int64_t>(start)) << "}}," << events.rdbuf();
  if (out.flush()) std::remove(written.c_str());
} catch (...) {  // a session ends in destructors
}

}  // namespace hami_onnx
