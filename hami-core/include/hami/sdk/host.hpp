// The plugin's copy of the host table, and Error, the exception of the SDK.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "hami/abi.h"

// The inline namespace keeps the symbols apart from those of the core, which has classes of the same names.
namespace hami {
inline namespace sdk {

// For objects that each plugin has once. Without hidden visibility, the linker would share them between plugins.
#define HAMI_SDK_OWN_ __attribute__((visibility("hidden")))

// One plugin is compiled for one minor version: classes of the SDK have other members and functions in another. Every source
// refers to the mark of its version, and HAMI_PLUGIN defines one, so that sources of two versions do not link.
#define HAMI_SDK_JOIN_(a, b) a##b
#define HAMI_SDK_MARK_OF_(minor) HAMI_SDK_JOIN_(HAMI_PLUGIN_in_a_source_with_HAMI_ABI_USE_MINOR_, minor)
#define HAMI_SDK_MARK_ HAMI_SDK_MARK_OF_(HAMI_ABI_USE_MINOR)
#if defined(__has_attribute) && defined(__linux__)
#if __has_attribute(retain)  // by --gc-sections
#define HAMI_SDK_KEEP_ __attribute__((used, retain))
#endif
#endif
#ifndef HAMI_SDK_KEEP_
#define HAMI_SDK_KEEP_ __attribute__((used))
#endif
extern "C" HAMI_SDK_OWN_ const char HAMI_SDK_MARK_;
HAMI_SDK_KEEP_ static const char* const mark_of_minor = &HAMI_SDK_MARK_;

// Filled by hami_plugin_v1, before any other code of the plugin runs.
HAMI_SDK_OWN_ inline hami_host& host() noexcept {
  static hami_host table{};
  return table;
}

inline std::string_view view(hami_text text) noexcept { return {text.data, text.size}; }

// The exception of the SDK: an error of the core, or one that the plugin throws. Copies share one error.
class Error : public std::exception {
 public:
  Error(std::int32_t code, std::string_view text) : Error(host().error_new(code, text.data(), text.size())) {}
  explicit Error(std::string_view text) : Error(HAMI_REQUEST, text) {}
  // Takes ownership of the error.
  explicit Error(hami_error* error)
      : error_(error, [](hami_error* handle) { host().error_free(handle); }),
        text_(std::make_shared<std::string>(view(host().error_text(error)))) {}

  const char* what() const noexcept override { return text_->c_str(); }
  std::int32_t code() const noexcept { return host().error_code(error_.get()); }
  bool is_final() const noexcept { return host().error_is_final(error_.get()) != 0; }
  // Marks the error as final: the core does not run the request again.
  Error& set_final() noexcept {
    host().error_set_final(error_.get());
    return *this;
  }
  // The exception of another language that it wraps, or HAMI_NONE. The caller must release the value.
  hami_value payload() const noexcept {
    hami_value value;
    host().error_payload(error_.get(), &value);
    return value;
  }
  // A new handle, for functions that take ownership of an error.
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

// Runs code of the plugin for the core, and returns its exception as an error. Only the exception by which the system cancels
// a thread passes.
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
