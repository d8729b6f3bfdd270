// DecodeTensor: decodes the JPEG files of a batch together with nvJPEG.
#include <chrono>
#include <cstring>
#include <map>
#include <optional>

#include "image_batch.hpp"
#include "jpeg_coding.hpp"
#include "jpeg_decoder.hpp"

namespace hami_cuda {
namespace {

constexpr std::string_view kJpegStart = "\xff\xd8";

// How an image of each EXIF orientation becomes upright: rows and columns are swapped, then axes are reversed.
struct Turn {
  bool swaps;
  bool reverses_rows;
  bool reverses_columns;
};
constexpr Turn kTurns[] = {{},
                           {false, false, false},
                           {false, false, true},
                           {false, true, true},
                           {false, true, false},
                           {true, false, false},
                           {true, false, true},
                           {true, true, true},
                           {true, true, false}};

// An image of `header` in the orientation of the file, as the input of a kernel that turns it upright.
hami_cuda_image turned(CUdeviceptr planes, const JpegHeader& header) {
  const Turn& turn = kTurns[header.orientation];
  hami_cuda_image image{};
  image.channel_stride = static_cast<long long>(header.width) * header.height;
  image.row_stride = turn.swaps ? 1 : header.width;
  image.pixel_stride = turn.swaps ? header.width : 1;
  image.height = image.out_height = image.fitted_height = turn.swaps ? header.width : header.height;
  image.width = image.out_width = image.fitted_width = turn.swaps ? header.height : header.width;
  long long start = 0;
  if (turn.reverses_rows) {
    start += (image.height - 1) * image.row_stride;
    image.row_stride = -image.row_stride;
  }
  if (turn.reverses_columns) {
    start += (image.width - 1) * image.pixel_stride;
    image.pixel_stride = -image.pixel_stride;
  }
  image.data = reinterpret_cast<const void*>(planes + static_cast<CUdeviceptr>(start));
  return image;
}

class DecodeTensor final : public CudaBackend {
 public:
  static constexpr hami::Range kRange = kAnyNumber;
  static constexpr std::uint32_t kMaxChildren = 1;
  static constexpr const char* kDefaultChild = "DecodeMat";  // of hami-image

  DecodeTensor() : CudaBackend("DecodeTensor") {}

 private:
  // What the backend in the brackets returned for a file: H x W, or H x W x C.
  struct Picture {
    hami::Dict item;
    hami::Tensor image;

    std::int64_t height() const { return image.view().shape[0]; }
    std::int64_t width() const { return image.view().shape[1]; }
    std::int64_t channels() const { return image.view().ndim == 3 ? image.view().shape[2] : 1; }
  };

  // A file of the batch.
  struct Request {
    hami::Dict item;
    hami::Value data;  // bytes
    JpegFile file;
  };

  // The backend in the brackets gets few files, so that it does not limit the batch.
  hami::Range range_() const override { return {}; }

  void setup(const hami::Params& params) override {
    color_name_ = params.get<std::string>("color");
    color_ = color_name_ == "gray" ? JpegColor::kGray : color_name_ == "bgr" ? JpegColor::kBgr : JpegColor::kRgb;
    layout_ = params.get<std::string>("layout");
    max_pixels_ = params.get<std::int64_t>("max_pixels");
    exif_ = params.get<bool>("exif");
    const auto library = params.get<std::optional<std::string>>("library");
    if (library) {
      const bool is_asked = params.get<std::string>("chroma") == "interpolate";
      const unsigned flags = is_asked ? hami::library_at<Nvjpeg>(*library).interpolation() : 0;
      interpolates_ = flags != 0;
      if (is_asked && !interpolates_ && instance() <= 0)
        log("nvJPEG (" + *library + ") repeats subsampled chroma, because it is older than 12.1: files of 4:2:0 and " +
            "4:2:2 differ from libjpeg by up to 25 levels; install a newer one, or set chroma = repeat");
      decoders_.emplace(JpegDecoders::of(device().device(), *library, flags));
    } else if (children().empty()) {
      throw CudaError(HAMI_UNAVAILABLE,
                      "nvJPEG is not installed: pip install hami-cuda[nvjpeg]; or hami-image, to decode on the CPU");
    } else if (instance() <= 0) {
      log("nvJPEG is not installed, so " + std::string(children().front().label()) +
          " decodes all files on the CPU; pip install hami-cuda[nvjpeg]");
    }
  }

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    std::vector<hami::Dict> others;  // that nvJPEG cannot decode
    for_each(batch, [&](const hami::Dict& item) {
      Request request{item, bytes_of(item), {}};
      request.file.encoded = request.data.as_text();
      requests.push_back(std::move(request));
    });
    if (decoders_) decode(requests, others);
    if (!decoders_)
      for (const Request& request : requests) others.push_back(request.item);
    if (!others.empty()) decode_elsewhere(others);
  }

