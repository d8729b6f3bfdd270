// How many events per second the timeline takes, from how many threads, and how many it loses: native_trace_events FILE.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "observe/trace.hpp"
#include "telemetry/trace_recorder.hpp"

using namespace hami;

namespace {

constexpr std::uint64_t kEach = 1'000'000;  // slices of each thread, two events each

void record_slices() {
  trace::Event event;
  event.name = trace::intern("slice");
  for (std::uint64_t i = 0; i < kEach; ++i) {
    event.time = now();
    trace::Slice slice;
    slice.begin(event);
  }
}

void measure(const char* path, unsigned count) {
  trace::Options options;
  options.path = path;
  trace::start(options);
  const Nanoseconds began = now();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(record_slices);
  for (std::thread& thread : threads) thread.join();
  const double seconds = static_cast<double>(now() - began) / 1e9;
  const trace::Summary summary = trace::stop();
  std::printf("%u threads: %.2f million events/s written, %.2f million lost slices/s, %.1f bytes per event\n", count,
              static_cast<double>(summary.events) / seconds / 1e6, static_cast<double>(summary.lost) / seconds / 1e6,
              static_cast<double>(summary.written) / static_cast<double>(summary.events));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return std::fprintf(stderr, "usage: native_trace_events FILE\n"), 2;
  for (const unsigned threads : {1U, 2U, 4U}) measure(arguments[1], threads);
  std::remove(arguments[1]);
}
