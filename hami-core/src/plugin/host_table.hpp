// The core's side of hami_host: every function, and how a plugin gets them.
#pragma once

#include <cstdint>

#include "hami/abi.h"

namespace hami {

// The newest minor version that this core serves.
inline constexpr std::uint16_t kAbiMinor = 0;

const hami_host& host_table();

// Copies as many functions of a core's table as both sides know. Error(kPlugin) if that core cannot serve the plugin.
void serve(const hami_host& own, hami_host& asked);

// What a plugin is given to call. Its error has the text that stands after "…, which"; see AbiRefused.
hami_error* fill_host(hami_host* host);

// Each writes the functions of one part into the table.
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
