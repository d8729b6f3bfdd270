// Passes over a row of pixels of uint8, in versions for the instructions of the processor. All versions give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hami_image {

struct Passes {
  const char* name;
  // planes[c][x] = value * factors[c] + offsets[c], each rounded to float32. Pixels are `step` bytes apart: 1, 3 or 4.
  void (*split)(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
                const float* offsets, float* const* planes);
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
