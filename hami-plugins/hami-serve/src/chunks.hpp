// Chunks: the lines between the chunks of a body in the transfer coding `chunked` (RFC 9112, 7.1), and its trailers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hami_serve {

struct ChunkLine {
  enum class Kind { kIncomplete, kUnusual, kRead };

  Kind kind = Kind::kUnusual;
  std::size_t chunk = 0;  // bytes of the chunk that follows; 0: the body ends with the line
  std::size_t size = 0;   // bytes of the line, and of trailers
};

// Reads the line at the beginning of `data`, and before it the end of the line of a chunk, if one came before. Extensions and
// trailers are dropped. An unusual line is wrong, or has more of these than native code reads.
ChunkLine read_chunk_line(std::string_view data, bool is_first) noexcept;

// The line that begins a body with one chunk, without those that `read_chunk_line` reads behind it.
std::string first_chunk_line(std::size_t chunk);

}  // namespace hami_serve
