// Recognises the format of a file; PNG, WebP and TIFF headers.
#include "image_header.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hami_image {
namespace {

// Limits for damaged or malicious files. Real files have far fewer: their pixels are in chunks of 8 KiB or more.
constexpr int kMaxChunksBeforePixels = 10'000;
constexpr int kMaxChunks = 1'000'000;
constexpr int kMaxWebpChunks = 10'000;
constexpr std::uint64_t kMaxFields = 65'535;  // the largest number that a classic TIFF file can state

bool starts_with(const Bytes& data, const void* text, std::size_t size) noexcept {
  return data.size() >= size && std::memcmp(data.data(), text, size) == 0;
}

void add_patch(FileHeader& header, std::uint64_t begin, std::uint64_t end, int type, bool is_orientation) {
  if (header.patch_count == static_cast<std::int32_t>(kMaxPatches)) {
    header.ends_early = 1;
    return;
  }
  header.patches[header.patch_count++] = {begin, end, type, is_orientation ? 1 : 0};
}

// ---- PNG ----

constexpr std::uint64_t kPngStart = 8;
constexpr std::uint64_t kPngAround = 12;  // bytes of length, type and checksum of a chunk

// Calls `function` with the type and the range of each chunk up to one of type `stop`.
template <class Function>
void for_png_chunks(const Bytes& data, std::uint32_t stop, int most, const Function& function) {
  std::uint64_t at = kPngStart;
  for (int i = 0; i < most; ++i) {
    const std::uint64_t length = data.big(at, 4);
    const auto type = static_cast<std::uint32_t>(data.big(at + 4, 4));
    if (type == stop) return;
    const std::uint64_t end = at + kPngAround + length;
    function(type, at, end);
    at = end;
  }
  throw EndOfFile();
}

// ---- WebP ----

constexpr int kAnimated = 0x02;  // flags of a VP8X chunk
constexpr int kExif = 0x08;
constexpr int kAlpha = 0x10;
constexpr std::uint64_t kFirstChunk = 12;
constexpr std::uint64_t kFrameHeader = 16;  // bytes of an ANMF chunk before the image

struct Chunk {
  std::uint32_t type;
  std::uint64_t at;
  std::uint64_t begin;  // of its content
  std::uint64_t end;
};

// Calls `function` with each chunk in a range, until it returns true.
template <class Function>
void for_webp_chunks(const Bytes& data, std::uint64_t at, std::uint64_t end, const Function& function) {
  end = std::min<std::uint64_t>(end, data.size());
  for (int i = 0; i < kMaxWebpChunks && at < end; ++i) {
    const auto type = static_cast<std::uint32_t>(data.big(at, 4));
    const std::uint64_t length = data.little(at + 4, 4);
    if (function(Chunk{type, at, at + 8, at + 8 + length})) return;
    at += 8 + length + length % 2;
  }
}

// The chunk with the first image of an animation, if it is the whole picture that viewers show first.
void find_first_image(const Bytes& data, FileHeader& header) {
  for_webp_chunks(data, kFirstChunk, data.size(), [&](const Chunk& frame) {
    if (frame.type != type_of("ANMF")) return false;
    if (frame.begin + kFrameHeader > data.size()) return true;
    const auto number = [&](int i) { return data.little(frame.begin + 3 * static_cast<std::uint64_t>(i), 3); };
    const std::uint64_t left = number(0);
    const std::uint64_t top = number(1);
    const std::uint64_t width = number(2) + 1;
    const std::uint64_t height = number(3) + 1;
    if (left || top || width != header.width || height != header.height) return true;
    for_webp_chunks(data, frame.begin + kFrameHeader, frame.end, [&](const Chunk& image) {
      if (image.end > data.size()) return true;
      if (image.type != type_of("VP8 ") && (image.type != type_of("VP8L") || (data[image.begin + 4] & 0x10)))
        return false;
      header.image_begin = image.at;
      header.image_end = image.end;
      return true;
    });
    return true;
  });
}

// ---- TIFF ----

constexpr std::uint64_t kWidth = 256;
constexpr std::uint64_t kHeight = 257;
constexpr std::uint64_t kBits = 258;
constexpr std::uint64_t kCompression = 259;
constexpr std::uint64_t kColorSpace = 262;
constexpr std::uint64_t kOrientation = 274;
constexpr std::uint64_t kSamples = 277;
constexpr std::uint64_t kStripRows = 278;
constexpr std::uint64_t kTileWidth = 322;
constexpr std::uint64_t kTileHeight = 323;
constexpr std::uint64_t kExtraSamples = 338;
constexpr std::uint64_t kShort = 3;         // types of fields
constexpr std::uint64_t kUnassociated = 2;  // colours are stored as they are, not multiplied by alpha

unsigned integer_bytes(std::uint64_t type) noexcept { return type == kShort ? 2 : type == 4 ? 4 : type == 16 ? 8 : 0; }

class TiffReader {
 public:
  TiffReader(const Bytes& data, FileHeader& header) : data_(data), header_(header) {
    header.is_big_endian = data[0] == 'M' ? 1 : 0;
    is_big_file_ = number(2, 2) == 43;  // BigTIFF: 64-bit counts and offsets
  }

