// Gives the Python code of a plugin the functions of its native library, which it calls with ctypes: a plugin exports nothing else.
//
//   struct Functions {
//     std::int64_t (*add)(std::int64_t, std::int64_t);
//   };
//   constexpr Functions kFunctions = {[](std::int64_t a, std::int64_t b) { return a + b; }};
//   HAMI_REGISTER(hami::FunctionTable<kFunctions>, "AcmeFunctions", "", "Return the functions that acme calls.");
//
// In Python, `hami.native.functions("hami-acme::AcmeFunctions", add=…)` checks that both sides have the same number of functions.
#pragma once

#include "hami/backend.hpp"

namespace hami {
inline namespace sdk {

// Returns the address of a table, and its size, by which a library that is older or newer than the Python code is found.
template <const auto& table>
class FunctionTable final : public Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_NON_BLOCKING;

 private:
  void forward_(Batch batch) override {
    for (const Dict& item : batch) {
      item["size"] = Value(static_cast<std::int64_t>(sizeof table));
      item["result"] = Value(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&table)));
    }
  }
};

}  // namespace sdk
}  // namespace hami
