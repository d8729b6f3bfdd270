// LoadGenerator: sends requests to a pipe from threads of the core and measures each of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "observe/api.hpp"
#include "pipe/pipe_state.hpp"

namespace hami {

// Closed loop: `clients` threads call the pipe, each with one call at a time. Open loop: calls start at given moments, whether
// or not earlier ones are complete.
struct LoadSpec {
  std::size_t clients = 1;
  std::size_t per_call = 1;           // requests of one call
  std::size_t warmup = 0;             // calls of each client that are not measured
  std::uint64_t calls = UINT64_MAX;   // measured calls of all clients together
  Nanoseconds duration = kNever;      // no further call starts after it; counts from the end of the warm-up
  std::vector<Nanoseconds> arrivals;  // not empty: an open loop; ascending, from the end of the warm-up
  Nanoseconds timeout = kNever;       // of each request
  Nanoseconds objective = kNever;     // a request that takes longer is not good
  std::uint64_t seed = 0;             // of the choice of inputs
};

struct LoadResult {
  Histogram latency;            // of each completed request, in ns; in an open loop from the moment at which it was due
  Nanoseconds total = 0;        // these latencies added up
  Nanoseconds longest = 0;      // of them
  std::uint64_t calls = 0;      // that were measured
  std::uint64_t completed = 0;  // requests without an error
  std::uint64_t good = 0;       // of them: within the objective
  Nanoseconds elapsed = 0;      // from the end of the warm-up until the last completion
  Nanoseconds late = 0;         // open loop: the longest delay of a start
  struct Failures {
    std::uint64_t count = 0;
    std::string example;  // the message of the first
  };
  std::map<std::string, Failures> failed;  // requests with an error, by the class of the exception
};

class LoadGenerator {
 public:
  // Starts the load. Inputs are chosen at random; there is at least one. Error(kOutOfMemory) if there is no thread.
  LoadGenerator(std::shared_ptr<PipeState> pipe, std::vector<Dict> inputs, LoadSpec spec);
  // No further call starts. Clients that do not return within the grace period of one second are abandoned.
  ~LoadGenerator();

  // False: the load is not complete at `until`. Throws Error if the pipe was closed.
  bool wait(Nanoseconds until);
  // After `wait` has returned true.
  const LoadResult& result() const noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace hami
