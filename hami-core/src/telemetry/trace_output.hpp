// Output: where the events of a trace go: all of them into a file, or the latest ones, when a request was slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "telemetry/trace_recorder.hpp"
#include "telemetry/trace_writer.hpp"

namespace hami::trace {

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  // May throw Error(kConfig): the trace then ends.
  virtual void add(const Event& event, std::size_t index, const Thread& thread) = 0;
  // After the events that all threads have recorded so far. `lost`: how many are missing.
  virtual void flush(std::uint64_t lost, Nanoseconds moment) = 0;
  // As in Summary.
  virtual std::uint64_t written() const noexcept = 0;
};

// Error(kConfig) if the file cannot be written.
std::unique_ptr<Output> open_output(const Options& options);

}  // namespace hami::trace
