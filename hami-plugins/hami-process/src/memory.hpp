// Memory that two processes share: an anonymous file, whose descriptor one of them sends to the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hami_process {

// Returns the descriptor of a file of `size` bytes, all of which the system has promised; or -errno. `without_memfd`: the file is in
// `folder`, and has no name there.
std::int32_t create_memory(std::uint64_t size, bool without_memfd, const char* folder) noexcept;
// Returns the address, or null with the reason in errno.
void* map_memory(std::int32_t descriptor, std::uint64_t size) noexcept;
void unmap_memory(void* address, std::uint64_t size) noexcept;

}  // namespace hami_process
