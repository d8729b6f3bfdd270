// Native plugins: valid ones, invalid tables, and ABI versions that are older or newer than the core's.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "base/log.hpp"
#include "base/process.hpp"
#include "pipes.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/library.hpp"
#include "plugin_errors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// A plugin that is compiled into the tests: sets `result` to `data`.
hami_host host;

hami_error* create(hami_context*, const hami_dict*, hami_dict*, hami_backend* const*, std::size_t, void** self) {
  *self = nullptr;
  return nullptr;
}
void destroy(void*) {}
hami_error* forward(void*, hami_context*, hami_dict* const* items, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    hami_value data;
    if (!host.dict_get(items[i], "data", 4, &data)) continue;
    hami_error* error = host.dict_set(items[i], "result", 6, &data);
    if (data.kind >= HAMI_STR) host.object_release(data.as.o);
    if (error) return error;
  }
  return nullptr;
}

hami_backend_class echo_class(const char* name = "NativeEcho") {
  hami_backend_class cls{};
  cls.struct_size = sizeof cls;
  cls.name = name;
  cls.create = create;
  cls.destroy = destroy;
  cls.forward = forward;
  return cls;
}

hami_plugin plugin_of(const std::vector<const hami_backend_class*>& classes) {
  return {sizeof(hami_plugin), 1, 0, "forged", "0.1", classes.data(), classes.size()};
}

std::string rejection(const hami_plugin& plugin) {
  try {
    read_plugin(plugin, "");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kPlugin);
    return error.message();
  }
  return "";
}

std::string rejection(const hami_backend_class& cls) { return rejection(plugin_of({&cls})); }

hami_host table_for(std::uint32_t slots = HAMI_HOST_SLOTS, std::uint16_t major = 1, std::uint16_t min_minor = 0) {
  hami_host table{};
  table.slot_count = slots;
  table.abi_major = major;
  table.min_minor = min_minor;
  return table;
}

void define_native(const hami_backend_class& cls) {
  register_core();
  if (!host.error_new) {
    host = table_for();
    REQUIRE(!fill_host(&host));
  }
  for (const ClassPtr& made : read_plugin(plugin_of({&cls}), "").classes) Registry::instance().define(made);
}

const hami_plugin* returns_nothing(hami_fill, hami_error**) { return nullptr; }

const hami_plugin* fails_without_a_text(hami_fill fill, hami_error** error) {
  hami_host table = table_for();
  if ((*error = fill(&table))) return nullptr;
  *error = table.error_new(HAMI_INTERNAL, "", 0);
  return nullptr;
}

const hami_plugin* throws(hami_fill, hami_error**) { throw std::runtime_error("no luck"); }

template <std::uint16_t major, std::uint16_t min_minor>
const hami_plugin* needs(hami_fill fill, hami_error** error) {
  hami_host table = table_for(HAMI_HOST_SLOTS, major, min_minor);
  *error = fill(&table);
  return nullptr;
}

std::string incompatibility(hami_entry entry) {
  try {
    call_entry(entry, "");
  } catch (const IncompatibleAbi& error) {
    return error.what();
  }
  return "";
}