  void read() {
    header_.bits = header_.most_bits = header_.compression = header_.samples = 1;
    header_.color_space = -1;
    header_.strip_rows = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const unsigned wide = is_big_file_ ? 8 : 4;
    std::uint64_t at = number(is_big_file_ ? 8 : 4, wide);
    const unsigned count_bytes = is_big_file_ ? 8 : 2;
    const std::uint64_t count = number(at, count_bytes);
    at += count_bytes;
    for (std::uint64_t i = 0; i < std::min(count, kMaxFields); ++i, at += 4 + 2 * wide) {
      const Field field{number(at, 2), number(at + 2, 2), number(at + 4, wide), at + 4 + wide, wide};
      number(field.at, wide);  // the entry is complete
      read_field(field);
      if (is_ambiguous_) return;
    }
    header_.is_complete = has_[0] && has_[1] ? 1 : 0;
  }

 private:
  struct Field {
    std::uint64_t tag;
    std::uint64_t type;
    std::uint64_t count;
    std::uint64_t at;  // of its bytes, where they fit into the entry
    unsigned wide;     // bytes in the entry itself
  };

  std::uint64_t number(std::uint64_t at, unsigned bytes) const {
    return header_.is_big_endian ? data_.big(at, bytes) : data_.little(at, bytes);
  }

  void read_field(const Field& field) {
    const unsigned bytes = integer_bytes(field.type);
    switch (field.tag) {
      case kWidth: return read_size(field, 0, header_.width);
      case kHeight: return read_size(field, 1, header_.height);
      case kTileWidth: return read_size(field, 2, header_.tile_width);
      case kTileHeight: return read_size(field, 3, header_.tile_height);
      case kStripRows:
        if (field.count == 1) header_.strip_rows = number(field.at, bytes ? std::min(bytes, field.wide) : field.wide);
        return;
      case kCompression: return read_short(field, header_.compression);
      case kColorSpace: return read_short(field, header_.color_space);
      case kSamples: return read_short(field, header_.samples);
      case kBits:
        read_short(field, header_.bits);
        if (field.type == kShort) read_most_bits(field);
        return;
      case kOrientation:
        if (bytes && field.count == 1)
          add_patch(header_, field.at, field.at + bytes, static_cast<int>(field.type), true);
        return;
      case kExtraSamples:
        if (field.type == kShort && field.count) read_extra_samples(field);
        return;
      default: return;
    }
  }

  // Ambiguous: libtiff may read such a field differently, or use the other field with this tag.
  void read_size(const Field& field, int index, std::uint64_t& size) {
    const unsigned bytes = integer_bytes(field.type);
    is_ambiguous_ = bytes == 0 || bytes > field.wide || field.count != 1 || has_[index];
    if (is_ambiguous_) return;
    has_[index] = true;
    size = number(field.at, bytes);
  }

  void read_short(const Field& field, std::int32_t& value) const {
    if (field.type == kShort && field.count == 1) value = static_cast<std::int32_t>(number(field.at, 2));
  }

  // Where the values of shorts are.
  std::uint64_t place(const Field& field) const {
    return field.count > field.wide / 2 ? number(field.at, field.wide) : field.at;
  }

  void read_most_bits(const Field& field) {
    std::uint64_t most = field.count == 0 ? 1 : 0;
    const std::uint64_t first = place(field);
    if (first > data_.size()) throw EndOfFile();
    for (std::uint64_t i = 0; i < std::min(field.count, kMaxFields); ++i)
      most = std::max(most, number(first + 2 * i, 2));
    header_.most_bits = static_cast<std::int32_t>(most);
  }

  void read_extra_samples(const Field& field) {
    try {
      const std::uint64_t at = place(field);
      if (number(at, 2) == kUnassociated) add_patch(header_, at, at + 2, kShort, false);
    } catch (const EndOfFile&) {
      header_.ends_early = 1;
    }
  }

