// The objects behind the opaque handles of hami/abi.h, and values that cross the ABI.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/init.hpp"
#include "hami/abi.h"
#include "value/error.hpp"

struct hami_error {
  hami::Error error;
  bool refuses_abi = false;  // of fill_host
};

// `request` is null for the parameters and options of a backend.
struct hami_dict {
  hami::Dict* keys;
  hami::Request* request;
};

struct hami_backend {
  hami::BackendPtr backend;
  std::thread::id thread;  // the thread of its calls, if it has a dedicated one

  explicit hami_backend(hami::BackendPtr shown)
      : backend(std::move(shown)),
        thread(backend->traits().thread == hami::ThreadMode::kDedicated ? std::this_thread::get_id()
                                                                        : std::thread::id()) {}
};

// `init` is null once the backend is created.
struct hami_context {
  std::string node;
  std::string label;
  std::int64_t instance = -1;
  hami::PipeContext* pipe = nullptr;  // outlives its backends
  hami::Counters* counters = nullptr;
  std::shared_ptr<hami::Dict> shared_options;
  mutable hami_dict options{};
  hami::Init* init = nullptr;
  std::vector<std::unique_ptr<hami_backend>> found;
};

namespace hami {

static_assert(sizeof(Value) == sizeof(hami_value));

// Transfers the reference to the plugin.
inline hami_value release_to_abi(Value value) noexcept {
  hami_value raw;
  std::memcpy(&raw, static_cast<const void*>(&value), sizeof raw);
  new (&value) Value();
  return raw;
}

// A new reference to a plugin's value. Error(kInvalidArgument) if kind and object do not match.
Value borrow(const hami_value& raw);

inline std::string_view text_of(const char* data, std::size_t size) noexcept { return {size > 0 ? data : "", size}; }
inline hami_text text_of(std::string_view text) noexcept { return {text.data(), text.size()}; }

// Text of a plugin that every language can show: bytes that are not valid UTF-8 become escapes.
std::string readable(std::string_view text);
// Error(kInvalidArgument) if the text is not valid UTF-8; `what` and `remedy` start and end the message.
void check_utf8(const char* what, std::string_view text, const char* remedy = "");

// Never null, even without memory.
hami_error* hand_over(Error error) noexcept;
// Throws a plugin's error, if it is not null.
void throw_if(hami_error* error);

// Error(kInvalidArgument) if it is not an item of a batch.
Request& request_of(const hami_dict& item);
// Error(kInvalidArgument) if the backend is created already.
Init& init_of(const hami_context& context);

// Runs a function of the core for a plugin and returns its exception as an error.
template <class Body>
hami_error* guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return hand_over(current_error());
  }
}

}  // namespace hami
