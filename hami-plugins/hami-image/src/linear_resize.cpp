// The weights of OpenCV's fixed-point resize, and its passes along rows and columns.
#include "linear_resize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "passes.hpp"

namespace hami_image {
namespace {

constexpr float kWeightOne = 2048;

// Where a pixel of the result lies along an axis of the image: behind pixel `index`, at `part` of the way to the next one.
struct Place {
  Place(std::int64_t at, double scale) {
    const auto position = static_cast<float>((static_cast<double>(at) + 0.5) * scale - 0.5);
    const float below = std::floor(position);
    index = static_cast<std::int64_t>(below);
    part = position - below;
  }

  std::int64_t index;  // -1 before the first pixel
  float part;
};

void set_weights(float part, std::int16_t* weights) {
  weights[0] = static_cast<std::int16_t>(std::lrintf((1 - part) * kWeightOne));
  weights[1] = static_cast<std::int16_t>(std::lrintf(part * kWeightOne));
}

// Pixels of the image for one of the result, rounded as OpenCV does.
double scale_of(std::int64_t from, std::int64_t to) {
  return 1 / (static_cast<double>(to) / static_cast<double>(from));
}

// Columns of the result, for rows of `length` pixels. At both ends, a pixel has no neighbour.
std::unique_ptr<Column[]> columns_of(std::int64_t length, int channels, std::int64_t width) {
  std::unique_ptr<Column[]> columns(new Column[static_cast<std::size_t>(width)]);
  const double scale = scale_of(length, width);
  for (std::int64_t x = 0; x < width; ++x) {
    Place place(x, scale);
    if (place.index < 0 || place.index >= length - 1) {
      place.index = place.index < 0 ? 0 : length - 1;
      place.part = 0;
    }
    columns[x].first = static_cast<std::int32_t>(place.index * channels);
    set_weights(place.part, columns[x].weights);
  }
  return columns;
}

// The rows of an image with the width of the result, of which the last two are kept.
class WideRows {
 public:
  WideRows(const Image& image, std::int64_t width)
      : image_(image),
        width_(static_cast<std::size_t>(width)),
        columns_(columns_of(image.width, image.channels, width)) {
    const std::int64_t row_bytes = image.width * image.channels;
    whole_ = width_;
    while (whole_ > 0 && columns_[whole_ - 1].first + static_cast<std::int64_t>(kBytesAtOnce) > row_bytes) --whole_;
    for (Row& row : rows_) row.values.reset(new std::int16_t[padded_count()]);
  }

  // A multiple of what `down` computes at once. The values of the padding are not used.
  std::size_t padded_count() const noexcept {
    return (width_ + kPixelsAtOnce - 1) / kPixelsAtOnce * kPixelsAtOnce * kLanes;
  }

  // Rows `y` and `next`, which is `y` or the row below. Calls go down the image.
  std::pair<const std::int16_t*, const std::int16_t*> at(std::int64_t y, std::int64_t next) {
    if (rows_[0].y != y && rows_[1].y == y) std::swap(rows_[0], rows_[1]);
    fill(rows_[0], y);
    if (next == y) return {rows_[0].values.get(), rows_[0].values.get()};
    fill(rows_[1], next);
    return {rows_[0].values.get(), rows_[1].values.get()};
  }

 private:
  struct Row {
    std::int64_t y = -1;
    std::unique_ptr<std::int16_t[]> values;
  };

  void fill(Row& row, std::int64_t y) {
    if (row.y == y) return;
    const auto* const from = reinterpret_cast<const std::uint8_t*>(image_.data()) + y * image_.row_step;
    passes().across(from, image_.channels, columns_.get(), whole_, width_, row.values.get());
    row.y = y;
  }

  const Image& image_;
  std::size_t width_;
  std::unique_ptr<Column[]> columns_;
  std::size_t whole_;
  Row rows_[2];
};

}  // namespace

bool resizes_linearly(const Image& image, std::int64_t height, std::int64_t width) {
  return image.is_plain() && !(image.height == 2 * height && image.width == 2 * width) &&
         image.width * image.channels <= std::numeric_limits<std::int32_t>::max() &&
         image.height <= std::numeric_limits<std::int32_t>::max();
}

void resize_linear(const Image& image, std::int64_t height, std::int64_t width, PlaneWriter& writer) {
  WideRows rows(image, width);
  const std::unique_ptr<std::uint8_t[]> result(new std::uint8_t[rows.padded_count()]);
  const double scale = scale_of(image.height, height);
  const auto within = [&image](std::int64_t y) { return std::clamp<std::int64_t>(y, 0, image.height - 1); };
  for (std::int64_t y = 0; y < height; ++y) {
    const Place place(y, scale);
    std::int16_t weights[2];
    set_weights(place.part, weights);
    const auto [upper, lower] = rows.at(within(place.index), within(place.index + 1));
    passes().down(upper, lower, weights, rows.padded_count(), result.get());
    writer.write(result.get(), kLanes);
  }
}

}  // namespace hami_image
