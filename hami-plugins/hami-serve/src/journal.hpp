// Journal: what the access log and the spans say of the requests that the native door has answered. A thread of Python reads it in bulk.
//
// An entry is allocated when its request begins, so that passing it on needs no memory. No thread waits for the reader:
// entries that it does not read in time are dropped, and counted.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <hami/backend.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "head.hpp"
#include "inference.hpp"
#include "models.hpp"
#include "queue.hpp"

namespace hami_serve {

struct Request;

inline constexpr std::int32_t kClientLeft = 499;  // a status in the log
inline constexpr std::size_t kMaxId = 1 << 10;    // bytes of a request's id; Python writes the line of a longer one

struct Entry {
  std::string path;  // of HTTP; "": ModelInfer over gRPC
  std::string id;    // that the client has given to the request
  std::array<std::string, kTraceHeaders.size()> trace;
  ModelPtr model;                     // that runs it; null: none has begun to
  hami::Value visits;                 // of the nodes of the model
  std::int64_t priority = 0;          // of the request; 0: none
  hami::Value error;                  // of the model, an event that has failed, or None
  std::int64_t begun = 0;             // ns
  std::int64_t ended = 0;             // ns
  std::int64_t ran_from = 0;          // ns; in the model
  std::int64_t ran_to = 0;            // ns; 0: its client has left before
  std::int32_t status = kClientLeft;  // of HTTP, or the code of gRPC if its client has not left
  std::unique_ptr<Entry> next;

  // Lets the core record the nodes of a request. False: the id is too long. Throws std::bad_alloc.
  bool record(const ModelPtr& running, Inference& inference);
  void has_run(const Request& request) noexcept;
};

class Journal {
 public:
  // What the reader gets at once.
  struct Batch {
    Queue<Entry> entries;  // which the addresses in `json` are in
    std::string json;
  };

  void add(std::unique_ptr<Entry> entry) noexcept;  // its request has ended now
  void close() noexcept;                            // after the last entry
  // Waits for entries. Null: the journal is closed, and everything was read. Throws std::bad_alloc; the entries are dropped then.
  std::unique_ptr<Batch> take();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Queue<Entry> entries_;
  std::uint64_t dropped_ = 0;  // since `take` has said how many
  bool is_closed_ = false;
};

}  // namespace hami_serve
