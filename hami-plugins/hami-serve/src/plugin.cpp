// The functions of the native door for Python, which finds their table by a backend: a plugin exports nothing else.
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

char* copy_of(const std::string& text) {
  char* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

// In the order of `_Functions` in native_door.py.
struct Functions {
  std::uint64_t size;
  Door* (*open)(const char* limits, std::size_t size, std::int32_t loops, const std::int64_t* python_open, char* error,
                std::size_t error_size);
  void (*close)(Door* door);
  std::int32_t (*event)(Door* door);
  std::int32_t (*add)(Door* door, std::int32_t fd, std::int32_t hops, const char* data, std::size_t size);
  std::int32_t (*take)(Door* door, std::int32_t* hops, char** data, std::size_t* size);  // a descriptor, or -1
  char* (*take_unanswered)(Door* door);                                                  // NULL: there is none
  std::int32_t (*answer)(Door* door, std::int64_t number, const char* data, std::size_t size);
  std::int32_t (*publish)(Door* door, const char* json, std::size_t size, char* error, std::size_t error_size);
  char* (*statistics)(Door* door);
  void (*drain)(Door* door);
  void (*cancel)(Door* door);
  std::int64_t (*connections)(Door* door);
  std::int64_t (*open_bytes)(Door* door);
  void (*release)(char* text);
};

char* text_or_null(const std::string& text) { return text.empty() ? nullptr : copy_of(text); }

constexpr Functions kFunctions = {
    sizeof(Functions),
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
    [](Door* door, std::int32_t* hops, char** data, std::size_t* size) -> std::int32_t {
  Handed handed;
  if (!door->take(handed)) return -1;
  *hops = handed.hops;
  *size = handed.data.size();
  *data = copy_of(handed.data);
  return handed.fd;
},
    [](Door* door) { return text_or_null(door->take_unanswered()); },
    [](Door* door, std::int64_t number, const char* data, std::size_t size) -> std::int32_t {
  char error[1];
  return guarded(error, sizeof error, [&] { door->answer(number, std::string(data, size)); });
},
    [](Door* door, const char* json, std::size_t size, char* error, std::size_t error_size) -> std::int32_t {
  return guarded(error, error_size, [&] { door->publish({json, size}); });
},
    [](Door* door) { return text_or_null(door->statistics()); },
    [](Door* door) { door->drain(); },
    [](Door* door) { door->cancel(); },
    [](Door* door) { return door->connections(); },
    [](Door* door) { return door->open_bytes(); },
    [](char* text) { std::free(text); },
};

class NativeDoor final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_NON_BLOCKING;

 private:
  void forward_(hami::Batch batch) override {
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&kFunctions));
    for (const hami::Dict& item : batch) item["result"] = hami::Value(address);
  }
};

}  // namespace
}  // namespace hami_serve

HAMI_REGISTER(hami_serve::NativeDoor, "NativeDoor", "", "Return the address of the functions of the native door.");
