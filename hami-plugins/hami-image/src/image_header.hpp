// What the headers of JPEG, PNG, WebP and TIFF files say: one walk over a file, which decides whether and how it is decoded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hami_image {

// The values are known to hami_image/_native.py, as is the layout of FileHeader.
enum FileFormat : std::int32_t { kOtherFormat, kJpeg, kPng, kWebp, kTiff };

enum JpegProblem : std::int32_t {
  kNoProblem,
  kUnsupportedProcess,  // details[0]: the number of the coding process
  kTwoFrames,
  kNoComponents,
  kTooManyScans,
  kShortScan,          // details: its bytes, and how many it needs
  kMissingComponents,  // no scan has their data
  kEndsEarly,          // the file ends within a segment
};

constexpr std::size_t kMaxPatches = 16;

// A place in a file: a range that is left out (PNG), or a field of type `type` that is replaced (TIFF).
struct Patch {
  std::uint64_t begin;
  std::uint64_t end;
  std::int32_t type;
  std::int32_t is_orientation;
};

struct FileHeader {
  std::int32_t is_complete;  // 0: the header is incomplete or ambiguous, and nothing else is set
  std::int32_t alpha;
  std::uint64_t width;
  std::uint64_t height;
  std::int32_t is_deep;     // PNG: 16 bits per channel
  std::int32_t ends_early;  // PNG, TIFF: the file ends before its pixels, or has too many parts to patch
  std::int32_t has_end;     // PNG with 16 bits: it has its last chunk
  std::int32_t jpeg_problem;
  std::uint64_t details[2];
  std::uint64_t coefficient_bytes;  // JPEG: memory of the decoder for all coefficients; 0: it keeps none
  std::uint64_t data_end;           // JPEG: where the data of the only scan end; 0: the picture has several
  std::int32_t is_animated;         // WebP
  std::int32_t is_lossless;         // WebP
  std::uint64_t image_begin;        // WebP: the first image of an animation, if it is the whole picture
  std::uint64_t image_end;
  std::uint64_t tile_width;  // TIFF
  std::uint64_t tile_height;
  std::uint64_t strip_rows;  // TIFF
  std::int32_t bits;         // TIFF: of a sample
  std::int32_t most_bits;    // TIFF: the largest of all samples
  std::int32_t compression;  // TIFF
  std::int32_t samples;      // TIFF
  std::int32_t color_space;  // TIFF: its PhotometricInterpretation; -1 where the file has none
  std::int32_t is_big_endian;
  std::int32_t patch_count;
  Patch patches[kMaxPatches];
};

// Fills `header`, and returns the format. Time and memory are bounded for any bytes.
FileFormat read_header(const std::uint8_t* data, std::size_t size, std::uint64_t max_scans, FileHeader& header);

struct EndOfFile {};

// The bytes of a file, with numbers at any place. Reading beyond the end throws EndOfFile.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) noexcept : data_(data), size_(size) {}

  std::size_t size() const noexcept { return size_; }
  const std::uint8_t* data() const noexcept { return data_; }
  std::uint8_t operator[](std::uint64_t at) const {
    need(at, 1);
    return data_[at];
  }
  // A number of 1 to 8 bytes.
  std::uint64_t big(std::uint64_t at, unsigned bytes) const {
    need(at, bytes);
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value = value << 8 | data_[at + i];
    return value;
  }
  std::uint64_t little(std::uint64_t at, unsigned bytes) const {
    need(at, bytes);
    std::uint64_t value = 0;
    for (unsigned i = bytes; i-- > 0;) value = value << 8 | data_[at + i];
    return value;
  }

 private:
  void need(std::uint64_t at, std::uint64_t count) const {
    if (at > size_ || count > size_ - at) throw EndOfFile();
  }

  const std::uint8_t* data_;
  std::size_t size_;
};

// The readers of single formats. Each throws EndOfFile where the header is not complete.
void read_jpeg(const Bytes& data, std::uint64_t max_scans, FileHeader& header);
void read_png(const Bytes& data, FileHeader& header);
void read_webp(const Bytes& data, FileHeader& header);
void read_tiff(const Bytes& data, FileHeader& header);

// A type of a chunk, as `big` reads its four letters.
constexpr std::uint32_t type_of(const char (&name)[5]) noexcept {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(name[i]);
  return value;
}

}  // namespace hami_image
