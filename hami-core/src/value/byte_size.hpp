// byte_size: how much memory the values of a request need.
#pragma once

#include <cstddef>
#include <string>

#include "value/dict.hpp"

namespace hami {

// The bytes of its texts, bytes and tensors, also inside lists and dicts; other values count as 16. An object of another language
// that is not a tensor counts as that too, because its memory is unknown.
std::size_t byte_size(const Value& value);
std::size_t byte_size(const Dict& dict);

std::string show_bytes(std::size_t bytes);  // "640 B", "12.5 MiB"

}  // namespace hami