std::string failed(hami_entry entry) {
  try {
    call_entry(entry, "");
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("every slot of the host table has its function") {
  const auto* slots = reinterpret_cast<void (*const*)()>(&host_table().error_new);
  for (std::uint32_t i = 0; i < HAMI_HOST_SLOTS; ++i) CHECK(bool(slots[i]));
}

TEST_CASE("a native class sets the result of requests") {
  define_native(echo_class());
  TestPipe pipe({{"backend", text("NativeEcho")}});
  CHECK(pipe.call(Value(7)).number() == 7);
  CHECK(pipe.call(text("seven")).result().as_text() == "seven");
}

TEST_CASE("a request without a result after a native forward fails") {
  hami_backend_class cls = echo_class("NativeIdle");
  cls.forward = [](void*, hami_context*, hami_dict* const*, std::size_t) -> hami_error* { return nullptr; };
  define_native(cls);
  TestPipe pipe({{"backend", text("NativeIdle")}});
  const CallResult outcome = pipe.call(Value(7));
  CHECK(outcome.code == ErrorCode::kNoResult);
}

TEST_CASE("an item that fails does not fail its batch") {
  hami_backend_class cls = echo_class("NativeOdd");
  cls.forward = [](void* self, hami_context* context, hami_dict* const* items, std::size_t n) -> hami_error* {
    for (std::size_t i = 0; i < n; ++i) {
      hami_value data;
      host.dict_get(items[i], "data", 4, &data);
      if (data.as.i % 2 != 0) host.item_fail(items[i], host.error_new(HAMI_INVALID_ARGUMENT, "odd", 3));
    }
    return forward(self, context, items, n);
  };
  define_native(cls);
  TestPipe pipe({{"backend", text("NativeOdd")}, {"max", Value(4)}});
  const std::vector<CallResult> outcomes = pipe.call_many(requests_of({2, 3, 4}));
  CHECK(outcomes[0].number() == 2);
  CHECK(outcomes[1].code == ErrorCode::kInvalidArgument);
  CHECK(outcomes[1].message == "odd");
  CHECK(outcomes[1].notes == std::vector<std::string>{"backend NativeOdd", "node \"n\""});
  CHECK(outcomes[2].number() == 4);
}

TEST_CASE("a shorter table gets only the functions that fit") {
  struct {
    hami_host host;
    std::uint64_t guard;
  } table{table_for(3), 42};
  CHECK(!fill_host(&table.host));
  CHECK(table.host.slot_count == 3);
  CHECK(bool(table.host.error_text));
  CHECK(!table.host.error_copy);
  CHECK(table.guard == 42);
}

TEST_CASE("a plugin of a later minor version gets null for functions that this core does not have") {
  struct {
    hami_host host;
    void (*later)();
  } table{table_for(UINT32_MAX), nullptr};
  table.host.abi_minor = 9;
  CHECK(!fill_host(&table.host));
  CHECK(table.host.slot_count == HAMI_HOST_SLOTS);
  CHECK(table.host.abi_minor == kAbiMinor);
  CHECK(bool(table.host.clock_now));
  CHECK(!table.later);
}

TEST_CASE("each pair of minor versions shares the common functions, or is rejected with the reason") {
  struct Table {  // of minor version n: n functions more than minor 0 has
    hami_host host;
    void (*later[3])();
  };
  for (std::uint16_t core = 0; core <= 3; ++core) {
    Table own{host_table(), {}};
    own.host.abi_minor = core;
    own.host.slot_count = HAMI_HOST_SLOTS + core;
    std::fill_n(own.later, core, [] {});
    for (std::uint16_t plugin = 0; plugin <= 3; ++plugin)
      for (std::uint16_t needs = 0; needs <= plugin; ++needs) {
        Table asked{table_for(HAMI_HOST_SLOTS + plugin, 1, needs), {}};
        asked.host.abi_minor = plugin;
        std::string refused;
        try {
          fill_table(own.host, asked.host);
        } catch (const Error& error) {
          refused = error.message();
        }
        if (needs > core) {
          CHECK(refused == "needs hami ABI 1." + std::to_string(needs) + "; hami-core " HAMI_VERSION " serves 1." +
                               std::to_string(core) + ": pip install -U hami-core");
          CHECK(!asked.host.error_new);
          continue;
        }
        CHECK(refused == "");
        CHECK(asked.host.abi_minor == core);
        CHECK(asked.host.slot_count == HAMI_HOST_SLOTS + std::min(core, plugin));
        CHECK(bool(asked.host.clock_now == own.host.clock_now));
        for (std::uint16_t i = 0; i < 3; ++i) CHECK(bool(asked.later[i]) == (i < std::min(core, plugin)));
      }
  }
}

TEST_CASE("a plugin of another major version or a newer required minor version is rejected") {
  const std::string serves = "; hami-core " HAMI_VERSION " serves 1.1";
  CHECK(incompatibility(needs<2, 0>) == "needs hami ABI 2.0" + serves + ": pip install -U hami-core");
  CHECK(incompatibility(needs<1, 4>) == "needs hami ABI 1.4" + serves + ": pip install -U hami-core");
  CHECK(incompatibility(needs<1, 65535>) == "needs hami ABI 1.65535" + serves + ": pip install -U hami-core");
  CHECK(incompatibility(needs<0, 3>) == "needs hami ABI 0.3" + serves + "; install a newer version of the plugin");
}

TEST_CASE("the error names an entry that fails") {
  CHECK(failed(returns_nothing) == "its hami_plugin_v1 returned neither a plugin nor an error");
  CHECK(failed(throws) ==
        "hami_plugin_v1 of this program threw an exception, which functions of a plugin must not do: no luck");
  CHECK(failed(fails_without_a_text) == "an error with code 13 and no text");
}

TEST_CASE("an invalid table is rejected with the reason") {
  const std::string plugin_size = std::to_string(sizeof(hami_plugin));
  hami_plugin plugin = plugin_of({});
  plugin.struct_size = 0;
  CHECK(rejection(plugin) == "its hami_plugin has struct_size 0; hami/abi.h requires at least " + plugin_size);
  plugin = plugin_of({});
  plugin.name = nullptr;
  CHECK(rejection(plugin) == "its hami_plugin has no name");
  plugin = plugin_of({});
  plugin.n_classes = 3;
  plugin.classes = nullptr;
  CHECK(rejection(plugin) == "plugin \"forged\" has no table of classes");
  CHECK(rejection(plugin_of({nullptr})) == "class 0 of plugin \"forged\" is missing");

  hami_backend_class cls = echo_class();
  cls.struct_size = 0;
  CHECK(rejection(cls) == "class 0 of plugin \"forged\" has struct_size 0; hami/abi.h requires at least 80");
  cls = echo_class(nullptr);
  CHECK(rejection(cls) == "class 0 of plugin \"forged\" has no name");
  for (const char* name : {"a name", "1st", "S[A]"}) {
    cls = echo_class(name);
    CHECK(rejection(cls) ==
          std::string("class \"") + name +
              "\" of plugin \"forged\" does not have a valid backend name: use letters, digits and _, not starting "
              "with a digit");
  }
  cls = echo_class();
  cls.min_items = 3;
  cls.max_items = 2;
  CHECK(rejection(cls) == "class \"NativeEcho\" of plugin \"forged\" declares min_items=3, which is above max_items=2");
  cls = echo_class();
  cls.forward = nullptr;
  CHECK(rejection(cls) == "class \"NativeEcho\" of plugin \"forged\" has no create, destroy or forward");
  cls = echo_class();
  cls.flags = 3;
  CHECK(
      rejection(cls) ==
      "class \"NativeEcho\" of plugin \"forged\" declares an unknown thread mode, flags=3; see HAMI_THREAD_MASK in hami/abi.h");
  cls.flags = HAMI_NON_BLOCKING;
  CHECK(
      rejection(cls) ==
      "class \"NativeEcho\" of plugin \"forged\" is non-blocking, which needs HAMI_THREAD_SERIALIZED or HAMI_THREAD_CONCURRENT; it is "
      "HAMI_THREAD_DEDICATED");
  cls.flags = HAMI_LIGHTWEIGHT;
  CHECK(
      rejection(cls) ==
      "class \"NativeEcho\" of plugin \"forged\" is lightweight, but each instance has a thread: HAMI_LIGHTWEIGHT needs "
      "HAMI_THREAD_SERIALIZED or HAMI_THREAD_CONCURRENT; it is HAMI_THREAD_DEDICATED");
  cls = echo_class();
  cls.params = "step int";
  CHECK(
      rejection(cls) ==
      "class \"NativeEcho\" of plugin \"forged\": declared parameters \"step int\": a type is missing after \"step\"");
  cls = echo_class();
  cls.min_children = 2;
  cls.max_children = 1;
  CHECK(rejection(cls) ==
        "class \"NativeEcho\" of plugin \"forged\" declares min_children=2, which is above max_children=1");
  cls = echo_class();
  const hami_backend_class again = echo_class();
  CHECK(rejection(plugin_of({&cls, &again})) == "plugin \"forged\" has two classes \"NativeEcho\"");
}

TEST_CASE("fields beyond struct_size are not read") {
  hami_backend_class cls = echo_class("NativeShort");
  cls.struct_size = offsetof(hami_backend_class, range);
  cls.range = [](void*, std::uint64_t*, std::uint64_t*) -> hami_error* { std::abort(); };
  define_native(cls);
  TestPipe pipe({{"backend", text("NativeShort")}});
  CHECK(pipe.call(Value(7)).number() == 7);
}

TEST_CASE("HAMI_AUTO reaches the node and a parent, and 0 stays no limit") {
  const auto max_of = [](std::uint64_t declared) {
    hami_backend_class cls = echo_class("NativeAny");
    cls.min_items = 1;
    cls.max_items = declared;
    return declared_range(cls)->max;
  };
  CHECK_EQ(max_of(HAMI_AUTO), Range::kAuto);
  CHECK_EQ(max_of(0), Range::kUnbounded);
  CHECK_EQ(max_of(8), 8u);
  static std::uint64_t seen = 0;
  hami_backend_class child = echo_class("NativeAuto");
  child.max_items = HAMI_AUTO;
  define_native(child);
  hami_backend_class parent = echo_class("NativeParent");
  parent.min_children = parent.max_children = 1;
  parent.range = [](void*, std::uint64_t* min, std::uint64_t* max) -> hami_error* {
    *min = 1;
    *max = seen;
    return nullptr;
  };
  parent.create = [](hami_context*, const hami_dict*, hami_dict*, hami_backend* const* children, std::size_t,
                     void**) -> hami_error* {
    std::uint64_t min = 0;
    host.backend_range(children[0], &min, &seen);
    return nullptr;
  };
  define_native(parent);
  TestPipe pipe({{"backend", text("NativeParent[NativeAuto]")}, {"max", text("auto")}});
  CHECK_EQ(seen, HAMI_AUTO);
  CHECK(pipe.call(Value(7)).number() == 7);
}

TEST_CASE("only a class with HAMI_LIGHTWEIGHT has an instance for each core") {
  static std::atomic<int> created{0};
  const auto instances_of = [](std::uint32_t flags, const char* device = "cpu") {
    hami_backend_class cls = echo_class("NativeLight");
    cls.flags = flags;
    cls.params = "device: str = 'cpu'";
    cls.create = [](hami_context*, const hami_dict*, hami_dict*, hami_backend* const*, std::size_t,
                    void**) -> hami_error* {
      ++created;
      return nullptr;
    };
    define_native(cls);
    created = 0;
    TestPipe pipe({{"backend", text("S[NativeLight]")}, {"device", text(device)}});
    CHECK(pipe.call(Value(7)).number() == 7);
    return created.load();
  };
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT), usable_cores());
  CHECK_EQ(instances_of(HAMI_THREAD_SERIALIZED | HAMI_LIGHTWEIGHT), usable_cores());
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT), 1);  // as a class of 1.0
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT_ON_DEVICE), 1);
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT | 256u), 1);  // a flag of a later version
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT, "npu:1"), 1);
  CHECK_EQ(instances_of(HAMI_THREAD_CONCURRENT | HAMI_LIGHTWEIGHT | HAMI_LIGHTWEIGHT_ON_DEVICE, "npu:1"),
           usable_cores());
}

