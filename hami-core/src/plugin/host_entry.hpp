// HAMI_HOST_ENTRY: sets a function of the host table so that no exception crosses the C ABI.
#pragma once

#include <type_traits>

#include "hami/abi.h"
#include "observe/log.hpp"
#include "plugin/handles.hpp"

namespace hami {

#ifdef HAMI_ASSERTIONS
// Tests set it: every entry of the host table calls it first, and it may throw.
inline void (*host_entry_hook)() = nullptr;
#endif

// The result of an entry that threw and cannot return an error: nothing, 0, or an empty text.
template <class Result>
Result failed_entry(const char* name, const Error& error) noexcept {
  log("hami", std::string("the host function ") + name + " failed: " + error.message());
  if constexpr (!std::is_void_v<Result>) return Result{};
}
template <>
inline hami_error* failed_entry<hami_error*>(const char*, const Error& error) noexcept {
  return hand_over(error);
}

// Not noexcept: the exception by which glibc cancels a thread must pass (see current_error).
template <class Entry, class Function>
struct HostEntry;
template <class Entry, class Result, class... Args>
struct HostEntry<Entry, Result (*)(Args...)> {
  static Result call(Args... args) {
    try {
#ifdef HAMI_ASSERTIONS
      if (host_entry_hook) host_entry_hook();
#endif
      return Entry::body()(args...);
    } catch (...) {
      return failed_entry<Result>(Entry::name(), current_error());
    }
  }
};

// HAMI_HOST_ENTRY(host, name, body): `body` is a lambda without captures. The function that it converts to has no
// linkage: g++ does not accept it as a template argument in C++17, so a class returns it.
#define HAMI_HOST_ENTRY(host, entry, ...)                                        \
  do {                                                                           \
    struct Entry {                                                               \
      static const char* name() noexcept { return #entry; }                      \
      static constexpr decltype(hami_host::entry) body() { return __VA_ARGS__; } \
    };                                                                           \
    (host).entry = &::hami::HostEntry<Entry, decltype(hami_host::entry)>::call;  \
  } while (false)

}  // namespace hami
