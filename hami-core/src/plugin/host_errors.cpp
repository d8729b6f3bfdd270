// Errors that cross the ABI: codes, texts, and the handle of an Error of the core.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

struct Pair {
  std::int32_t code;
  ErrorCode own;
};

// If a code is listed several times, the first row counts.
constexpr Pair kCodes[] = {
    {HAMI_CANCELLED, ErrorCode::kCancelled},
    {HAMI_UNKNOWN, ErrorCode::kUnknown},
    {HAMI_INVALID_ARGUMENT, ErrorCode::kInvalidArgument},
    {HAMI_DEADLINE_EXCEEDED, ErrorCode::kDeadlineExceeded},
    {HAMI_NOT_FOUND, ErrorCode::kNotFound},
    {HAMI_NOT_FOUND, ErrorCode::kBackendNotFound},
    {HAMI_ALREADY_EXISTS, ErrorCode::kAlreadyExists},
    {HAMI_RESOURCE_EXHAUSTED, ErrorCode::kOutOfMemory},
    {HAMI_UNIMPLEMENTED, ErrorCode::kUnimplemented},
    {HAMI_INTERNAL, ErrorCode::kInternal},
    {HAMI_FAILED_PRECONDITION, ErrorCode::kConfig},
    {HAMI_FAILED_PRECONDITION, ErrorCode::kReentrantCall},
    {HAMI_UNAVAILABLE, ErrorCode::kPlugin},
    {HAMI_UNAVAILABLE, ErrorCode::kPipeClosed},
    {HAMI_DATA_TYPE, ErrorCode::kDataType},
    {HAMI_REQUEST, ErrorCode::kRequest},
    {HAMI_REQUEST, ErrorCode::kNoResult},
    {HAMI_REQUEST, ErrorCode::kQueueFull},
    {HAMI_UNKNOWN, ErrorCode::kForeign},
};

ErrorCode own_code(std::int32_t code) noexcept {
  for (const Pair& pair : kCodes)
    if (pair.code == code) return pair.own;
  return ErrorCode::kUnknown;
}

std::int32_t code_of(ErrorCode own) noexcept {
  for (const Pair& pair : kCodes)
    if (pair.own == own) return pair.code;
  return HAMI_INTERNAL;
}

hami_error* new_error(std::int32_t code, const char* data, std::size_t size) {
  return guarded([&] {
    std::string text = readable(text_of(data, size));
    if (text.empty()) text = "an error with code " + std::to_string(code) + " and no text";
    throw Error(own_code(code), std::move(text), {}, code == HAMI_RESOURCE_EXHAUSTED);
  });
}

// The error when there is no memory for an error; never freed.
hami_error& out_of_memory() {
  static hami_error& error = *new hami_error{Error(ErrorCode::kOutOfMemory, "out of memory", {}, true)};
  return error;
}

}  // namespace

hami_error* hand_over(Error error) noexcept {
  auto* made = new (std::nothrow) hami_error{std::move(error)};
  return made ? made : &out_of_memory();
}

void throw_if(hami_error* error) {
  if (!error) return;
  Error thrown = error->error;
  if (error != &out_of_memory()) delete error;
  throw thrown;
}

void add_errors(hami_host& host) {
  out_of_memory();
  HAMI_HOST_ENTRY(host, error_new, new_error);
  HAMI_HOST_ENTRY(host, error_code, [](const hami_error* error) { return code_of(error->error.code()); });
  HAMI_HOST_ENTRY(host, error_text, [](const hami_error* error) { return text_of(error->error.message()); });
  HAMI_HOST_ENTRY(host, error_payload,
                  [](const hami_error* error, hami_value* out) { *out = release_to_abi(error->error.payload()); });
  HAMI_HOST_ENTRY(host, error_copy, [](const hami_error* error) { return guarded([&] { throw error->error; }); });
  HAMI_HOST_ENTRY(host, error_set_final, [](hami_error* error) {
    if (error == &out_of_memory()) return;
    // Without memory the error stays unmarked.
    hami_error* ignored = guarded([&] { error->error = error->error.as_final(); });
    host_table().error_free(ignored);
  });
  HAMI_HOST_ENTRY(host, error_is_final,
                  [](const hami_error* error) -> std::int32_t { return error->error.is_final(); });
  HAMI_HOST_ENTRY(host, error_free, [](hami_error* error) {
    if (error != &out_of_memory()) delete error;
  });
}

}  // namespace hami