  hami::Value bytes_of(const hami::Dict& item) const {
    hami::Value data = data_of(item, name());
    if (data.kind() != HAMI_BYTES)
      throw hami::Error(HAMI_DATA_TYPE,
                        "DecodeTensor takes the bytes of an image file; convert other objects with bytes()");
    if (data.as_text().empty())
      throw hami::Error(HAMI_REQUEST, "DecodeTensor takes the bytes of an image file, got 0 bytes");
    return data;
  }

  bool takes(std::string_view encoded) const {
    if (encoded.substr(0, kJpegStart.size()) != kJpegStart || !reason_against_nvjpeg(encoded).empty()) return false;
    return children().empty() || !interpolates_ || !is_too_narrow_to_interpolate(encoded);
  }

  void decode(std::vector<Request>& requests, std::vector<hami::Dict>& others) {
    JpegDecoders::Borrowed decoder(*decoders_);
    std::vector<Request*> readable;
    std::vector<JpegFile> files;
    std::vector<std::size_t> offsets;
    Layout layout;
    for (Request& request : requests) {
      JpegFile& file = request.file;
      if (!takes(file.encoded) || !decoder->read_header(header_of(file.encoded), file.header)) {
        others.push_back(request.item);
        continue;
      }
      if (const std::int64_t pixels = std::int64_t{file.header.width} * file.header.height;
          pixels == 0 || pixels > max_pixels_) {
        request.item.fail(size_error(file.header.width, file.header.height));
        continue;
      }
      offsets.push_back(layout.add(bytes(file.header)));
      readable.push_back(&request);
      files.push_back(file);
    }
    if (files.empty()) return;
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    // nvJPEG leaves out pixels of damaged files: they must not show what was in the memory before.
    stream()->driver().check(stream()->api().clear(memory->start(), 0, layout.size(), stream()->raw()),
                             "cannot clear memory");
    for (std::size_t i = 0; i < files.size(); ++i) files[i].planes = memory->start() + offsets[i];
    stream()->wait();  // the engines write before earlier work of the stream, which may still read this memory
    for (Request* request : readable) keep(request->data);  // until the engines have read it
    pin(files);
    decoder->decode(files, color_, *stream());
    std::vector<std::size_t> to_turn;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!files[i].is_decoded)
        others.push_back(readable[i]->item);
      else if (exif_ && files[i].header.orientation != 1)
        to_turn.push_back(i);
      else
        give(readable[i]->item, memory, offsets[i], files[i].header.height, files[i].header.width);
    }
    if (!to_turn.empty()) turn(to_turn, files, readable);
  }

  // Copies the files that are decoded together to pinned memory. From other memory, nvJPEG's uploads wait for buffers of the driver
  // while the device works, and keep a core busy meanwhile (tests/gpu/measured-once.md).
  void pin(std::vector<JpegFile>& files) {
    Layout layout;
    std::vector<std::size_t> offsets;
    for (const JpegFile& file : files)
      offsets.push_back(file.header.is_batchable ? layout.add(file.encoded.size()) : 0);
    if (layout.size() == 0 || layout.size() > kMostStaged) return;  // more files stay where they are
    const std::shared_ptr<void> memory = device().pinned().get(layout.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::string_view& encoded = files[i].encoded;
      if (!files[i].header.is_batchable) continue;
      char* const start = static_cast<char*>(memory.get()) + offsets[i];
      std::memcpy(start, encoded.data(), encoded.size());
      encoded = {start, encoded.size()};
    }
    keep(memory);
  }

  void turn(const std::vector<std::size_t>& indexes, const std::vector<JpegFile>& files,
            const std::vector<Request*>& requests) {
    Layout layout;
    std::vector<std::size_t> offsets;
    for (const std::size_t i : indexes) offsets.push_back(layout.add(bytes(files[i].header)));
    const std::shared_ptr<Memory> memory = allocate(layout.size());
    std::vector<hami_cuda_image> images;
    for (std::size_t n = 0; n < indexes.size(); ++n) {
      images.push_back(turned(files[indexes[n]].planes, files[indexes[n]].header));
      images.back().result = reinterpret_cast<void*>(memory->start() + offsets[n]);
    }
    hami_cuda_job job{};
    job.channels = channels();
    device().kernels().image(*stream(), images, job);
    for (std::size_t n = 0; n < indexes.size(); ++n)
      give(requests[indexes[n]]->item, memory, offsets[n], images[n].out_height, images[n].out_width);
  }

  int channels() const noexcept { return color_ == JpegColor::kGray ? 1 : 3; }

  std::size_t bytes(const JpegHeader& header) const {
    return static_cast<std::size_t>(header.width) * static_cast<std::size_t>(header.height) *
           static_cast<std::size_t>(channels());
  }

  // Sets the result of a request to planes on the device.
  void give(const hami::Dict& item, const std::shared_ptr<Memory>& memory, std::size_t offset, std::int64_t height,
            std::int64_t width) {
    const DLDataType byte{kDLUInt, 8, 1};
    item["color"] = hami::Value(color_name_);
    item["data_format"] = hami::Value(layout_);
    item["result"] = layout_ == "hwc"
                         ? device_tensor(memory, offset, byte, {height, width, channels()}, {width, 1, height * width})
                         : device_tensor(memory, offset, byte, {1, channels(), height, width});
  }

  hami::Error size_error(std::int64_t width, std::int64_t height) const {
    const std::string size = std::to_string(width) + " x " + std::to_string(height);
    if (width * height == 0) return {HAMI_REQUEST, "DecodeTensor: the image has no pixels, its size is " + size};
    return {HAMI_REQUEST, "DecodeTensor: the image has " + size +
                              " pixels, more than \"max_pixels\" = " + std::to_string(max_pixels_)};
  }

  // Decodes with the backend in the brackets, and moves its pictures to the device.
  void decode_elsewhere(const std::vector<hami::Dict>& items) {
    if (children().empty()) {
      for (const hami::Dict& item : items) {
        const hami::Value data = item.get("data");
        std::string file = std::to_string(data.as_text().size()) + " bytes";
        if (const std::string_view reason = reason_against_nvjpeg(data.as_text()); !reason.empty())
          file += ", " + std::string(reason);
        item.fail({HAMI_REQUEST, "DecodeTensor: nvJPEG cannot decode this file of " + file +
                                     "; hami-image decodes such files on the CPU: pip install hami-image"});
      }
      return;
    }
    std::vector<hami_dict*> raw;
    for (const hami::Dict& item : items) raw.push_back(item.raw());
    const hami::Batch batch(raw.data(), raw.size());
    const auto start = std::chrono::steady_clock::now();
    children().front().forward(batch);
    const auto took = std::chrono::steady_clock::now() - start;
    count("other_files", static_cast<std::int64_t>(items.size()));
    count("other_files_us", std::chrono::duration_cast<std::chrono::microseconds>(took).count());
    std::map<hami_cuda_color, std::vector<Picture>> pictures;  // by the conversion that they need
    for_each(batch, [&](const hami::Dict& item) {
      if (item.error() || !item.contains("result")) return;
      Picture picture = picture_of(item);
      pictures[conversion(picture)].push_back(std::move(picture));
    });
    for (const auto& [color, group] : pictures) move(group, color);
  }

  Picture picture_of(const hami::Dict& item) {
    Picture picture{item, any_tensor(item.get("result"))};
    const DLTensor& view = picture.image.view();
    if (view.dtype.code != kDLUInt || view.dtype.bits != 8 || view.ndim < 2 || view.ndim > 3 ||
        (picture.channels() != 1 && picture.channels() != 3) || view.device.device_type == kDLCUDA)
      throw hami::Error(HAMI_DATA_TYPE,
                        "DecodeTensor: the backend in the brackets must return images H x W x C of uint8 in CPU "
                        "memory with 1 or 3 channels, got " +
                            show(view));
    const std::int64_t pixels = picture.height() * picture.width();
    if (pixels == 0 || pixels > max_pixels_) throw size_error(picture.width(), picture.height());
    return picture;
  }

  // Moves pictures to planes on the device, with one launch.
  void move(const std::vector<Picture>& pictures, hami_cuda_color color) {
    Layout given;
    Layout planes;
    std::vector<std::size_t> from;
    std::vector<std::size_t> to;
    for (const Picture& picture : pictures) {
      from.push_back(given.add(picture.image.nbytes()));
      to.push_back(planes.add(static_cast<std::size_t>(picture.height() * picture.width() * channels())));
    }
    const std::shared_ptr<Memory> memory = allocate(given.size());
    const std::shared_ptr<Memory> result = allocate(planes.size());
    std::vector<Upload> uploads;
    std::vector<hami_cuda_image> images;
    for (std::size_t i = 0; i < pictures.size(); ++i) {
      const Picture& picture = pictures[i];
      uploads.push_back({picture.image, memory->start() + from[i]});
      hami_cuda_image image{};
      image.data = reinterpret_cast<const void*>(memory->start() + from[i]);
      image.result = reinterpret_cast<void*>(result->start() + to[i]);
      image.channel_stride = 1;
      image.row_stride = picture.width() * picture.channels();
      image.pixel_stride = picture.channels();
      image.width = image.out_width = image.fitted_width = static_cast<int>(picture.width());
      image.height = image.out_height = image.fitted_height = static_cast<int>(picture.height());
      images.push_back(image);
    }
    upload(uploads);
    hami_cuda_job job{};
    job.channels = channels();
    job.color = color;
    device().kernels().image(*stream(), images, job);
    for (std::size_t i = 0; i < pictures.size(); ++i)
      give(pictures[i].item, result, to[i], pictures[i].height(), pictures[i].width());
  }

  // From the format of a picture, which the key `color` names.
  hami_cuda_color conversion(const Picture& picture) const {
    if (picture.channels() == 1) return channels() == 1 ? HAMI_CUDA_KEEP : HAMI_CUDA_REPEAT;
    const std::optional<hami::Value> key = picture.item.find("color");
    const std::string format(key && key->kind() == HAMI_STR ? key->as_text() : color_name_);
    if (format == color_name_) return HAMI_CUDA_KEEP;
    if (channels() == 1) return format == "bgr" ? HAMI_CUDA_GRAY_OF_BGR : HAMI_CUDA_GRAY;
    return HAMI_CUDA_REVERSE;
  }

  std::string color_name_;
  JpegColor color_ = JpegColor::kRgb;
  std::string layout_;
  std::int64_t max_pixels_ = 0;
  bool exif_ = true;
  bool interpolates_ = false;                   // subsampled chroma, as libjpeg; else nvJPEG repeats its samples
  std::optional<JpegDecoders::User> decoders_;  // none: nvJPEG is not installed
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::DecodeTensor, "DecodeTensor",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; color: str = 'rgb' {rgb,bgr,gray} 'format of the result'"
    "; max_pixels: int = 80000000 {1..} 'maximum of width x height; checked in the header, before decoding'"
    "; layout|data_format: str = 'nchw' {nchw,hwc} 'order of the axes of the result'"
    "; exif: bool = true 'rotate the image as its EXIF orientation says'"
    "; chroma: str = 'interpolate' {interpolate,repeat} 'how nvJPEG enlarges subsampled chroma: interpolate, as libjpeg "
    "does, or repeat its samples'"
    "; library: library? 'path of libnvjpeg; default: that of an installed package'",
    "Decode a JPEG file in `data`, as bytes, to a uint8 tensor 1 x C x H x W, or H x W x C, on the device.\n"
    "\n"
    "S[DecodeTensor,ResizeTensor(width=224,height=224),SyncTensor]\n"
    "\n"
    "C is 3, or 1 for gray. The request's keys `color` and `data_format` are set to the format and the layout of the\n"
    "result. nvJPEG decodes the files of a batch together. Files that it cannot decode, such as PNG, go to the\n"
    "backend in the brackets, which returns images H x W x C in CPU memory: DecodeMat of hami-image, if it is\n"
    "installed and there are no brackets. Without it they are errors.");
