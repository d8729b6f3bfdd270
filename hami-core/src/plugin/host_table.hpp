// The host table: the core's functions for plugins, and the negotiation of its version.
#pragma once

#include <cstdint>

#include "hami/abi.h"

namespace hami {

// The newest minor version that this core serves.
inline constexpr std::uint16_t kAbiMinor = 0;

const hami_host& host_table();

// Copies the functions that both sides know. Error(kPlugin) if this core cannot serve the plugin.
void serve(const hami_host& own, hami_host& asked);

// The `fill` function of a plugin's entry. The text of its error follows "…, which" in messages; see AbiRefused.
hami_error* fill_host(hami_host* host);

// Each adds the functions of one part to the table.
void add_errors(hami_host& host);
void add_values(hami_host& host);
void add_tensors(hami_host& host);
void add_requests(hami_host& host);
void add_children(hami_host& host);
void add_events(hami_host& host);
void add_queues(hami_host& host);
void add_store(hami_host& host);
void add_surroundings(hami_host& host);

}  // namespace hami
