// The functions of the native door for Python, which finds their table by a backend: a plugin exports nothing else.
#include <hami/function_table.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "door.hpp"

namespace hami_serve {
namespace {

// Runs `body`; returns 0, or 1 with the message of its exception in `error`.
template <class Body>
int guarded(char* error, std::size_t size, Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& failed) {
    std::snprintf(error, size, "%s", failed.what());
    return 1;
  }
}

// What `text` returns, in memory that `release` frees; NULL: that is "", or memory is exhausted.
template <class Text>
char* text_or_null(Text&& text) {
  try {
    const std::string made = text();
    char* const copy = made.empty() ? nullptr : static_cast<char*>(std::malloc(made.size() + 1));
    if (copy) std::memcpy(copy, made.c_str(), made.size() + 1);
    return copy;
  } catch (const std::exception&) {
    return nullptr;
  }
}

// In the order of `_FUNCTIONS` in native_door.py.
struct Functions {
  Door* (*open)(const char* limits, std::size_t size, std::int32_t loops, const std::int64_t* python_open, char* error,
                std::size_t error_size);
  void (*close)(Door* door);
  std::int32_t (*event)(Door* door);
  std::int32_t (*add)(Door* door, std::int32_t fd, std::int32_t hops, const char* data, std::size_t size);
  // A descriptor, or -1; and what it comes with, until `release_handed`.
  std::int32_t (*take)(Door* door, std::int32_t* hops, const char** data, std::size_t* size, Handed** handed);
  void (*release_handed)(Handed* handed);
  // The number of a request and what it needs, until `answer`; NULL: there is none.
  const char* (*take_unanswered)(Door* door, std::int64_t* number);
  void (*answer)(Door* door, std::int64_t number, const char* data, std::size_t size);
  std::int32_t (*publish)(Door* door, const char* json, std::size_t size, char* error, std::size_t error_size);
  char* (*statistics)(Door* door);
  void (*drain)(Door* door);
  void (*cancel)(Door* door);
  std::int64_t (*connections)(Door* door);
  std::int64_t (*open_bytes)(Door* door);
  // Waits for what the log has to say, in JSON with addresses that are valid until `release_entries`; NULL: there is no more.
  const char* (*take_entries)(Door* door, Journal::Batch** batch);
  void (*release_entries)(Journal::Batch* batch);
  void (*stop)(Door* door);  // which `close` follows
  void (*release)(char* text);
};

constexpr Functions kFunctions = {
    [](const char* limits, std::size_t size, std::int32_t loops, const std::int64_t* python_open, char* error,
       std::size_t error_size) -> Door* {
  Door* made = nullptr;
  guarded(error, error_size,
          [&] { made = new Door(read_limits({limits, size}), static_cast<std::size_t>(loops), python_open); });
  return made;
},
    [](Door* door) { delete door; },
    [](Door* door) -> std::int32_t { return door->event(); },
    [](Door* door, std::int32_t fd, std::int32_t hops, const char* data, std::size_t size) -> std::int32_t {
  char error[1];
  return guarded(error, sizeof error, [&] { door->add(fd, hops, std::string(data, size)); });
},
    [](Door* door, std::int32_t* hops, const char** data, std::size_t* size, Handed** handed) -> std::int32_t {
  std::unique_ptr<Handed> taken = door->take();
  if (!taken) return -1;
  *hops = taken->hops;
  *data = taken->data.data();
  *size = taken->data.size();
  *handed = taken.release();
  return (*handed)->fd;
},
    [](Handed* handed) { delete handed; },
    [](Door* door, std::int64_t* number) { return door->take_unanswered(*number); },
    [](Door* door, std::int64_t number, const char* data, std::size_t size) {
  std::string bytes;
  char error[1];
  guarded(error, sizeof error, [&] { bytes.assign(data, size); });
  door->answer(number, std::move(bytes));
},
    [](Door* door, const char* json, std::size_t size, char* error, std::size_t error_size) -> std::int32_t {
  return guarded(error, error_size, [&] { door->publish({json, size}); });
},
    [](Door* door) { return text_or_null([&] { return door->statistics(); }); },
    [](Door* door) { door->drain(); },
    [](Door* door) { door->cancel(); },
    [](Door* door) { return door->connections(); },
    [](Door* door) { return door->open_bytes(); },
    [](Door* door, Journal::Batch** batch) -> const char* {
  for (;;) {
    try {
      *batch = door->journal().take().release();
      return *batch ? (*batch)->json.c_str() : nullptr;
    } catch (const std::bad_alloc&) {  // it has counted them
    }
  }
},
    [](Journal::Batch* batch) { delete batch; },
    [](Door* door) { door->stop(); },
    [](char* text) { std::free(text); },
};

}  // namespace
}  // namespace hami_serve

HAMI_REGISTER(hami::FunctionTable<hami_serve::kFunctions>, "NativeDoor", "",
              "Return the address of the functions of the native door.");
