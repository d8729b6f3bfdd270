// Error: the exception type of the core. A code, a message, and the exception object of another language, if it wraps one.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "value/value.hpp"

namespace hami {

// One code for each error class of reference/requests.md; the binding maps them to Python classes.
enum class ErrorCode {
  kInternal,          // hami.Error: a bug in the runtime
  kUnknown,           // hami.Error: a plugin's error without a class
  kUnimplemented,     // hami.Error: the backend does not implement the function
  kConfig,            // ConfigError
  kBackendNotFound,   // BackendNotFound
  kPlugin,            // PluginError
  kDataType,          // DataTypeError
  kRequest,           // RequestError
  kNoResult,          // NoResult
  kSkipped,           // NoResult: nothing failed, but the request ends here; a graph continues without this branch
  kQueueFull,         // QueueFull
  kDeadlineExceeded,  // DeadlineExceeded
  kPipeClosed,        // PipeClosed
  kReentrantCall,     // ReentrantCall
  kNotFound,          // NotFound
  kAlreadyExists,     // AlreadyExists
  kInvalidArgument,   // ValueError
  kOutOfMemory,       // MemoryError
  kCancelled,         // concurrent.futures.CancelledError
  kForeign,           // payload() holds the backend's own exception object
};

// Copies share one immutable state: copying never fails. Notes belong to the copy that adds them.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, Value payload = {}, bool final_error = false);

  // Outcomes that a request gets without memory: they exist before there is need of them.
  static const Error& out_of_memory() noexcept;
  static const Error& pipe_closed() noexcept;
  static const Error& cancelled() noexcept;
  static const Error& timed_out() noexcept;

  const char* what() const noexcept override;
  ErrorCode code() const noexcept;
  const std::string& message() const noexcept;
  const Value& payload() const noexcept;  // an opaque object, or none
  bool alone() const noexcept;            // no other copy shares the payload
  bool is_final() const noexcept;         // a retry cannot help, e.g. out of memory

  // Where it happened, innermost first: `backend DetectText`, `node "det"`.
  const std::vector<std::string>& notes() const noexcept;
  // Without memory for the note, the error has none.
  Error with_note(const std::string& note) const noexcept;
  Error as_final() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::shared_ptr<const std::vector<std::string>> notes_;  // null: none
};
static_assert(std::is_nothrow_copy_constructible_v<Error>);

// The exception being handled, as an Error. Call it only inside a catch block. Throws nothing but the exception that cancels a
// thread.
Error current_error();

// The error that `make` returns, or the exception that prevents it: there may be no memory for the message.
template <class Make>
Error error_from(const Make& make) {
  try {
    return make();
  } catch (...) {
    return current_error();
  }
}

}  // namespace hami
