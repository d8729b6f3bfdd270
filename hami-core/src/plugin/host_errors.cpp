// Host functions: errors. Maps the codes of the ABI to those of the core, and owns the handles.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "value/visible.hpp"

namespace hami {
namespace {

struct CodePair {
  std::int32_t abi;
  ErrorCode core;
};

// Both directions use the first row that matches.
constexpr CodePair kCodes[] = {
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
    {HAMI_REQUEST, ErrorCode::kSkipped},
    {HAMI_REQUEST, ErrorCode::kQueueFull},
    {HAMI_UNKNOWN, ErrorCode::kForeign},
};

ErrorCode core_code(std::int32_t code) noexcept {
  for (const CodePair& pair : kCodes)
    if (pair.abi == code) return pair.core;
  return ErrorCode::kUnknown;
}

std::int32_t abi_code(ErrorCode code) noexcept {
  for (const CodePair& pair : kCodes)
    if (pair.core == code) return pair.abi;
  return HAMI_INTERNAL;
}

hami_error* new_error(std::int32_t code, const char* data, std::size_t size) {
  std::string text = escape_invalid_utf8(view_of(data, size));
  if (text.empty()) text = "an error with code " + std::to_string(code) + " and no text";
  return make_error(Error(core_code(code), std::move(text), {}, code == HAMI_RESOURCE_EXHAUSTED));
}

// The error that is used when there is no memory for another one. Never freed.
hami_error& out_of_memory() {
  static hami_error& error = *new hami_error{Error(ErrorCode::kOutOfMemory, "out of memory", {}, true)};
  return error;
}

}  // namespace

hami_error* make_error(Error error) noexcept {
  auto* made = new (std::nothrow) hami_error{std::move(error)};
  return made ? made : &out_of_memory();
}

hami_error* make_current_error() {
  try {
    return make_error(current_error());
  } catch (const std::exception&) {  // there is no memory for the text
    return &out_of_memory();
  }
}

void free_error(hami_error* error) noexcept {
  if (error != &out_of_memory()) delete error;
}

void throw_if(hami_error* error) {
  const OwnedError owned(error);
  if (owned) throw Error(owned->error);
}

void add_errors(hami_host& host) {
  out_of_memory();  // allocates it while there is memory
  HAMI_HOST_ENTRY(host, error_new, new_error);
  HAMI_HOST_ENTRY(host, error_code, [](const hami_error* error) { return abi_code(error->error.code()); });
  HAMI_HOST_ENTRY(host, error_text, [](const hami_error* error) { return text_of(error->error.message()); });
  HAMI_HOST_ENTRY(host, error_payload,
                  [](const hami_error* error, hami_value* out) { *out = release_to_abi(error->error.payload()); });
  HAMI_HOST_ENTRY(host, error_copy, [](const hami_error* error) { return make_error(error->error); });
  HAMI_HOST_ENTRY(host, error_set_final, [](hami_error* error) {
    if (error != &out_of_memory()) error->error = error->error.as_final();
  });
  HAMI_HOST_ENTRY(host, error_is_final, [](const hami_error* error) { return error->error.is_final(); });
  HAMI_HOST_ENTRY(host, error_free, free_error);
}

}  // namespace hami
