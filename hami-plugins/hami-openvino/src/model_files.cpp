// Finds the weights of an IR by their name, and those of an ONNX model by the file names in its protobuf.
#include "model_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <set>
#include <string_view>

#include "error.hpp"

namespace hami_openvino {
namespace {

namespace fs = std::filesystem;

// The protobuf messages of onnx.proto3 that lead from a model to the external data of its tensors. kExternalData is a
// StringStringEntryProto: field 1 is the key, field 2 the value.
enum class Message { kModel, kFunction, kGraph, kSparseTensor, kNode, kAttribute, kTensor, kExternalData };
struct Field {
  Message parent;
  std::uint64_t number;
  Message child;
};
constexpr std::array kFields{
    Field{Message::kModel, 7, Message::kGraph},         Field{Message::kModel, 25, Message::kFunction},
    Field{Message::kFunction, 7, Message::kNode},       Field{Message::kGraph, 1, Message::kNode},
    Field{Message::kGraph, 5, Message::kTensor},        Field{Message::kGraph, 15, Message::kSparseTensor},
    Field{Message::kSparseTensor, 1, Message::kTensor}, Field{Message::kSparseTensor, 2, Message::kTensor},
    Field{Message::kNode, 5, Message::kAttribute},      Field{Message::kAttribute, 5, Message::kTensor},
    Field{Message::kAttribute, 6, Message::kGraph},     Field{Message::kAttribute, 10, Message::kTensor},
    Field{Message::kAttribute, 11, Message::kGraph},    Field{Message::kTensor, 13, Message::kExternalData},
};
constexpr int kMaxDepth = 100;  // of nested messages; the limit of protobuf's own parsers

class ExternalDataScanner {
 public:
  // Returns the file names in an ONNX model. In a file that is damaged or not an ONNX model, stops at the first error:
  // OpenVINO then reports what is wrong with the file.
  static std::set<std::string> scan(std::string_view data) {
    ExternalDataScanner scanner;
    scanner.scan_message(data, Message::kModel, 0);
    return scanner.found_;
  }

 private:
  enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

  bool scan_message(std::string_view data, Message message, int depth) {
    if (depth > kMaxDepth) return false;
    std::string_view key;
    std::string_view value;
    while (!data.empty()) {
      std::uint64_t tag = 0;
      std::uint64_t length = 0;
      if (!read_varint(data, tag)) return false;
      const std::uint64_t number = tag >> 3u;
      const auto wire_type = static_cast<WireType>(tag & 7u);
      switch (wire_type) {
        case kVarint:
          if (!read_varint(data, length)) return false;
          continue;
        case kFixed64: length = 8; break;
        case kFixed32: length = 4; break;
        case kLengthDelimited:
          if (!read_varint(data, length)) return false;
          break;
        default: return false;
      }
      if (length > data.size()) return false;
      const std::string_view content = data.substr(0, length);
      data.remove_prefix(length);
      if (wire_type != kLengthDelimited) continue;
      if (message == Message::kExternalData) (number == 1 ? key : value) = content;
      for (const Field& field : kFields)
        if (field.parent == message && field.number == number && !scan_message(content, field.child, depth + 1))
          return false;
    }
    if (key == "location") found_.emplace(value);
    return true;
  }

  static bool read_varint(std::string_view& data, std::uint64_t& number) {
    for (unsigned shift = 0; shift < 64 && !data.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      number |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
      if (byte < 0x80u) return true;
    }
    return false;
  }

  std::set<std::string> found_;
};

// Maps the file: most of a large model is weights, which the scanner skips and which are then not read from disk.
std::set<std::string> external_files_of(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t size = lseek(file, 0, SEEK_END);
  void* data = size > 0 ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (data == MAP_FAILED) return {};
  std::set<std::string> found =
      ExternalDataScanner::scan({static_cast<const char*>(data), static_cast<std::size_t>(size)});
  munmap(data, static_cast<std::size_t>(size));
  return found;
}

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

// The files of a model whose weights are in the folder of `model`.
ModelFiles files_beside(const fs::path& model) {
  if (model.extension() == ".xml") return {model, {fs::path(model).replace_extension("bin")}};
  ModelFiles files{model, {}};
  for (const std::string& name : external_files_of(model)) files.weights.push_back(model.parent_path() / name);
  return files;
}

}  // namespace

std::string ModelFiles::fingerprint() const {
  std::vector<fs::path> all = weights;
  all.insert(all.begin(), model);
  std::string text;
  for (const fs::path& file : all) {
    std::error_code absent;
    const auto size = fs::file_size(file, absent);
    if (absent) continue;
    const auto time = static_cast<std::int64_t>(fs::last_write_time(file, absent).time_since_epoch().count());
    text += '\n' + fs::canonical(file, absent).string() + '\n' + std::to_string(size) + '\n' + std::to_string(time);
  }
  return text;
}

std::string ModelFiles::show_missing() const {
  std::string text;
  for (const fs::path& file : weights)
    if (!is_file(file)) text += "; weights file \"" + file.string() + "\" does not exist";
  return text;
}

ModelFiles find_model_files(const std::string& model) {
  std::error_code ignored;
  const fs::path path = fs::absolute(model, ignored);
  if (fs::is_directory(path, ignored))
    fail_setup("\"model\" must be an ONNX file or the .xml file of an OpenVINO IR, \"" + model + "\" is a folder");
  if (!is_file(path)) fail_setup("model file \"" + model + "\" does not exist (looked for " + path.string() + ")");
  // `model` may be a symbolic link. The weights are beside the link, as in the Hugging Face cache, where all files are
  // links, or beside its target. For ONNX models the target comes first, because OpenVINO can reject weights that are
  // links.
  const ModelFiles target = files_beside(fs::canonical(path));
  const ModelFiles given = files_beside(path);
  if (path.extension() != ".xml" && target.show_missing().empty()) return target;
  return !given.weights.empty() && given.show_missing().empty() ? given : target;
}

}  // namespace hami_openvino
