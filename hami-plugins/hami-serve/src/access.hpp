// Access: whether a request has the token of the server.
#pragma once

#include <strings.h>

#include <string_view>

namespace hami_serve {

// In the same time for any text of the same length.
inline bool same(std::string_view given, std::string_view wanted) noexcept {
  if (given.size() != wanted.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < given.size(); ++i) different |= static_cast<unsigned>(given[i] ^ wanted[i]);
  return different == 0;
}

// Whether `given` is `wanted`, which is "Bearer TOKEN", with any case of the first word and any spaces around the second.
inline bool has_token(std::string_view given, std::string_view wanted) noexcept {
  const std::size_t kind = wanted.find(' ');
  if (given.size() <= kind || given[kind] != ' ' || strncasecmp(given.data(), wanted.data(), kind) != 0) return false;
  given.remove_prefix(kind + 1);
  while (!given.empty() && given.front() == ' ') given.remove_prefix(1);
  while (!given.empty() && given.back() == ' ') given.remove_suffix(1);
  return same(given, wanted.substr(kind + 1));
}

}  // namespace hami_serve
