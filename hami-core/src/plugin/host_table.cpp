// The host table and the negotiation of its version.
#include "plugin/host_table.hpp"

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "observe/log.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/library.hpp"

namespace hami {
namespace {

hami_host made_table() {
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
  add_surroundings(host);
  return host;
}

std::string version(unsigned major, unsigned minor) { return std::to_string(major) + "." + std::to_string(minor); }

}  // namespace

const hami_host& host_table() {
  static const hami_host host = made_table();
  return host;
}

std::string served_abi() { return version(HAMI_ABI_MAJOR, kAbiMinor); }

void serve(const hami_host& own, hami_host& asked) {
  const auto refuse = [&](const char* remedy) {
    throw Error(ErrorCode::kPlugin, "needs hami ABI " + version(asked.abi_major, asked.min_minor) +
                                        "; hami-core " HAMI_VERSION " serves " + version(own.abi_major, own.abi_minor) +
                                        remedy);
  };
  if (asked.abi_major < own.abi_major) refuse("; install a newer version of the plugin");
  if (asked.abi_major > own.abi_major || asked.min_minor > own.abi_minor) refuse(": pip install -U hami-core");
  const std::uint32_t slots = std::min(asked.slot_count, own.slot_count);
  std::memcpy(reinterpret_cast<char*>(&asked) + offsetof(hami_host, error_new),
              reinterpret_cast<const char*>(&own) + offsetof(hami_host, error_new), slots * sizeof(void (*)(void)));
  asked.slot_count = slots;
  asked.abi_minor = own.abi_minor;
}

hami_error* fill_host(hami_host* host) {
  hami_error* const refused = guarded([&] { serve(host_table(), *host); });
  if (refused) refused->refuses_abi = true;
  return refused;
}

void add_surroundings(hami_host& host) {
  HAMI_HOST_ENTRY(host, context_node, [](const hami_context* context) { return text_of(context->node); });
  HAMI_HOST_ENTRY(host, context_label, [](const hami_context* context) { return text_of(context->label); });
  HAMI_HOST_ENTRY(host, context_instance, [](const hami_context* context) { return context->instance; });
  HAMI_HOST_ENTRY(host, context_options, [](const hami_context* context) { return &context->options; });
  HAMI_HOST_ENTRY(host, log_enabled, [](std::int32_t level) -> std::int32_t { return log_enabled(level); });
  HAMI_HOST_ENTRY(host, log, [](const hami_context* context, std::int32_t level, const char* text, std::size_t size) {
    hami_error* ignored = guarded([&] { log(context->node, std::string(text_of(text, size)), level); });
    host_table().error_free(ignored);
  });
  HAMI_HOST_ENTRY(host, counter_add,
                  [](const hami_context* context, const char* name, std::size_t size, std::int64_t by) {
    hami_error* ignored = guarded([&] { context->counters->add(readable(text_of(name, size)), by); });
    host_table().error_free(ignored);
  });
  HAMI_HOST_ENTRY(host, clock_now, [] { return now(); });
}

}  // namespace hami
