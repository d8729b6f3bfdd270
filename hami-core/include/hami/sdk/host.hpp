// The host table of this plugin, and its errors.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "hami/abi.h"

// A namespace of its own for the linker: the core has classes of the same names.
namespace hami {
inline namespace sdk {

// What a plugin has once. Hidden: with other plugins that are built without hidden visibility it would be shared.
#define HAMI_SDK_OWN_ __attribute__((visibility("hidden")))

// Filled before anything else of the plugin runs.
HAMI_SDK_OWN_ inline hami_host& host() noexcept {
  static hami_host table{};
  return table;
}

inline std::string_view view(hami_text text) noexcept { return {text.data, text.size}; }

// The one exception of the SDK: what the core reported, or what an author throws. Copies share it.
class Error : public std::exception {
 public:
  Error(std::int32_t code, std::string_view text) : Error(host().error_new(code, text.data(), text.size())) {}
  explicit Error(std::string_view text) : Error(HAMI_REQUEST, text) {}
  // Takes the error over.
  explicit Error(hami_error* error)
      : error_(error, [](hami_error* it) { host().error_free(it); }),
        text_(std::make_shared<std::string>(view(host().error_text(error)))) {}

  const char* what() const noexcept override { return text_->c_str(); }
  std::int32_t code() const noexcept { return host().error_code(error_.get()); }
  bool is_final() const noexcept { return host().error_is_final(error_.get()) != 0; }
  // Trying the request again alone cannot help.
  Error& set_final() noexcept {
    host().error_set_final(error_.get());
    return *this;
  }
  // The exception of another language that it stands for; HAMI_NONE if none. To be released by the caller.
  hami_value payload() const noexcept {
    hami_value value;
    host().error_payload(error_.get(), &value);
    return value;
  }
  // A handle for functions that take ownership of errors.
  hami_error* copy() const noexcept { return host().error_copy(error_.get()); }

 private:
  std::shared_ptr<hami_error> error_;
  std::shared_ptr<const std::string> text_;
};

inline void check(hami_error* error) {
  if (error) throw Error(error);
}

inline hami_error* error_of(std::int32_t code, std::string_view text) noexcept {
  return host().error_new(code, text.data(), text.size());
}

// Runs an author's code for the core: no exception leaves it, except the one by which the system cancels a thread.
template <class Body>
hami_error* guard(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    return error.copy();
  } catch (const std::bad_alloc&) {
    return error_of(HAMI_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return error_of(HAMI_UNKNOWN, error.what());
  } catch (...) {
    if (!abi::__cxa_current_exception_type()) throw;
    return error_of(HAMI_UNKNOWN, "an exception that does not derive from std::exception");
  }
}

}  // namespace sdk
}  // namespace hami
