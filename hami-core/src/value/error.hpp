// Error: the exception type of the core. A code, a message, and the exception object of another language, if it wraps one.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "value/value.hpp"

namespace hami {

// One code for each error class of reference/requests.md.
enum class ErrorCode {
  kInternal,       // a bug in the runtime
  kUnknown,        // a plugin's error without a class
  kUnimplemented,  // the backend does not implement the function
  kConfig,
  kBackendNotFound,
  kPlugin,
  kDataType,
  kRequest,
  kNoResult,
  kSkipped,  // nothing failed, but the request ends here; a graph continues without this branch
  kQueueFull,
  kDeadlineExceeded,
  kPipeClosed,
  kReentrantCall,
  kNotFound,
  kAlreadyExists,
  kInvalidArgument,
  kOutOfMemory,
  kCancelled,
  kForeign,  // payload() holds the backend's own exception object
};

// The class of the exception that a caller in Python gets; "Error" for kForeign.
const char* exception_class(ErrorCode code) noexcept;

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
