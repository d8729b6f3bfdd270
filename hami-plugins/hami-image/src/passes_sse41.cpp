// The passes for SSE4.1. Compiled with -msse4.1: nothing else may be in this file, nor inline functions of other headers.
#include <smmintrin.h>

#include "passes.hpp"

namespace hami_image {
namespace {

constexpr std::size_t kPixels = 4;

// Bytes of four pixels, channel after channel.
__m128i order_of(std::size_t step) {
  if (step == 1) return _mm_setr_epi8(0, 1, 2, 3, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  if (step == 3) return _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1);
  return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

template <int kChannels>
void split_channels(const std::uint8_t* row, std::size_t step, std::size_t width, const float* factors,
                    const float* offsets, float* const* planes) {
  const __m128i order = order_of(step);
  std::size_t x = 0;
  for (; x * step + sizeof(__m128i) <= width * step; x += kPixels) {
    __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + x * step)), order);
    for (int channel = 0; channel < kChannels; ++channel) {
      const __m128 values = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(bytes));
      _mm_storeu_ps(planes[channel] + x,
                    _mm_add_ps(_mm_mul_ps(values, _mm_set1_ps(factors[channel])), _mm_set1_ps(offsets[channel])));
      bytes = _mm_srli_si128(bytes, kPixels);
    }
  }
  for (; x < width; ++x)
    for (int channel = 0; channel < kChannels; ++channel)
      planes[channel][x] = static_cast<float>(row[x * step + channel]) * factors[channel] + offsets[channel];
}

void split(const std::uint8_t* row, std::size_t step, int channels, std::size_t width, const float* factors,
           const float* offsets, float* const* planes) {
  if (channels == 1) return split_channels<1>(row, step, width, factors, offsets, planes);
  if (channels == 3) return split_channels<3>(row, step, width, factors, offsets, planes);
  split_channels<4>(row, step, width, factors, offsets, planes);
}

}  // namespace

const Passes kSse41Passes{"sse4.1", split};

}  // namespace hami_image
