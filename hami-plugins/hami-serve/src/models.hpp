// Models: those that the native door calls itself, and what it counts for each.
#pragma once

#include <hami/caller.h>

#include <atomic>
#include <cstdint>
#include <hami/backend.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace hami_serve {

// A datatype of the protocol that native code reads and writes. BF16 is float32 in a pipe, and BYTES is text or bytes.
struct Datatype {
  const char* name;
  DLDataType type;
  std::size_t width;  // bytes of an element on the wire; 0: each has its length before it

  bool is_bytes() const noexcept { return width == 0; }
  bool is_converted() const noexcept { return width != type.bits / 8U; }  // between the wire and the tensor
};
const Datatype* datatype_of(std::string_view name) noexcept;
const Datatype* datatype_of(DLDataType type) noexcept;

struct Spec {
  std::string name;
  std::string datatype;  // "": any
  std::vector<std::int64_t> shape;
  bool is_text = false;  // of BYTES that the pipe takes as str
};
const Spec* spec_of(const std::vector<Spec>& specs, std::string_view name) noexcept;  // null: there is none

// The requests of one model that have ended since the last look.
struct Counts {
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;
  std::uint64_t more_rows = 0;
  std::int64_t success_ns = 0;
  std::int64_t failure_ns = 0;
  std::vector<std::int64_t> latencies_ns;  // the last ones
};

class Model {
 public:
  Model(std::int64_t number, hami_caller* caller);
  ~Model() { caller_->table->release(caller_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  hami_caller& caller() const noexcept { return *caller_; }
  // A value for the key kVisits of one request, which records its nodes; None with a core that has none. Throws std::bad_alloc.
  hami::Value new_visits() const;
  void began() noexcept { ++in_flight_; }
  void left() noexcept { --in_flight_; }  // it did not run
  void ended(std::int64_t nanoseconds, bool failed, std::uint64_t rows);
  std::int64_t in_flight() const noexcept { return in_flight_; }
  Counts take_counts();

  const std::int64_t key;  // by which Python knows it
  std::string name;        // of the component
  std::string version;
  std::vector<Spec> inputs;
  std::vector<Spec> outputs;
  bool checks_inputs = false;   // their datatypes and shapes are declared
  bool checks_outputs = false;  // their datatypes are declared
  std::optional<bool>
      takes_text;  // whether BYTES of an input without a datatype is str; nothing: the model does not say it

 private:
  hami_caller* const caller_;
  std::atomic<std::int64_t> in_flight_{0};
  std::mutex mutex_;
  Counts counts_;
};

using ModelPtr = std::shared_ptr<Model>;

inline constexpr const char* kVisits = "hami.visits";

// What a server may answer now.
struct Table {
  std::unordered_map<std::string, ModelPtr> by_path;  // "/v2/models/NAME/infer"
  std::unordered_set<std::string> reserved;           // names of keys that no input has
  bool ready = false;                                 // what /v2/health/ready says
  bool keeps_journal = false;                         // whether the log has a line for each request, or it has a span
  bool traces = false;                                // whether it has a span
};

// Reads a table that Python describes in JSON; models whose keys `old` has stay the same objects. Throws std::exception.
std::shared_ptr<const Table> read_table(std::string_view json, const Table& old);

}  // namespace hami_serve
