// Loads a pipe with requests from threads of the core, for benchmarks in Python.
#include "load.hpp"

#include <optional>

#include "statistics.hpp"
#include "values.hpp"

namespace hami::bind {
namespace {

// How often results that hold Python objects are released, and Ctrl-C is noticed.
constexpr Nanoseconds kLoadPoll = 10'000'000;

py::dict measured(const LoadResult& result) {
  py::dict failed, examples;
  for (const auto& [kind, failures] : result.failed) {
    failed[py::str(kind)] = failures.count;
    examples[py::str(kind)] = failures.example;
  }
  py::dict values;
  values["calls"] = result.calls;
  values["completed"] = result.completed;
  values["good"] = result.good;
  values["failed"] = failed;
  values["examples"] = examples;
  values["elapsed_s"] = static_cast<double>(result.elapsed) / 1e9;
  values["late_s"] = static_cast<double>(result.late) / 1e9;
  values["total_ms"] = static_cast<double>(result.total) / 1e6;
  values["longest_ms"] = static_cast<double>(result.longest) / 1e6;
  values["latency_ms"] = histogram(result.latency, 1e6);
  return values;
}

}  // namespace

py::dict run_load(const std::shared_ptr<PipeState>& pipe, const py::list& requests, LoadSpec spec) {
  std::vector<Dict> inputs;
  for (const py::handle request : requests) inputs.push_back(snapshot(py::reinterpret_borrow<py::dict>(request)));
  std::optional<LoadGenerator> load;
  const auto end = [&] {  // the clients may need the GIL to return
    const ReleaseGil released;
    load.reset();
  };
  {
    const ReleaseGil released;
    load.emplace(pipe, std::move(inputs), std::move(spec));
  }
  try {
    for (bool complete = false; !complete;) {
      {
        const ReleaseGil released;
        complete = load->wait(after(kLoadPoll));
      }
      run_pending_decrefs();
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    py::dict values = measured(load->result());
    end();
    return values;
  } catch (...) {
    end();
    throw;
  }
}

}  // namespace hami::bind