TEST_CASE("a range with min above max fails the build of the pipe") {
  hami_backend_class cls = echo_class("NativeRange");
  cls.range = [](void*, std::uint64_t* min, std::uint64_t* max) -> hami_error* {
    *min = 4;
    *max = 2;
    return nullptr;
  };
  define_native(cls);
  try {
    TestPipe pipe({{"backend", text("NativeRange")}});
    CHECK(false);
  } catch (const Error& error) {
    CHECK(
        error.message() ==
        "NativeRange declares the range min=4, max=2; min must be at least 1, and max at least min, or 0 for no limit");
  }
}

// The range of an instance that refers to itself cannot be determined.
TEST_CASE(
    "a plugin that asks for the range of a broken child does not end the process, and the pipe is a ConfigError") {
  static std::uint64_t min, max;
  static std::string logged;
  min = max = 77;
  hami_backend_class cls = echo_class("NativeAsks");
  cls.min_children = cls.max_children = 1;
  cls.create = [](hami_context*, const hami_dict*, hami_dict*, hami_backend* const* children, std::size_t,
                  void** self) -> hami_error* {
    *self = nullptr;
    host.backend_range(children[0], &min, &max);
    return nullptr;
  };
  define_native(cls);
  PipeConfig config;
  config.nodes = {{"a", {{"node_entrypoint", "Register[Forward[node.b]]"}}},
                  {"b", {{"node_entrypoint", "Register[Forward[node.a]]"}}},
                  {"c", {{"backend", "NativeAsks[Forward[node.a]]"}}}};
  set_log_sink([](const std::string&, const std::string& message, int) { logged = message; });
  try {
    TestPipe pipe(config);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kConfig);
    CHECK_NE(error.message().find("calls itself, directly or through other instances"), std::string::npos);
  }
  set_log_sink(log_to_standard_error);
  CHECK_NE(logged.find("backend_range"), std::string::npos);
  CHECK_EQ(min, 1u);
  CHECK_EQ(max, 0u);
}

