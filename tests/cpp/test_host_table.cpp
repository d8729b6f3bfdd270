// The host table: no exception crosses the C ABI, whichever entry throws. Needs a build with assertions, which has the hook.
#include <doctest/doctest.h>

#include <stdexcept>
#include <tuple>

#include "observe/log.hpp"
#include "plugin/host_entry.hpp"
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
    &hami_host::clock_now);
static_assert(std::tuple_size_v<decltype(kEntries)> == HAMI_HOST_SLOTS, "list every entry of hami_host here");

}  // namespace

#ifdef HAMI_ASSERTIONS
namespace {

int thrown = 0;
int logged = 0;

struct Throwing {
  Throwing() {
    host_entry_hook = [] {
      ++thrown;
      throw std::runtime_error("thrown by a host function");
    };
  }
  ~Throwing() { host_entry_hook = nullptr; }
};

// Calls an entry with arguments that are zero: the hook throws before they are read.
template <class Result, class... Args>
void call(Result (*entry)(Args...)) {
  if constexpr (std::is_same_v<Result, hami_error*>) {
    hami_error* error = nullptr;
    {
      const Throwing throwing;
      error = entry(Args{}...);
    }
    REQUIRE(error);
    CHECK_EQ(error->error.message(), "thrown by a host function");
    host_table().error_free(error);
  } else {
    const Throwing throwing;
    const int before = logged;
    entry(Args{}...);
    CHECK_EQ(logged, before + 1);
  }
}

}  // namespace

TEST_CASE("an exception of a host function becomes an error or a log message") {
  set_log_sink([](const std::string&, const std::string&) { ++logged; });
  thrown = 0;
  std::apply([](auto... entries) { (call(host_table().*entries), ...); }, kEntries);
  set_log_sink(log_to_standard_error);
  CHECK_EQ(thrown, static_cast<int>(HAMI_HOST_SLOTS));
}
#endif
