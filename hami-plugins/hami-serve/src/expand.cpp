// Expands with zlib.
#include "expand.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace hami_serve {
namespace {

constexpr std::size_t kPiece = 1 << 18;  // bytes that one step expands
constexpr int kMaxMembers = 1 << 16;     // of a body of gzip, which may be empty
constexpr int kWithGzip = 16;            // of `windowBits`: with the head of gzip, and not that of zlib

// Some clients send deflate without the wrapper of zlib (RFC 9110, 8.4.1.2).
bool is_wrapped(const Body& body) noexcept {
  if (body.size() < 2) return true;
  const auto first = static_cast<unsigned char>(body.data()[0]);
  const auto second = static_cast<unsigned char>(body.data()[1]);
  return (first & 0xF) == Z_DEFLATED && (first << 8 | second) % 31 == 0;
}

class Inflater {
 public:
  Inflater(const Body& body, Coding coding) : can_repeat_(coding == Coding::kGzip) {
    const int bits = coding == Coding::kGzip ? MAX_WBITS + kWithGzip : is_wrapped(body) ? MAX_WBITS : -MAX_WBITS;
    if (inflateInit2(&stream_, bits) != Z_OK) throw std::bad_alloc();
    stream_.next_in = reinterpret_cast<Bytef*>(body.data());  // bytes of zlib are unsigned char, which may alias
    stream_.avail_in = static_cast<uInt>(body.size());
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  enum class Outcome { kMore, kEnd, kWrong };
  // Expands at most `size` bytes, and says how many.
  Outcome next(char* to, std::size_t size, std::size_t& written) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);  // as above
    stream_.avail_out = static_cast<uInt>(size);
    Outcome outcome = Outcome::kMore;
    while (outcome == Outcome::kMore && stream_.avail_out > 0) outcome = step();
    written = size - stream_.avail_out;
    return outcome;
  }

 private:
  Outcome step() noexcept {
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_OK) return Outcome::kMore;
    if (result != Z_STREAM_END) return Outcome::kWrong;  // Z_BUF_ERROR: the body is truncated
    if (stream_.avail_in == 0) return Outcome::kEnd;
    if (!can_repeat_ || ++members_ > kMaxMembers || inflateReset(&stream_) != Z_OK) return Outcome::kWrong;
    return Outcome::kMore;
  }

  const bool can_repeat_;
  z_stream stream_{};
  int members_ = 1;
};

}  // namespace

std::shared_ptr<Body> expanded(const Body& body, const Head& head, std::size_t most,
                               const std::function<bool(std::int64_t)>& charge) {
  if (body.size() > std::numeric_limits<uInt>::max()) return nullptr;
  try {
    Inflater inflater(body, head.coding);
    auto result = std::make_shared<Body>(head.json_length.value_or(0));
    std::size_t size = 0;
    for (auto outcome = Inflater::Outcome::kMore; outcome == Inflater::Outcome::kMore;) {
      const std::size_t piece = std::min(kPiece, most - size + 1);  // one more shows that it is too large
      if (!charge(static_cast<std::int64_t>(piece))) return nullptr;
      result->grow(size + piece);
      std::size_t written = 0;
      outcome = inflater.next(result->data() + size, piece, written);
      size += written;
      if (outcome == Inflater::Outcome::kWrong || size > most) return nullptr;
    }
    result->end(size);
    return result;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace hami_serve
