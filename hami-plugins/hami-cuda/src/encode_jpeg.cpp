// EncodeJpeg: encodes the pictures of a batch as JPEG files with nvJPEG.
#include <map>
#include <optional>

#include "image_batch.hpp"
#include "jpeg_encoder.hpp"

namespace hami_cuda {
namespace {

constexpr int kMostPixels = 65535;  // of a side of a JPEG file

class EncodeJpeg final : public ImageReader {
 public:
  EncodeJpeg() : ImageReader("EncodeJpeg") {}

 private:
  struct Request {
    hami::Dict item;
    Images images;
    JpegPicture picture;
    std::size_t offset = 0;  // of a copy
  };

  void setup(const hami::Params& params) override {
    const std::map<std::string, JpegSubsampling> known{{"4:4:4", JpegSubsampling::k444},
                                                       {"4:2:2", JpegSubsampling::k422},
                                                       {"4:2:0", JpegSubsampling::k420},
                                                       {"4:4:0", JpegSubsampling::k440}};
    quality_ = params.get<int>("quality");
    subsampling_ = known.at(params.get<std::string>("subsampling"));
    source_ = params.get<std::string>("source");
    const auto library = params.get<std::optional<std::string>>("library");
    if (!library) throw CudaError(HAMI_UNAVAILABLE, "nvJPEG is not installed: pip install hami-cuda[nvjpeg]");
    encoders_.emplace(JpegEncoders::of(device().device(), *library, 0));
  }

  void run(hami::Batch batch) override {
    std::vector<Request> requests;
    for_each(batch, [&](const hami::Dict& item) { requests.push_back(read_picture(item)); });
    if (requests.empty()) return;
    const std::shared_ptr<Memory> copies = copy_others(requests);
    std::vector<JpegPicture> pictures;
    for (const Request& request : requests) pictures.push_back(request.picture);
    JpegEncoders::Borrowed encoder(*encoders_);
    const std::vector<std::string> files = encoder->encode(pictures, quality_, subsampling_, *stream());
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].empty())
        requests[i].item.fail(
            {HAMI_INTERNAL, "EncodeJpeg: nvJPEG cannot encode the image of shape " + show(requests[i].images.shape())});
      else
        requests[i].item["result"] = hami::Value::bytes(files[i]);
    }
  }

  Request read_picture(const hami::Dict& item) {
    Request request{item, read(item, data_of(item, name())), {}, 0};
    const Images& images = request.images;
    JpegPicture& picture = request.picture;
    if (images.type != HAMI_CUDA_U8 || images.count != 1 || (images.channels != 1 && images.channels != 3))
      throw hami::Error(HAMI_DATA_TYPE,
                        "EncodeJpeg takes one image of uint8 with 1 or 3 channels, got " + show(images.tensor));
    if (images.width > kMostPixels || images.height > kMostPixels)
      throw hami::Error(
          HAMI_REQUEST,
          "EncodeJpeg: a JPEG file has at most 65535 x 65535 pixels, got an image of shape " + show(images.shape()));
    picture.width = images.width;
    picture.height = images.height;
    if (images.channels == 1)
      picture.color = JpegColor::kGray;
    else
      picture.color = color_of(item, source_, name()) == "bgr" ? JpegColor::kBgr : JpegColor::kRgb;
    if (!has_pixels_in_order(images, picture.is_interleaved)) return request;
    auto* const start = static_cast<unsigned char*>(images.tensor.view().data);
    for (int i = 0; i < (picture.is_interleaved ? 1 : images.channels); ++i) {
      picture.image.plane[i] = start + i * images.channel_stride;
      picture.image.row_bytes[i] = static_cast<std::size_t>(images.row_stride);
    }
    return request;
  }

  // Whether nvJPEG can read the picture where it is: as planes, or interleaved.
  static bool has_pixels_in_order(const Images& images, bool& is_interleaved) {
    is_interleaved = images.channels == 3 && images.channel_stride == 1 && images.pixel_stride == 3;
    return (is_interleaved || images.pixel_stride == 1) && images.row_stride >= images.width * images.pixel_stride;
  }

  // Copies the pictures with other strides to planes, with one launch.
  std::shared_ptr<Memory> copy_others(std::vector<Request>& requests) {
    Layout layout;
    std::vector<Request*> copied;
    for (Request& request : requests) {
      if (request.picture.image.plane[0]) continue;
      request.offset = layout.add(request.images.tensor.nbytes());
      copied.push_back(&request);
    }
    if (copied.empty()) return nullptr;
    std::shared_ptr<Memory> memory = allocate(layout.size());
    std::map<int, std::vector<hami_cuda_image>> described;  // by the number of channels
    for (Request* request : copied) {
      const Images& images = request->images;
      hami_cuda_image image{};
      image.data = images.tensor.view().data;
      image.result = reinterpret_cast<void*>(memory->start() + request->offset);
      image.channel_stride = images.channel_stride;
      image.row_stride = images.row_stride;
      image.pixel_stride = images.pixel_stride;
      image.width = image.out_width = image.fitted_width = images.width;
      image.height = image.out_height = image.fitted_height = images.height;
      described[images.channels].push_back(image);
      request->picture.is_interleaved = false;
      for (int i = 0; i < images.channels; ++i) {
        request->picture.image.plane[i] =
            static_cast<unsigned char*>(image.result) + static_cast<std::size_t>(i) * images.width * images.height;
        request->picture.image.row_bytes[i] = static_cast<std::size_t>(images.width);
      }
    }
    for (const auto& [channels, images] : described) {
      hami_cuda_job job{};
      job.channels = channels;
      device().kernels().image(*stream(), images, job);
    }
    return memory;
  }

  int quality_ = 0;
  JpegSubsampling subsampling_ = JpegSubsampling::k420;
  std::string source_;
  std::optional<JpegEncoders::User> encoders_;
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(
    hami_cuda::EncodeJpeg, "EncodeJpeg",
    "device: str = 'cuda' 'CUDA device: cuda, cuda:N or cuda:*; an error if it does not exist'"
    "; quality: int = 95 {1..100} 'the higher, the larger and the more exact the file; as in libjpeg'"
    "; subsampling: str = '4:2:0' {'4:4:4','4:2:2','4:2:0','4:4:0'} 'resolution of the colors'"
    "; source: str = 'rgb' {rgb,bgr} 'format of images whose requests have no key `color`'"
    "; library: library? 'path of libnvjpeg; default: that of an installed package'",
    "Encode an image on the device as a JPEG file, as bytes.\n"
    "\n"
    "S[DecodeTensor,ResizeTensor(width=224,height=224),EncodeJpeg(quality=90)]\n"
    "\n"
    "`data` is one image, C x H x W, 1 x C x H x W or, with the key `data_format` = hwc, H x W x C, of uint8. An image of\n"
    "one channel becomes a gray file. The request's key `color` is its format, else `source`. The pictures of a batch are\n"
    "encoded together, and the CPU waits for the files.");
