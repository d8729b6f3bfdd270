// The passes for SSE4.1. Compiled with -msse4.1: nothing else may be in this file, nor inline functions of other headers.
#include "passes_x86.hpp"

namespace hami_image {
namespace {

constexpr std::size_t kPixels = 4;

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
  split_rest<kChannels>(row, step, x, width, factors, offsets, planes);
}

// The sums of a pixel, as four 32-bit integers.
__m128i sums(const std::uint8_t* row, const Column& column, __m128i pairs) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + column.first));
  const __m128i weights = _mm_shuffle_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&column)), 0x55);
  return _mm_srai_epi32(_mm_madd_epi16(_mm_shuffle_epi8(bytes, pairs), weights), 4);
}

void across(const std::uint8_t* row, int channels, const Column* columns, std::size_t whole, std::size_t width,
            std::int16_t* to) {
  const __m128i pairs = pairs_of(channels);
  std::size_t x = 0;
  for (; x + 2 <= whole; x += 2)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + x * kLanes),
                     _mm_packs_epi32(sums(row, columns[x], pairs), sums(row, columns[x + 1], pairs)));
  kPlainPasses.across(row, channels, columns + x, 0, width - x, to + x * kLanes);
}

void down(const std::int16_t* upper, const std::int16_t* lower, const std::int16_t* weights, std::size_t count,
          std::uint8_t* to) {
  const __m128i above = _mm_set1_epi16(weights[0]);
  const __m128i below = _mm_set1_epi16(weights[1]);
  const __m128i half = _mm_set1_epi16(2);
  const auto at = [&](std::size_t i) {
    const __m128i a = _mm_mulhi_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper + i)), above);
    const __m128i b = _mm_mulhi_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lower + i)), below);
    return _mm_srai_epi16(_mm_add_epi16(_mm_add_epi16(a, b), half), 2);
  };
  for (std::size_t i = 0; i < count; i += 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_packus_epi16(at(i), at(i + 8)));
}

}  // namespace

const Passes kSse41Passes{"sse4.1", split, across, down};

}  // namespace hami_image
