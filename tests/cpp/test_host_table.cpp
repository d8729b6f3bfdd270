// The host table: no exception of any entry crosses the C ABI. Builds without assertions do not have the hook that the tests
// need; they only check that the list of entries is complete.
#include <doctest/doctest.h>
#include <pthread.h>

#include <cstring>
#include <new>
#include <set>
#include <stdexcept>
#include <tuple>

#include "base/log.hpp"
#include "plugin/host_table.hpp"

using namespace hami;

namespace {

constexpr auto kEntries = std::make_tuple(
    &hami_host::error_new, &hami_host::error_code, &hami_host::error_text, &hami_host::error_payload,
    &hami_host::error_copy, &hami_host::error_set_final, &hami_host::error_is_final, &hami_host::error_free,
    &hami_host::object_retain, &hami_host::object_release, &hami_host::str_new, &hami_host::bytes_new,
    &hami_host::text_view, &hami_host::list_new, &hami_host::list_size, &hami_host::list_at, &hami_host::map_new,
    &hami_host::map_size, &hami_host::map_at, &hami_host::tensor_new, &hami_host::tensor_adopt, &hami_host::tensor_of,
    &hami_host::tensor_view, &hami_host::tensor_export, &hami_host::opaque_new, &hami_host::opaque_view,
    &hami_host::dict_get, &hami_host::dict_take, &hami_host::dict_set, &hami_host::dict_erase, &hami_host::dict_size,
    &hami_host::dict_at, &hami_host::item_fail, &hami_host::item_error, &hami_host::item_size,
    &hami_host::item_cancelled, &hami_host::item_deadline, &hami_host::item_priority, &hami_host::item_new,
    &hami_host::item_free, &hami_host::backend_forward, &hami_host::backend_forward_with_dep, &hami_host::backend_range,
    &hami_host::backend_label, &hami_host::backend_inject, &hami_host::backend_find, &hami_host::event_new,
    &hami_host::event_notify, &hami_host::event_fail, &hami_host::event_is_done, &hami_host::event_wait,
    &hami_host::event_on_done, &hami_host::queue_find, &hami_host::queue_push, &hami_host::queue_pop,
    &hami_host::store_create, &hami_host::store_insert, &hami_host::store_get, &hami_host::store_take,
    &hami_host::store_remove, &hami_host::context_node, &hami_host::context_label, &hami_host::context_instance,
    &hami_host::context_options, &hami_host::log_enabled, &hami_host::log, &hami_host::counter_add,
    &hami_host::clock_now, &hami_host::item_emit, &hami_host::device_tensor_adopt, &hami_host::device_tensor_of,
    &hami_host::device_tensor_view, &hami_host::ctx_stream_get, &hami_host::ctx_stream_set);
static_assert(std::tuple_size_v<decltype(kEntries)> == HAMI_HOST_SLOTS, "list every entry of hami_host here");

}  // namespace

#ifdef HAMI_ASSERTIONS
namespace {

int hook_calls = 0;
int log_messages = 0;

// While it exists, every entry runs `hook` first.
struct ScopedHook {
  explicit ScopedHook(void (*hook)()) { host_entry_hook = hook; }
  ~ScopedHook() { host_entry_hook = nullptr; }
  ScopedHook(const ScopedHook&) = delete;
  ScopedHook& operator=(const ScopedHook&) = delete;
};

struct CountLogMessages {
  CountLogMessages() {
    set_log_sink([](const std::string&, const std::string&, int) { ++log_messages; });
  }
  ~CountLogMessages() { set_log_sink(log_to_standard_error); }
};

template <class Result>
bool is_neutral(const Result& result) {
  const Result neutral{};
  return std::memcmp(&result, &neutral, sizeof result) == 0;
}

// Calls an entry with arguments that are zero: the hook throws before the entry reads them.
template <class Result, class... Args>
void check_entry(Result (*entry)(Args...), void (*hook)(), const char* message) {
  const int messages_before = log_messages;
  if constexpr (std::is_same_v<Result, hami_error*>) {
    hami_error* error = nullptr;
    {
      const ScopedHook throwing(hook);
      error = entry(Args{}...);
    }
    REQUIRE(error);
    CHECK_EQ(error->error.message(), message);
    host_table().error_free(error);
    CHECK_EQ(log_messages, messages_before);
  } else {
    const ScopedHook throwing(hook);
    if constexpr (std::is_void_v<Result>)
      entry(Args{}...);
    else
      CHECK(is_neutral(entry(Args{}...)));
    CHECK_EQ(log_messages, messages_before + 1);
  }
}

void check_all_entries(void (*hook)(), const char* message) {
  const CountLogMessages counting;
  hook_calls = 0;
  std::apply([&](auto... entries) { (check_entry(host_table().*entries, hook, message), ...); }, kEntries);
  CHECK_EQ(hook_calls, static_cast<int>(HAMI_HOST_SLOTS));
}

}  // namespace

TEST_CASE("the list of entries contains each entry of the host table once") {
  std::set<const void*> slots;
  std::apply([&](auto... entries) { (slots.insert(&(host_table().*entries)), ...); }, kEntries);
  CHECK_EQ(slots.size(), static_cast<std::size_t>(HAMI_HOST_SLOTS));
}

TEST_CASE("an exception of a host function becomes an error or a log message") {
  check_all_entries([] {
    ++hook_calls;
    throw std::runtime_error("thrown by a host function");
  }, "thrown by a host function");
  check_all_entries([] {
    ++hook_calls;
    throw Error(ErrorCode::kInternal, "an error of the core");
  }, "an error of the core");
  check_all_entries([] {
    ++hook_calls;
    throw std::bad_alloc();
  }, "out of memory");
  check_all_entries([] {
    ++hook_calls;
    throw 7;
  }, "an exception that does not derive from std::exception");
}

// glibc ends a thread by unwinding its stack with an exception, which must pass: glibc aborts if it is caught.
TEST_CASE("a host function lets the exception that ends a thread pass") {
  static bool returned = false;
  pthread_t thread;
  const auto call_entry = [](void*) -> void* {
    const ScopedHook ending([] { pthread_exit(nullptr); });
    host_table().clock_now();
    returned = true;
    return nullptr;
  };
  REQUIRE_EQ(pthread_create(&thread, nullptr, call_entry, nullptr), 0);
  REQUIRE_EQ(pthread_join(thread, nullptr), 0);
  host_entry_hook = nullptr;
  CHECK(!returned);
}
#endif
