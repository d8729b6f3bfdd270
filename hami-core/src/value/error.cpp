// Error: shared immutable state, cheap to copy.
#include "value/error.hpp"

#include <cxxabi.h>

#include <new>

namespace hami {

struct Error::State {
  ErrorCode code;
  std::string message;
  Value payload;
  bool is_final;
};

namespace {
// Leaked intentionally: threads may use them until the process ends.
const auto& no_notes = *new const std::vector<std::string>;
const Error& no_memory = *new Error(ErrorCode::kOutOfMemory, "out of memory", {}, true);
const Error& closed_pipe = *new Error(ErrorCode::kPipeClosed, "the pipe is closed");
const Error& cancelled_request = *new Error(ErrorCode::kCancelled, "cancelled by its caller");
const Error& late_request = *new Error(ErrorCode::kDeadlineExceeded, "the request timed out");
}  // namespace

const char* exception_class(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInternal:
    case ErrorCode::kUnknown:
    case ErrorCode::kUnimplemented:
    case ErrorCode::kForeign: break;
    case ErrorCode::kConfig: return "ConfigError";
    case ErrorCode::kBackendNotFound: return "BackendNotFound";
    case ErrorCode::kPlugin: return "PluginError";
    case ErrorCode::kDataType: return "DataTypeError";
    case ErrorCode::kRequest: return "RequestError";
    case ErrorCode::kNoResult:
    case ErrorCode::kSkipped: return "NoResult";
    case ErrorCode::kQueueFull: return "QueueFull";
    case ErrorCode::kDeadlineExceeded: return "DeadlineExceeded";
    case ErrorCode::kPipeClosed: return "PipeClosed";
    case ErrorCode::kReentrantCall: return "ReentrantCall";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kAlreadyExists: return "AlreadyExists";
    case ErrorCode::kInvalidArgument: return "ValueError";
    case ErrorCode::kOutOfMemory: return "MemoryError";
    case ErrorCode::kCancelled: return "CancelledError";
  }
  return "Error";
}

Error::Error(ErrorCode code, std::string message, Value payload, bool final_error)
    : state_(std::make_shared<const State>(State{code, std::move(message), std::move(payload), final_error})) {}

const Error& Error::out_of_memory() noexcept { return no_memory; }
const Error& Error::pipe_closed() noexcept { return closed_pipe; }
const Error& Error::cancelled() noexcept { return cancelled_request; }
const Error& Error::timed_out() noexcept { return late_request; }

const char* Error::what() const noexcept { return state_->message.c_str(); }
ErrorCode Error::code() const noexcept { return state_->code; }
const std::string& Error::message() const noexcept { return state_->message; }
const Value& Error::payload() const noexcept { return state_->payload; }
bool Error::is_final() const noexcept { return state_->is_final; }
bool Error::alone() const noexcept { return state_.use_count() == 1; }

const std::vector<std::string>& Error::notes() const noexcept { return notes_ ? *notes_ : no_notes; }

Error Error::with_note(const std::string& note) const noexcept {
  Error copy = *this;
  try {
    std::vector<std::string> added = notes();
    added.push_back(note);
    copy.notes_ = std::make_shared<const std::vector<std::string>>(std::move(added));
  } catch (const std::bad_alloc&) {
    return *this;
  }
  return copy;
}

Error Error::as_final() const {
  Error copy(code(), message(), payload(), true);
  copy.notes_ = notes_;
  return copy;
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  } catch (const std::exception& error) {
    return error_from([&] { return Error(ErrorCode::kInternal, error.what()); });
  } catch (...) {
    // glibc cancels threads with a foreign exception, which has no C++ type and must be rethrown.
    if (!abi::__cxa_current_exception_type()) throw;
    return error_from(
        [] { return Error(ErrorCode::kInternal, "an exception that does not derive from std::exception"); });
  }
}

}  // namespace hami
