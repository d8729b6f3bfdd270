// The segments and scans of a JPEG file. libjpeg decodes a file whose data end early as if it were complete.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "image_header.hpp"

namespace hami_image {
namespace {

constexpr int kSoi = 0xD8;
constexpr int kEoi = 0xD9;
constexpr int kSos = 0xDA;
constexpr int kProgressive = 0xC2;

// Limits for damaged or malicious files. Real files have far fewer segments and almost no bytes between them.
constexpr int kMaxSegments = 10'000;
constexpr std::uint64_t kMaxSkippedBytes = 65'536;  // between the segments
constexpr std::uint64_t kMinBits = 2;          // of an 8 x 8 block: a code has at least one bit; a DC and an AC code
constexpr std::uint64_t kBlockBytes = 2 * 64;  // of the coefficients of a block
constexpr int kComponents = 256;               // their names are bytes

// SOF0 to SOF15 without DHT, JPG and DAC.
bool is_frame(int marker) noexcept {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}
bool is_huffman_coded(int marker) noexcept { return marker == 0xC0 || marker == 0xC1 || marker == kProgressive; }
bool is_restart(int marker) noexcept { return marker >= 0xD0 && marker <= 0xD7; }

// A marker, and the range of its content. The data of a scan follow its segment, up to `scan_end`.
struct Segment {
  int marker;
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t scan_end;
};

// The segments exactly as libjpeg reads them; SOI and EOI are the last.
class Segments {
 public:
  explicit Segments(const Bytes& data) noexcept : data_(data) {}

  // Throws EndOfFile where the file ends within a segment's length.
  std::optional<Segment> next() {
    if (is_last_ || count_++ == kMaxSegments) return std::nullopt;
    // Like libjpeg, skips stuffed zeros, fill bytes and markers without a segment (TEM, RST0 to RST7).
    const std::uint64_t found = find(at_ + kMaxSkippedBytes - skipped_, [](int byte) { return byte != 0x01; });
    if (found == kNowhere) return std::nullopt;
    skipped_ += found - at_;
    at_ = found + 2;
    Segment segment{data_[at_ - 1], at_, at_, at_};
    is_last_ = segment.marker == kSoi || segment.marker == kEoi;
    if (is_last_) return segment;
    const std::uint64_t length = data_.big(at_, 2);
    if (length < 2) return std::nullopt;
    segment.begin = at_ + 2;
    at_ += length;
    segment.end = segment.scan_end = at_;
    if (segment.marker == kSos) {
      const std::uint64_t marker = find(data_.size(), [](int) { return true; });
      at_ = segment.scan_end = marker == kNowhere ? data_.size() : marker;
    }
    return segment;
  }

 private:
  static constexpr std::uint64_t kNowhere = UINT64_MAX;

  // The first marker from here to `end` that is none of fill bytes, stuffed zeros and restarts, and that `counts`.
  template <class Counts>
  std::uint64_t find(std::uint64_t end, const Counts& counts) const noexcept {
    end = std::min<std::uint64_t>(end, data_.size());
    for (std::uint64_t at = at_; at + 1 < end; ++at) {
      const void* const byte = std::memchr(data_.data() + at, 0xFF, end - at - 1);
      if (!byte) return kNowhere;
      at = static_cast<std::uint64_t>(static_cast<const std::uint8_t*>(byte) - data_.data());
      const int marker = data_.data()[at + 1];
      if (marker != 0 && marker != 0xFF && !is_restart(marker) && counts(marker)) return at;
    }
    return kNowhere;
  }

  const Bytes& data_;
  std::uint64_t at_ = 2;
  std::uint64_t skipped_ = 0;
  int count_ = 0;
  bool is_last_ = false;
};

struct Frame {
  bool is_progressive = false;
  std::uint64_t blocks[kComponents] = {};  // 8 x 8 blocks, by component
  bool has[kComponents] = {};
  int components = 0;

  std::uint64_t all_blocks() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t each : blocks) sum += each;
    return sum;
  }
};

std::uint64_t divided(std::uint64_t number, std::uint64_t by) noexcept { return (number + by - 1) / by; }

class JpegReader {
 public:
  JpegReader(const Bytes& data, std::uint64_t max_scans, FileHeader& header)
      : data_(data), max_scans_(max_scans), header_(header) {}

