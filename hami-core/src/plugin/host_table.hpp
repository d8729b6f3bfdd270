// The host table: the functions of the core for plugins.
#pragma once

#include <cstdint>
#include <type_traits>

#include "plugin/abi.hpp"
#include "plugin/handles.hpp"

namespace hami {

// The host table: the functions of the core for plugins, and the negotiation of its version.
// The newest minor version that this core serves.
inline constexpr std::uint16_t kAbiMinor = 1;
static_assert(HAMI_ABI_MINOR == kAbiMinor);

const hami_host& host_table();

// Copies the functions that both versions have from the core's table to the plugin's. Error(kPlugin) if their ABI versions are
// incompatible.
void fill_table(const hami_host& core, hami_host& plugin);

// The `fill` function of a plugin's entry. The text of its error follows "…, which" in messages; see IncompatibleAbi.
hami_error* fill_host(hami_host* host);
// The first release of the core that serves what the last table asked for that this thread has filled; empty if it has filled
// none since the last call.
std::string take_first_release();

// Each sets the entries of one part of the table.
void add_errors(hami_host& host);
void add_values(hami_host& host);
void add_tensors(hami_host& host);
void add_requests(hami_host& host);
void add_children(hami_host& host);
void add_events(hami_host& host);
void add_queues(hami_host& host);
void add_store(hami_host& host);
void add_context(hami_host& host);

// HAMI_HOST_ENTRY: sets an entry of the host table to a function that lets no exception cross the C ABI.
#ifdef HAMI_ASSERTIONS
// For tests: every entry of the host table calls it first, and it may throw.
inline void (*host_entry_hook)() = nullptr;
#endif

// Logs a warning that names the entry and the exception that is being handled; call it only inside a catch block. Throws
// nothing but the exception by which glibc cancels a thread.
void log_failed_entry(const char* name);

// The function behind one entry. If the body throws, an entry that returns hami_error* returns the exception as an error; any
// other entry logs a warning and returns nothing, 0, NULL or an empty text. A body that returns nothing means success for an
// entry that returns hami_error*.
//
// `call` is not noexcept, because the exception by which glibc cancels a thread must pass (see current_error).
template <class Entry, class Function>
struct HostEntry;
template <class Entry, class Result, class... Args>
struct HostEntry<Entry, Result (*)(Args...)> {
  static Result call(Args... args) {
    try {
#ifdef HAMI_ASSERTIONS
      if (host_entry_hook) host_entry_hook();
#endif
      if constexpr (kReturnsError && std::is_void_v<decltype(Entry::body()(args...))>) {
        Entry::body()(args...);
        return nullptr;
      } else {
        return Entry::body()(args...);
      }
    } catch (...) {
      if constexpr (kReturnsError) {
        return make_current_error();
      } else {
        log_failed_entry(Entry::name());
        return Result();
      }
    }
  }

 private:
  static constexpr bool kReturnsError = std::is_same_v<Result, hami_error*>;
};

// HAMI_HOST_ENTRY(host, name, body): `body` is a lambda without captures, or a function. It is the result of a class because
// C++17 accepts neither a lambda nor a function without linkage as a template argument.
#define HAMI_HOST_ENTRY(host, entry, ...)                                       \
  do {                                                                          \
    struct Entry {                                                              \
      static const char* name() noexcept { return #entry; }                     \
      static constexpr auto body() { return __VA_ARGS__; }                      \
    };                                                                          \
    (host).entry = &::hami::HostEntry<Entry, decltype(hami_host::entry)>::call; \
  } while (false)

}  // namespace hami