  const Bytes& data_;
  FileHeader& header_;
  bool is_big_file_ = false;
  bool is_ambiguous_ = false;
  bool has_[4] = {};
};

}  // namespace

void read_png(const Bytes& data, FileHeader& header) {
  if (data.big(8, 4) != 13 || data.big(12, 4) != type_of("IHDR")) return;
  header.width = data.big(16, 4);
  header.height = data.big(20, 4);
  header.is_deep = data[24] == 16 ? 1 : 0;
  const int color = data[25];
  const bool has_channel = color == 4 || color == 6;
  bool has_transparency = false;
  try {
    for_png_chunks(data, type_of("IDAT"), kMaxChunksBeforePixels,
                   [&](std::uint32_t type, std::uint64_t begin, std::uint64_t end) {
      if (type == type_of("tRNS")) has_transparency = true;
      if (type == type_of("acTL")) add_patch(header, begin, end, 0, false);
    });
  } catch (const EndOfFile&) {
    header.ends_early = 1;
  }
  // OpenCV ignores the transparent value of a gray image (color 0).
  if (header.ends_early && color != 0 && !has_channel && !has_transparency) return;
  header.alpha = has_channel || (color != 0 && has_transparency) ? 1 : 0;
  header.is_complete = 1;
  if (!header.is_deep) return;
  try {
    for_png_chunks(data, type_of("IEND"), kMaxChunks, [](std::uint32_t, std::uint64_t, std::uint64_t) {});
    header.has_end = 1;
  } catch (const EndOfFile&) {
    header.has_end = 0;
  }
}

void read_webp(const Bytes& data, FileHeader& header) {
  const auto type = static_cast<std::uint32_t>(data.big(12, 4));
  if (type == type_of("VP8X")) {
    const int flags = data[20];
    header.width = data.little(24, 3) + 1;
    header.height = data.little(27, 3) + 1;
    header.alpha = flags & kAlpha ? 1 : 0;
    header.is_animated = flags & kAnimated ? 1 : 0;
    if (header.is_animated && !header.alpha && !(flags & kExif)) find_first_image(data, header);
    if (!header.is_animated && !header.alpha)
      for_webp_chunks(data, kFirstChunk, data.size(), [&](const Chunk& chunk) {
        header.is_lossless = chunk.type == type_of("VP8L") ? 1 : 0;
        return header.is_lossless != 0;
      });
    header.is_complete = 1;
  } else if (type == type_of("VP8L")) {
    const std::uint64_t bits = data.little(21, 4);
    if (data[20] != 0x2F) return;
    header.width = (bits & 0x3FFF) + 1;
    header.height = (bits >> 14 & 0x3FFF) + 1;
    header.alpha = static_cast<std::int32_t>(bits >> 28 & 1);
    header.is_lossless = 1;
    header.is_complete = 1;
  } else if (type == type_of("VP8 ") && data.big(23, 3) == 0x9D012A) {
    header.width = data.little(26, 2) & 0x3FFF;
    header.height = data.little(28, 2) & 0x3FFF;
    header.is_complete = 1;
  }
}

void read_tiff(const Bytes& data, FileHeader& header) { TiffReader(data, header).read(); }

FileFormat read_header(const std::uint8_t* data, std::size_t size, std::uint64_t max_scans, FileHeader& header) {
  header = {};
  const Bytes bytes(data, size);
  FileFormat format = kOtherFormat;
  if (starts_with(bytes, "\xff\xd8\xff", 3))
    format = kJpeg;
  else if (starts_with(bytes, "\x89PNG\r\n\x1a\n", 8))
    format = kPng;
  else if (starts_with(bytes, "RIFF", 4) && size >= 12 && std::memcmp(data + 8, "WEBP", 4) == 0)
    format = kWebp;
  else if (starts_with(bytes, "II*\0", 4) || starts_with(bytes, "MM\0*", 4) || starts_with(bytes, "II+\0", 4) ||
           starts_with(bytes, "MM\0+", 4))
    format = kTiff;
  try {
    if (format == kJpeg) read_jpeg(bytes, max_scans, header);
    if (format == kPng) read_png(bytes, header);
    if (format == kWebp) read_webp(bytes, header);
    if (format == kTiff) read_tiff(bytes, header);
  } catch (const EndOfFile&) {
    header.is_complete = 0;
  }
  return format;
}

}  // namespace hami_image
