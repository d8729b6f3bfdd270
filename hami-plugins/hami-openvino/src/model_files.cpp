// Finds the weights of an IR by their name, and those of an ONNX model by the file names in its protobuf.
#include "model_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
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

enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

struct WireField {
  std::uint64_t number;
  bool is_message;           // or text: it has a length
  std::string_view content;  // without the number and the length
  std::string_view whole;
};

bool read_varint(std::string_view& data, std::uint64_t& number) {
  for (unsigned shift = 0; shift < 64 && !data.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(data.front());
    data.remove_prefix(1);
    number |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
    if (byte < 0x80u) return true;
  }
  return false;
}

// Takes the first field away from the data of a message.
std::optional<WireField> read_field(std::string_view& data) {
  const std::string_view start = data;
  std::uint64_t tag = 0;
  std::uint64_t length = 0;
  if (!read_varint(data, tag)) return std::nullopt;
  switch (tag & 7u) {
    case kVarint: {
      std::uint64_t value = 0;
      if (!read_varint(data, value)) return std::nullopt;
      break;
    }
    case kFixed64: length = 8; break;
    case kFixed32: length = 4; break;
    case kLengthDelimited:
      if (!read_varint(data, length)) return std::nullopt;
      break;
    default: return std::nullopt;
  }
  if (length > data.size()) return std::nullopt;
  const std::string_view content = data.substr(0, length);
  data.remove_prefix(length);
  return WireField{tag >> 3u, (tag & 7u) == kLengthDelimited, content, start.substr(0, start.size() - data.size())};
}

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
  bool scan_message(std::string_view data, Message message, int depth) {
    if (depth > kMaxDepth) return false;
    std::string_view key;
    std::string_view value;
    while (!data.empty()) {
      const std::optional<WireField> field = read_field(data);
      if (!field) return false;
      if (!field->is_message) continue;
      if (message == Message::kExternalData) (field->number == 1 ? key : value) = field->content;
      for (const Field& known : kFields)
        if (known.parent == message && known.number == field->number &&
            !scan_message(field->content, known.child, depth + 1))
          return false;
    }
    if (key == "location") found_.emplace(value);
    return true;
  }

  std::set<std::string> found_;
};

// Puts the weights of files into the model.
class WeightsWriter {
 public:
  explicit WeightsWriter(fs::path folder) : folder_(std::move(folder)) {}

  // Returns nothing if the data are not valid, if a file cannot be read, or if the result is too large for protobuf.
  std::optional<std::string> rewrite(std::string_view data, Message message = Message::kModel, int depth = 0) const {
    if (depth > kMaxDepth) return std::nullopt;
    std::string written;
    std::map<std::string, std::string> external;
    while (!data.empty()) {
      const std::optional<WireField> field = read_field(data);
      if (!field) return std::nullopt;
      const auto child = std::find_if(kFields.begin(), kFields.end(), [&](const Field& known) {
        return field->is_message && known.parent == message && known.number == field->number;
      });
      if (child == kFields.end()) {
        if (message != Message::kTensor || field->number != kDataLocation) written += field->whole;
      } else if (child->child == Message::kExternalData) {
        if (!read_entry(field->content, external)) return std::nullopt;
      } else {
        const std::optional<std::string> content = rewrite(field->content, child->child, depth + 1);
        if (!content) return std::nullopt;
        write_bytes(written, field->number, *content);
      }
    }
    if (!external.empty()) {
      const std::optional<std::string> weights = read_weights(external);
      if (!weights) return std::nullopt;
      write_bytes(written, kRawData, *weights);
    }
    if (written.size() > kMostBytes) return std::nullopt;
    return written;
  }

 private:
  static constexpr std::uint64_t kRawData = 9;  // fields of TensorProto
  static constexpr std::uint64_t kDataLocation = 14;
  static constexpr std::size_t kMostBytes = (1u << 31u) - 1;

  static bool read_entry(std::string_view data, std::map<std::string, std::string>& external) {
    std::string key;
    std::string value;
    while (!data.empty()) {
      const std::optional<WireField> field = read_field(data);
      if (!field) return false;
      (field->number == 1 ? key : value) = field->content;
    }
    external[key] = value;
    return true;
  }

  std::optional<std::string> read_weights(const std::map<std::string, std::string>& external) const {
    const auto number = [&](const char* key, std::uintmax_t fallback) {
      const auto found = external.find(key);
      std::uintmax_t value = fallback;
      if (found != external.end()) std::istringstream(found->second) >> value;
      return value;
    };
    const auto location = external.find("location");
    if (location == external.end()) return std::nullopt;
    const fs::path file = folder_ / location->second;
    std::error_code absent;
    const std::uintmax_t size = fs::file_size(file, absent);
    const std::uintmax_t offset = number("offset", 0);
    if (absent || offset > size) return std::nullopt;
    const std::uintmax_t length = number("length", size - offset);
    if (length > size - offset || length > kMostBytes) return std::nullopt;
    std::string content(length, '\0');
    std::ifstream stream(file, std::ios::binary);
    if (!stream.seekg(static_cast<std::streamoff>(offset)) ||
        !stream.read(content.data(), static_cast<std::streamsize>(length)))
      return std::nullopt;
    return content;
  }

  static void write_bytes(std::string& to, std::uint64_t number, const std::string& content) {
    write_varint(to, number << 3u | kLengthDelimited);
    write_varint(to, content.size());
    to += content;
  }
  static void write_varint(std::string& to, std::uint64_t number) {
    for (; number >= 0x80u; number >>= 7u) to += static_cast<char>(0x80u | (number & 0x7fu));
    to += static_cast<char>(number);
  }

  fs::path folder_;
};

// Maps the file: most of a large model is weights, which the scanner skips and which are then not read from disk.
template <class Use>
auto with_content(const fs::path& path, Use use) -> decltype(use(std::string_view())) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const off_t size = lseek(file, 0, SEEK_END);
  void* data = size > 0 ? mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (data == MAP_FAILED) return {};
  auto found = use(std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size)));
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
  for (const std::string& name : with_content(model, ExternalDataScanner::scan))
    files.weights.push_back(model.parent_path() / name);
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

std::optional<std::string> ModelFiles::with_linked_weights() const {
  std::error_code ignored;
  const std::string folder = fs::canonical(model.parent_path(), ignored).string() + '/';
  const bool leads_out = std::any_of(weights.begin(), weights.end(), [&](const fs::path& file) {
    return fs::canonical(file, ignored).string().rfind(folder, 0) != 0;
  });
  if (model.extension() == ".xml" || !leads_out || !show_missing().empty()) return std::nullopt;
  const WeightsWriter writer(model.parent_path());
  return with_content(model, [&](std::string_view data) { return writer.rewrite(data); });
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
