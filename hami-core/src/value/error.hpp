// The one exception type of the core: a code, a text for people, and the foreign exception it came from, if any.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "value/value.hpp"

namespace hami {

// One code for each class of LANGUAGE.md §4's error tree; the binding maps them to Python classes.
enum class ErrorCode {
  kInternal,          // hami.Error: a fault of the runtime itself
  kUnknown,           // hami.Error: a plugin's, of which it says no more
  kUnimplemented,     // hami.Error: what was called has no such function
  kConfig,            // ConfigError
  kBackendNotFound,   // BackendNotFound
  kPlugin,            // PluginError
  kDataType,          // DataTypeError
  kRequest,           // RequestError
  kNoResult,          // NoResult
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

// Cheap to copy: copies share one immutable state but for the notes, which belong to the copy that adds them.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, Value payload = {}, bool final_error = false);

  const char* what() const noexcept override;
  ErrorCode code() const noexcept;
  const std::string& message() const noexcept;
  const Value& payload() const noexcept;  // an opaque object, or none
  bool alone() const noexcept;            // no copy of it has the same payload
  bool is_final() const noexcept;         // trying again alone cannot help (out of memory, for example)

  // Where it happened, outermost last: `node "det"`, `backend DetectText`.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  Error with_note(std::string note) const;
  Error as_final() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  std::vector<std::string> notes_;
};

// The exception being handled as an Error; call only inside a catch block. Rethrows what ends a thread.
Error current_error();

}  // namespace hami