TEST_CASE("an exception that leaves a function of a plugin is an error that names both") {
  hami_backend_class cls = echo_class("NativeThrows");
  cls.forward = [](void*, hami_context*, hami_dict* const*, std::size_t) -> hami_error* { throw 3; };
  cls.destroy = [](void*) { throw std::runtime_error("no luck"); };
  define_native(cls);
  TestPipe pipe({{"backend", text("NativeThrows")}});
  const CallResult outcome = pipe.call(Value(7));
  CHECK(outcome.code == ErrorCode::kPlugin);
  CHECK(outcome.message ==
        "forward of backend NativeThrows of plugin forged threw an exception, which functions of a plugin must not do: "
        "an exception that does not derive from std::exception");
}

TEST_CASE("a class that needs the GIL cannot be created in a process without Python") {
  hami_backend_class cls = echo_class("NativeLocked");
  cls.flags = HAMI_THREAD_SERIALIZED | HAMI_NEEDS_GIL;
  define_native(cls);
  try {
    TestPipe pipe({{"backend", text("NativeLocked")}});
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kPlugin);
    CHECK(error.message() == "NativeLocked needs Python's GIL, but this process has no Python interpreter");
  }
}

TEST_CASE("instances can be looked up only during create") {
  hami_backend_class cls = echo_class("NativeLate");
  cls.forward = [](void*, hami_context* context, hami_dict* const*, std::size_t) {
    hami_backend* found = nullptr;
    return host.backend_find(context, "node.n", 6, &found);
  };
  define_native(cls);
  TestPipe pipe({{"backend", text("NativeLate")}});
  const CallResult outcome = pipe.call(Value(7));
  CHECK(outcome.code == ErrorCode::kInvalidArgument);
  CHECK(outcome.message ==
        "NativeLate looked up an instance after its create returned; call backend_find during create");
}

