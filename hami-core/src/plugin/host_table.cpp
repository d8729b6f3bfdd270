// The host table: the negotiation of its version, and the functions for errors.
#include "plugin/host_table.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "backend/api.hpp"
#include "plugin/handles.hpp"
#include "plugin/library.hpp"

namespace hami {

// ---- Host functions: errors. Maps the codes of the ABI to those of the core, and owns the handles.

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

// ---- The host table, and the negotiation of its version.

namespace {

hami_host make_table() {
  hami_host host{};
  host.slot_count = HAMI_HOST_SLOTS;
  host.abi_major = HAMI_ABI_MAJOR;
  host.abi_minor = kAbiMinor;
  add_errors(host);
  add_values(host);
  add_tensors(host);
  add_requests(host);
  add_children(host);
  add_events(host);
  add_queues(host);
  add_store(host);
  add_context(host);
  return host;
}

// The option by which backends in Python find the stream.
std::string stream_option(DLDevice device) { return "stream." + show_device(device); }

// By minor version of the ABI.
constexpr const char* kFirstReleases[] = {"2.0.0", "2.0.0"};
static_assert(std::size(kFirstReleases) == kAbiMinor + 1);

thread_local const char* first_release = "";

std::string version(unsigned major, unsigned minor) { return std::to_string(major) + "." + std::to_string(minor); }

}  // namespace

const hami_host& host_table() {
  static const hami_host host = make_table();
  return host;
}

std::string served_abi() { return version(HAMI_ABI_MAJOR, kAbiMinor); }

void fill_table(const hami_host& core, hami_host& plugin) {
  const auto refuse = [&](const char* remedy) {
    throw Error(ErrorCode::kPlugin, "needs hami ABI " + version(plugin.abi_major, plugin.min_minor) +
                                        "; hami-core " HAMI_VERSION " serves " +
                                        version(core.abi_major, core.abi_minor) + remedy);
  };
  if (plugin.abi_major < core.abi_major) refuse("; install a newer version of the plugin");
  if (plugin.abi_major > core.abi_major || plugin.min_minor > core.abi_minor) refuse(": pip install -U hami-core");
  const std::uint32_t slots = std::min(plugin.slot_count, core.slot_count);
  std::memcpy(reinterpret_cast<char*>(&plugin) + offsetof(hami_host, error_new),
              reinterpret_cast<const char*>(&core) + offsetof(hami_host, error_new), slots * sizeof(void (*)(void)));
  plugin.slot_count = slots;
  plugin.abi_minor = core.abi_minor;
}

void log_failed_entry(const char* name) {
  const OwnedError owned(make_current_error());
  try {
    log("hami", std::string("the host function ") + name + " failed: " + owned->error.message());
  } catch (const std::exception&) {  // there is no memory for the message
  }
}

std::string take_first_release() { return std::exchange(first_release, ""); }

hami_error* fill_host(hami_host* host) {
  hami_error* const error = catch_error([&] {
    fill_table(host_table(), *host);
    first_release = kFirstReleases[host->min_minor];
  });
  if (error && error->error.code() == ErrorCode::kPlugin) error->is_incompatible_abi = true;
  return error;
}

void add_context(hami_host& host) {
  HAMI_HOST_ENTRY(host, context_node, [](const hami_context* context) { return text_of(context->node); });
  HAMI_HOST_ENTRY(host, context_label, [](const hami_context* context) { return text_of(context->label); });
  HAMI_HOST_ENTRY(host, context_instance, [](const hami_context* context) { return context->instance; });
  HAMI_HOST_ENTRY(host, context_options, [](const hami_context* context) { return &context->options; });
  HAMI_HOST_ENTRY(host, log_enabled, [](std::int32_t level) { return log_enabled(level); });
  HAMI_HOST_ENTRY(host, log, [](const hami_context* context, std::int32_t level, const char* text, std::size_t size) {
    log(context->node, std::string(view_of(text, size)), level);
  });
  HAMI_HOST_ENTRY(host, counter_add,
                  [](const hami_context* context, const char* name, std::size_t size, std::int64_t by) {
    context->counters->add(escape_invalid_utf8(view_of(name, size)), by);
  });
  HAMI_HOST_ENTRY(host, clock_now, [] { return now(); });
  HAMI_HOST_ENTRY(host, ctx_stream_get, [](const hami_context* context, DLDevice device) {
    const Value* stream = context->shared_options->find(stream_option(device));
    return stream && stream->kind() == Kind::kInt ? stream->as_int() : 0;
  });
  HAMI_HOST_ENTRY(host, ctx_stream_set, [](hami_context* context, DLDevice device, std::int64_t stream) {
    init_of(*context);
    context->shared_options->set(stream_option(device), stream);
  });
}

}  // namespace hami
