// libFuzzer target: parses any bytes as an expression.
#include <cstddef>
#include <cstdint>

#include "checks.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hami::fuzz::check_expression({reinterpret_cast<const char*>(data), size});
  return 0;
}