TEST_CASE("a batch that contains a request twice is rejected") {
  static hami_backend* found;
  hami_backend_class cls = echo_class("NativeDouble");
  cls.create = [](hami_context* context, const hami_dict*, hami_dict*, hami_backend* const*, std::size_t, void**) {
    return host.backend_find(context, "node.n", 6, &found);
  };
  cls.forward = [](void*, hami_context*, hami_dict* const* items, std::size_t) {
    hami_dict* const twice[] = {items[0], items[0]};
    return host.backend_forward(found, twice, 2);
  };
  define_native(cls);
  define_native(echo_class());
  PipeConfig config;
  config.nodes = {{"m", {{"backend", text("NativeDouble")}}}, {"n", {{"backend", text("NativeEcho")}}}};
  TestPipe pipe(config);
  Dict request = request_of(Value(7));
  request.enter("node_name", text("m"));
  const CallResult outcome = pipe.call(std::move(request));
  CHECK(outcome.code == ErrorCode::kInvalidArgument);
  CHECK(outcome.message == "InstanceDispatcher got the same request twice in one batch");
}

TEST_CASE("a child with a dedicated thread cannot be called on another thread") {
  Request request;
  hami_dict item{&request.dict, &request};
  hami_dict* const items[] = {&item};
  const BackendPtr backend = make_native_backend(echo_class());
  backend->describe("Child", own_thread());
  hami_error* error = nullptr;
  hami_backend child{backend};
  std::thread([&] { error = host_table().backend_forward(&child, items, 1); }).join();
  CHECK(text_of_error(error) ==
        "Child has a dedicated thread and was called on another one; call it only during the plugin's own create and "
        "forward, on the thread of that call");
}

TEST_CASE("the parameters of a backend are rejected as an item of a batch") {
  Dict keys;
  hami_dict params{&keys, nullptr};
  hami_dict* const items[] = {&params};
  const BackendPtr backend = make_native_backend(echo_class());
  backend->describe("Child", any_thread());
  hami_backend child{backend};
  CHECK(text_of_error(host_table().backend_forward(&child, items, 1)) ==
        "expected an item of a batch, got the parameters or options of a backend");
}
