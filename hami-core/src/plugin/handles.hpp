// The objects behind the opaque handles of hami/abi.h, and the conversions between them and the core's types.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/api.hpp"
#include "plugin/abi.hpp"

struct hami_error {
  hami::Error error;
  bool is_incompatible_abi = false;  // only for errors of fill_host
};

// `request` is null for the parameters and options of a backend.
struct hami_dict {
  hami::Dict* keys;
  hami::Request* request;
};

struct hami_backend {
  hami::BackendPtr backend;
  std::thread::id required_thread;  // of every call; empty: any thread

  explicit hami_backend(hami::BackendPtr wrapped)
      : backend(std::move(wrapped)),
        required_thread(backend->traits().thread == hami::ThreadMode::kDedicated ? std::this_thread::get_id()
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

inline std::string_view view_of(const char* data, std::size_t size) noexcept { return {size > 0 ? data : "", size}; }
inline hami_text text_of(std::string_view text) noexcept { return {text.data(), text.size()}; }

// A plugin's text for messages and logs: bytes that are not valid UTF-8 become escapes.
std::string escape_invalid_utf8(std::string_view text);
// Error(kInvalidArgument) if the text is not valid UTF-8; `what` and `remedy` start and end the message.
void check_utf8(const char* what, std::string_view text, const char* remedy = "");

// Never null: without memory it returns a static error.
hami_error* make_error(Error error) noexcept;
// The exception that is being handled, as an error; call it only inside a catch block. Throws nothing but the exception by which
// glibc cancels a thread.
hami_error* make_current_error();
void free_error(hami_error* error) noexcept;  // accepts null
struct FreeError {
  void operator()(hami_error* error) const noexcept { free_error(error); }
};
using OwnedError = std::unique_ptr<hami_error, FreeError>;

// Takes ownership of a plugin's error; throws it, if it is not null.
void throw_if(hami_error* error);

// Error(kInvalidArgument) if it is not an item of a batch.
Request& request_of(const hami_dict& item);
// Error(kInvalidArgument) if the backend is created already.
Init& init_of(const hami_context& context);

// Runs `body` and returns its exception as an error, or null. For functions of the C ABI outside of the host table, whose
// entries HAMI_HOST_ENTRY wraps.
template <class Body>
hami_error* catch_error(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return make_current_error();
  }
}

}  // namespace hami
