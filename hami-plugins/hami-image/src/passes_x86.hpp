// Parts of the passes for x86. Everything is internal to the file that includes this header: each is compiled for other
// instructions, and the linker would keep one version of an inline function for both.
#pragma once

#include <smmintrin.h>

#include "passes.hpp"

namespace hami_image {
namespace {

// Bytes of four pixels, channel after channel.
__m128i order_of(std::size_t step) {
  if (step == 1) return _mm_setr_epi8(0, 1, 2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if (step == 3) return _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
  return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

// Bytes of two pixels as pairs of 16-bit integers, channel after channel.
__m128i pairs_of(int channels) {
  if (channels == 1) return _mm_setr_epi8(0, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if (channels == 3) return _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  return _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
}

// The pixels from `x` on, which are fewer than a vector has.
template <int kChannels>
void split_rest(const std::uint8_t* row, std::size_t step, std::size_t x, std::size_t width, const float* factors,
                const float* offsets, float* const* planes) {
  for (; x < width; ++x)
    for (int channel = 0; channel < kChannels; ++channel)
      planes[channel][x] = static_cast<float>(row[x * step + channel]) * factors[channel] + offsets[channel];
}

// Defined by each file for its vectors.
template <int kChannels>
void split_channels(const std::uint8_t* row, std::size_t step, std::size_t width, const float* factors,
                    const float* offsets, float* const* planes);

void split(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
           const float* offsets, float* const* planes) {
  if (channels == 1) return split_channels<1>(row, step, width, factors, offsets, planes);
  if (channels == 3) return split_channels<3>(row, step, width, factors, offsets, planes);
  split_channels<4>(row, step, width, factors, offsets, planes);
}

}  // namespace
}  // namespace hami_image