  void read() {
    bool is_first_scan = true;
    Segments segments(data_);
    try {
      while (const std::optional<Segment> segment = segments.next()) {
        if (is_frame(segment->marker)) {
          read_frame(*segment);
        } else if (segment->marker == kSos && !header_.is_complete) {
          return;  // pixels before a frame
        } else if (segment->marker == kSos) {
          if (is_first_scan) find_coefficients(data_[segment->begin]);
          is_first_scan = false;
          if (!header_.jpeg_problem) read_scan(*segment);
          if (header_.data_end) return;
        }
        // With two frames, the memory of the first scan is still to be found.
        if (header_.jpeg_problem && (header_.jpeg_problem != kTwoFrames || !is_first_scan)) return;
      }
      for (const bool missing : missing_)
        if (missing) report(kMissingComponents);
    } catch (const EndOfFile&) {
      // Before the first scan, not even the size is certain.
      if (is_first_scan) throw;
      report(kEndsEarly);
    }
  }

 private:
  void report(JpegProblem problem, std::uint64_t first = 0, std::uint64_t second = 0) noexcept {
    if (header_.jpeg_problem) return;  // the first one counts
    header_.jpeg_problem = problem;
    header_.details[0] = first;
    header_.details[1] = second;
  }

  // The memory of a decoder that keeps all coefficients, as it does for a picture in several scans.
  void find_coefficients(int components) noexcept {
    if (frame_.is_progressive || components < frame_.components)
      header_.coefficient_bytes = kBlockBytes * frame_.all_blocks();
  }

  void read_frame(const Segment& segment) {
    if (header_.is_complete) report(kTwoFrames);
    const std::uint64_t height = data_.big(segment.begin + 1, 2);
    const std::uint64_t width = data_.big(segment.begin + 3, 2);
    if (!header_.is_complete) {
      header_.is_complete = 1;
      header_.height = height;
      header_.width = width;
    }
    frame_ = {};
    if (!is_huffman_coded(segment.marker))
      return report(kUnsupportedProcess, static_cast<std::uint64_t>(segment.marker - 0xC0));
    frame_.is_progressive = segment.marker == kProgressive;
    const int count = data_[segment.begin + 5];
    std::uint64_t factors[kComponents][2] = {};
    std::uint64_t most[2] = {};
    for (int i = 0; i < count; ++i) {
      const std::uint64_t at = segment.begin + 6 + 3 * static_cast<std::uint64_t>(i);
      const int name = data_[at];
      const int both = data_[at + 1];
      if (!frame_.has[name]) ++frame_.components;
      frame_.has[name] = true;
      factors[name][0] = static_cast<std::uint64_t>(both >> 4);
      factors[name][1] = static_cast<std::uint64_t>(both & 15);
    }
    bool is_empty = frame_.components == 0;
    for (int name = 0; name < kComponents; ++name) {
      if (!frame_.has[name]) continue;
      for (int axis = 0; axis < 2; ++axis) {
        most[axis] = std::max(most[axis], factors[name][axis]);
        is_empty = is_empty || factors[name][axis] == 0;
      }
    }
    if (is_empty) return report(kNoComponents);
    for (int name = 0; name < kComponents; ++name)
      if (frame_.has[name])
        frame_.blocks[name] =
            divided(width * factors[name][0], 8 * most[0]) * divided(height * factors[name][1], 8 * most[1]);
    std::copy(std::begin(frame_.has), std::end(frame_.has), std::begin(missing_));
  }

  // Checks that a scan can hold the blocks of its components. DC scans need one bit per block.
  void read_scan(const Segment& segment) {
    if (++scans_ > max_scans_) return report(kTooManyScans);
    const int count = data_[segment.begin];
    const std::uint64_t behind = segment.begin + 1 + 2 * static_cast<std::uint64_t>(count);
    const int first_coefficient = data_[behind];
    bool scanned[kComponents] = {};
    for (std::uint64_t at = segment.begin + 1; at < behind; at += 2) scanned[data_[at]] = true;
    if (!frame_.is_progressive || first_coefficient == 0) {
      std::uint64_t blocks = 0;
      for (int name = 0; name < kComponents; ++name)
        if (scanned[name]) blocks += frame_.blocks[name];
      const std::uint64_t needed = divided((frame_.is_progressive ? 1 : kMinBits) * blocks, 8);
      const std::uint64_t size = segment.scan_end > segment.end ? segment.scan_end - segment.end : 0;
      if (size < needed) return report(kShortScan, size, needed);
      for (int name = 0; name < kComponents; ++name) missing_[name] = missing_[name] && !scanned[name];
    }
    if (!frame_.is_progressive && !header_.jpeg_problem &&
        std::equal(std::begin(scanned), std::end(scanned), std::begin(frame_.has)))
      header_.data_end = segment.scan_end;
  }

  const Bytes& data_;
  const std::uint64_t max_scans_;
  FileHeader& header_;
  Frame frame_;
  bool missing_[kComponents] = {};
  std::uint64_t scans_ = 0;
};

}  // namespace

void read_jpeg(const Bytes& data, std::uint64_t max_scans, FileHeader& header) {
  JpegReader(data, max_scans, header).read();
}

}  // namespace hami_image
