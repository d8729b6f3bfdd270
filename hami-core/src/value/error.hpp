// Error: the exception type of the core. A code, a message, and the exception object of another language, if it wraps one.
#pragma once

#include <exception>
#include <memory>
#include <string>
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

// Cheap to copy: copies share one immutable state. Notes belong to the copy that adds them.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, Value payload = {}, bool final_error = false);

  const char* what() const noexcept override;
  ErrorCode code() const noexcept;
  const std::string& message() const noexcept;
  const Value& payload() const noexcept;  // an opaque object, or none
  bool alone() const noexcept;            // no other copy shares the payload
  bool is_final() const noexcept;         // a retry cannot help, e.g. out of memory

  // Where it happened, innermost first: `backend DetectText`, `node "det"`.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  Error with_note(std::string note) const;
  Error as_final() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::vector<std::string> notes_;
};

// The exception being handled, as an Error. Call it only inside a catch block. Rethrows the exception that cancels a thread.
Error current_error();

}  // namespace hami
