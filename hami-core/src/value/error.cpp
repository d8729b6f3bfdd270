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

Error::Error(ErrorCode code, std::string message, Value payload, bool final_error)
    : state_(std::make_shared<const State>(State{code, std::move(message), std::move(payload), final_error})) {}

const char* Error::what() const noexcept { return state_->message.c_str(); }
ErrorCode Error::code() const noexcept { return state_->code; }
const std::string& Error::message() const noexcept { return state_->message; }
const Value& Error::payload() const noexcept { return state_->payload; }
bool Error::is_final() const noexcept { return state_->is_final; }
bool Error::alone() const noexcept { return state_.use_count() == 1; }

Error Error::with_note(std::string note) const {
  Error copy = *this;
  copy.notes_.push_back(std::move(note));
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
    return Error(ErrorCode::kOutOfMemory, "out of memory", {}, true);
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  } catch (...) {
    // glibc cancels threads with a foreign exception, which has no C++ type and must be rethrown.
    if (!abi::__cxa_current_exception_type()) throw;
    return Error(ErrorCode::kInternal, "an exception that does not derive from std::exception");
  }
}

}  // namespace hami
