// Passes over a row of pixels of uint8, in versions for the instructions of the processor. All versions give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hami_image {

constexpr std::size_t kLanes = 4;         // values of a pixel between the passes, for any number of channels
constexpr std::size_t kPixelsAtOnce = 8;  // rows between the passes hold a multiple of these
constexpr std::size_t kBytesAtOnce = 8;   // that `across` reads for a pixel, where they are within the row

// Where a pixel of the result lies between two pixels of a row: the first byte, and the weights in 1/2048.
struct Column {
  std::int32_t first;
  std::int16_t weights[2];
};

struct Passes {
  const char* name;
  // planes[c][x] = value * factors[c] + offsets[c], each rounded to float32. Pixels are `step` bytes apart: 1, 3 or 4.
  void (*split)(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
                const float* offsets, float* const* planes);
  // Weighted sums of two neighbours, >> 4, with kLanes values for each pixel. For the first `whole` columns, kBytesAtOnce
  // bytes may be read.
  void (*across)(const std::uint8_t* row, int channels, const Column* columns, std::size_t whole, std::size_t width,
                 std::int16_t* to);
  // Weighted sums of two such rows as uint8. `count` is a multiple of kLanes * kPixelsAtOnce.
  void (*down)(const std::int16_t* upper, const std::int16_t* lower, const std::int16_t* weights, std::size_t count,
               std::uint8_t* to);
};

extern const Passes kPlainPasses;
#if defined(__x86_64__)
extern const Passes kSse41Passes;
extern const Passes kAvx2Passes;
#elif defined(__aarch64__)
extern const Passes kNeonPasses;
#endif

// The fastest version that this processor runs; the environment variable HAMI_IMAGE_PASSES can name another one.
const Passes& passes();

}  // namespace hami_image
