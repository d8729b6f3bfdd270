// The host table: the functions of the core for plugins, and the negotiation of its version.
#pragma once

#include <cstdint>

#include "plugin/abi.hpp"

namespace hami {

// The newest minor version that this core serves.
inline constexpr std::uint16_t kAbiMinor = 1;
static_assert(HAMI_ABI_MINOR == kAbiMinor);

const hami_host& host_table();

// Copies the functions that both versions have from the core's table to the plugin's. Error(kPlugin) if their ABI versions are
// incompatible.
void fill_table(const hami_host& core, hami_host& plugin);

// The `fill` function of a plugin's entry. The text of its error follows "…, which" in messages; see IncompatibleAbi.
hami_error* fill_host(hami_host* host);

// Each sets the entries of one part of the table.
void add_errors(hami_host& host);
void add_values(hami_host& host);
void add_tensors(hami_host& host);
void add_requests(hami_host& host);
void add_children(hami_host& host);
void add_events(hami_host& host);
void add_queues(hami_host& host);
void add_store(hami_host& host);
void add_context(hami_host& host);

}  // namespace hami
