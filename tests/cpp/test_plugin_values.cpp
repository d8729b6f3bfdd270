// Values and callbacks that a native plugin passes to the host table: invalid arguments, and when objects are released.
#include <cstdint>
#include <string>

#include "plugin_errors.hpp"

using namespace hami;
using namespace hami::testing;

TEST_CASE("a value whose kind does not match its object is rejected") {
  hami_value text{};
  REQUIRE(!host_table().str_new("a", 1, &text));
  hami_value forged = text;
  forged.kind = HAMI_TENSOR;
  hami_value out;
  CHECK(text_of_error(host_table().list_new(&forged, 1, &out)) == "the value has kind 20, but its object is a str");
  forged.as.o = nullptr;
  CHECK(text_of_error(host_table().list_new(&forged, 1, &out)) == "the value has kind 20, but its object is NULL");
  hami_value unknown{9, 0, {5}};
  REQUIRE(!host_table().list_new(&unknown, 1, &out));
  hami_value back;
  REQUIRE(!host_table().list_at(&out, 0, &back));
  CHECK(back.kind == 9);
  CHECK(back.as.i == 5);
  host_table().object_release(out.as.o);
  host_table().object_release(text.as.o);
}

TEST_CASE("invalid UTF-8 is rejected in a value and escaped in an error") {
  hami_value out;
  CHECK(text_of_error(host_table().str_new("ab\xff", 3, &out)) ==
        "a str must be UTF-8, got \"ab\\xff\" with an invalid byte at offset 2; pass other data as bytes");
  CHECK(text_of_error(host_table().error_new(HAMI_INTERNAL, "ab\xff", 3)) == "ab\\xff");
}

TEST_CASE("keys, type keys and names of instances must be UTF-8") {
  Dict keys;
  hami_dict dict{&keys, nullptr};
  const hami_value none{};
  CHECK(text_of_error(host_table().dict_set(&dict, "a\xff", 2, &none)) ==
        "a key must be UTF-8, got \"a\\xff\" with an invalid byte at offset 1");
  CHECK(keys.size() == 0);
  hami_backend* found = nullptr;
  CHECK(text_of_error(host_table().backend_find(nullptr, "\xff", 1, &found)) ==
        "the name of an instance must be UTF-8, got \"\\xff\" with an invalid byte at offset 0");
  hami_value out;
  CHECK(text_of_error(host_table().opaque_new("\xff", nullptr, nullptr, &out)) ==
        "a type key must be UTF-8, got \"\\xff\" with an invalid byte at offset 0");
}

TEST_CASE("NULL instead of a tensor is rejected") {
  hami_value out;
  CHECK(text_of_error(host_table().tensor_adopt(nullptr, &out)) == "expected a DLPack tensor, got NULL");
}

TEST_CASE("a length beyond the address space is rejected before any byte is read") {
  const std::string refused = "a length of 18446744073709551615 is larger than the address space";
  const hami_host& core = host_table();
  Dict keys;
  hami_dict dict{&keys, nullptr};
  const hami_value none{};
  hami_value out;
  CHECK(text_of_error(core.str_new("a", SIZE_MAX, &out)) == refused);
  CHECK(text_of_error(core.bytes_new("a", SIZE_MAX, &out)) == refused);
  CHECK(text_of_error(core.list_new(&none, SIZE_MAX, &out)) == refused);
  CHECK(text_of_error(core.map_new(nullptr, &none, SIZE_MAX, &out)) == refused);
  CHECK(text_of_error(core.dict_set(&dict, "a", SIZE_MAX, &none)) == refused);
}

TEST_CASE("an error keeps its code; codes that the plugin ABI does not define become HAMI_UNKNOWN") {
  const hami_host& core = host_table();
  const auto code = [&](std::int32_t made_with) {
    hami_error* const error = core.error_new(made_with, "a", 1);
    hami_error* const copy = core.error_copy(error);
    core.error_free(error);
    const std::int32_t read = core.error_code(copy);
    core.error_free(copy);
    return read;
  };
  for (std::int32_t named : {1, 2, 3, 4, 5, 6, 8, 9, 12, 13, 14, 100, 101}) CHECK(code(named) == named);
  for (std::int32_t other : {-77, 0, 7, 10, 1000}) CHECK(code(other) == HAMI_UNKNOWN);
}

TEST_CASE("an opaque value is released once, even if it cannot be created") {
  int released = 0;
  const auto release = [](void* pointer) { ++*static_cast<int*>(pointer); };
  hami_value out;
  CHECK(text_of_error(host_table().opaque_new("", &released, release, &out)) == "an opaque value needs a type key");
  CHECK(released == 1);
  REQUIRE(!host_table().opaque_new("acme.thing", &released, release, &out));
  hami_text key;
  void* pointer = nullptr;
  REQUIRE(!host_table().opaque_view(&out, &key, &pointer));
  CHECK(std::string(key.data, key.size) == "acme.thing");
  CHECK(pointer == &released);
  CHECK(released == 1);
  host_table().object_release(out.as.o);
  CHECK(released == 2);
}

TEST_CASE("the data of an event callback is released once: after the call, without a call, and on an error") {
  struct Heard {
    int called = 0;
    int released = 0;
  } heard;
  const auto call = [](void* data, const hami_value* event) {
    CHECK(event->kind == HAMI_EVENT);
    ++static_cast<Heard*>(data)->called;
  };
  const auto release = [](void* data) { ++static_cast<Heard*>(data)->released; };
  const hami_host& core = host_table();
  hami_value event;
  const hami_value none{};
  REQUIRE(!core.event_new(&event));
  REQUIRE(!core.event_on_done(&event, call, &heard, release));
  CHECK(heard.released == 0);
  REQUIRE(!core.event_notify(&event, &none, nullptr));
  CHECK(heard.called == 1);
  REQUIRE(!core.event_on_done(&event, call, &heard, nullptr));
  CHECK(heard.called == 2);
  core.object_release(event.as.o);
  CHECK(heard.released == 1);

  REQUIRE(!core.event_new(&event));
  REQUIRE(!core.event_on_done(&event, call, &heard, release));
  core.object_release(event.as.o);
  CHECK(heard.called == 2);
  CHECK(heard.released == 2);

  CHECK(text_of_error(core.event_on_done(&none, call, &heard, release)) == "expected Event, got None");
  CHECK(text_of_error(core.event_fail(&none, core.error_new(HAMI_INTERNAL, "a", 1), nullptr)) ==
        "expected Event, got None");
  CHECK(heard.released == 3);
}
