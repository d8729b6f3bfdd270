// Walks the markers before the first scan, and tells the color space by the rules of libjpeg.
#include "jpeg_coding.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace hami_cuda {
namespace {

constexpr unsigned kStartOfImage = 0xd8;
constexpr unsigned kEndOfImage = 0xd9;
constexpr unsigned kStartOfScan = 0xda;
constexpr unsigned kJfifSegment = 0xe0;
constexpr unsigned kAdobeSegment = 0xee;
constexpr unsigned kProgressiveFrame = 0xc2;  // the frames before it are baseline and extended sequential
constexpr std::size_t kJfifBytes = 14;        // libjpeg ignores shorter segments of both kinds
constexpr std::size_t kAdobeBytes = 12;
constexpr unsigned kRgbTransform = 0;

// Markers that start a frame; between them are those of tables.
bool starts_frame(unsigned marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

bool has_segment(unsigned marker) { return marker != 0x01 && !(marker >= 0xd0 && marker <= kEndOfImage); }

struct Coding {
  std::optional<unsigned> frame;  // its marker
  std::string_view frame_data;
  bool is_jfif = false;
  std::optional<unsigned> adobe_transform;
  std::optional<std::size_t> scan;  // where the first one starts
};

unsigned byte_of(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

std::size_t word_of(std::string_view text, std::size_t at) { return byte_of(text, at) << 8 | byte_of(text, at + 1); }

Coding coding_of(std::string_view file) {
  Coding coding;
  std::size_t at = 0;
  while (true) {
    at = file.find('\xff', at);  // libjpeg skips other bytes too
    if (at != std::string_view::npos) at = file.find_first_not_of('\xff', at);
    if (at == std::string_view::npos) return coding;
    const unsigned marker = byte_of(file, at++);
    if (marker == kStartOfScan) coding.scan = at;
    if (marker == kStartOfScan || marker == kEndOfImage) return coding;
    if (marker == 0 || marker == kStartOfImage || !has_segment(marker)) continue;
    if (at + 2 > file.size()) return coding;
    const std::size_t length = word_of(file, at);
    if (length < 2 || at + length > file.size()) return coding;
    const std::string_view data = file.substr(at + 2, length - 2);
    at += length;
    if (starts_frame(marker) && !coding.frame) {
      coding.frame = marker;
      coding.frame_data = data;
    } else if (marker == kJfifSegment && data.size() >= kJfifBytes &&
               data.substr(0, 5) == std::string_view("JFIF", 5)) {
      coding.is_jfif = true;
    } else if (marker == kAdobeSegment && data.size() >= kAdobeBytes && data.substr(0, 5) == "Adobe") {
      coding.adobe_transform = byte_of(data, kAdobeBytes - 1);
    }
  }
}

// Three components are YCbCr, unless the Adobe segment or, without one, their names say otherwise.
bool is_rgb(const Coding& coding, std::string_view names) {
  if (coding.is_jfif) return false;
  if (coding.adobe_transform) return *coding.adobe_transform == kRgbTransform;
  return names == "RGB";
}

// Horizontal and vertical factors of the luma of 4:4:4, 4:2:2, 4:4:0, 4:2:0 and 4:1:1, with chroma of 1 x 1.
constexpr std::array<unsigned, 5> kLumaFactors = {0x11, 0x21, 0x12, 0x22, 0x41};
constexpr unsigned kOneByOne = 0x11;
constexpr unsigned kTwoByTwo = 0x22;

constexpr std::size_t kFixedBytes = 6;  // of a frame: precision, height, width, number of components
constexpr std::size_t kComponentBytes = 3;

bool ends_early(std::string_view file, std::size_t scan) {
  constexpr std::string_view kEnd = "\xff\xd9";
  const std::size_t end = file.rfind(kEnd);
  return end == std::string_view::npos || end < scan;  // that of a thumbnail does not count
}

}  // namespace

std::string_view header_of(std::string_view encoded) {
  const Coding coding = coding_of(encoded);
  if (!coding.scan || *coding.scan + 3 > encoded.size() || coding.frame_data.size() < kFixedBytes) return encoded;
  const std::size_t end = *coding.scan + word_of(encoded, *coding.scan);
  const bool has_all = byte_of(encoded, *coding.scan + 2) == byte_of(coding.frame_data, kFixedBytes - 1);
  return has_all ? encoded.substr(0, end) : encoded;
}

bool is_too_narrow_to_interpolate(std::string_view encoded) {
  constexpr std::size_t kNarrow = 4;  // libjpeg interpolates chroma of more than two columns
  const Coding coding = coding_of(encoded);
  const std::string_view frame = coding.frame_data;
  return frame.size() > kFixedBytes + 1 && byte_of(frame, kFixedBytes + 1) == kTwoByTwo && word_of(frame, 3) <= kNarrow;
}

std::string_view reason_against_nvjpeg(std::string_view encoded) {
  const Coding coding = coding_of(encoded);
  if (!coding.frame || coding.frame_data.size() < kFixedBytes) return {};
  const std::string_view frame = coding.frame_data;
  const std::size_t count = byte_of(frame, kFixedBytes - 1);
  if (frame.size() < kFixedBytes + count * kComponentBytes) return {};
  if (*coding.frame > kProgressiveFrame) return "which is lossless, hierarchical or arithmetic-coded";
  if (byte_of(frame, 0) != 8) return "which does not have 8 bits per sample";
  if (count != 1 && count != 3) return "which has neither one nor three components";
  std::array<char, 3> names{};
  std::array<unsigned, 3> factors{};
  for (std::size_t i = 0; i < count; ++i) {
    names[i] = frame[kFixedBytes + i * kComponentBytes];
    factors[i] = byte_of(frame, kFixedBytes + i * kComponentBytes + 1);
  }
  if (count == 3 && is_rgb(coding, {names.data(), names.size()})) return "whose components are red, green and blue";
  const bool is_known = std::find(kLumaFactors.begin(), kLumaFactors.end(), factors[0]) != kLumaFactors.end();
  if (count == 1 ? factors[0] != kOneByOne : !is_known || factors[1] != kOneByOne || factors[2] != kOneByOne)
    return "whose sampling factors are unusual";
  if (coding.scan && ends_early(encoded, *coding.scan)) return "which ends early";
  return {};
}

}  // namespace hami_cuda
