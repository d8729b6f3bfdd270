// The messages ModelInferRequest and ModelInferResponse of open_inference.proto, read and written without protobuf.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "answer.hpp"
#include "body.hpp"
#include "inference.hpp"
#include "models.hpp"

namespace hami_serve {

struct GrpcInference {
  ModelPtr model;
  Inference inference;  // `all_binary`: its inputs are raw contents, and so are its outputs
};

// Where the first raw contents of a request are; 0: not in these first bytes of its message.
std::size_t raw_start(std::string_view first) noexcept;

// Whether `read_message` takes long, and has to run on a thread without connections.
bool is_long_to_read(const Body& body) noexcept;

// Reads a request. Nothing: it is wrong, or has something that only the server in Python reads or reports. Raw contents stay in
// the body.
std::optional<GrpcInference> read_message(const std::shared_ptr<Body>& body, const Table& table);

// The bytes at most of typed contents and of BF16 in an answer that takes long: if there are any, `render_message` has to run on
// a thread without connections.
std::int64_t size_of_long_message(const Model& model, const Inference& inference, const Keys& keys);

// The message of an answer, with the prefix of gRPC. Nothing: a value has another form than native code renders.
std::optional<Answer> render_message(const Model& model, const Inference& inference, const Keys& keys);

// The prefix of gRPC for a message that is not compressed.
void put_prefix(char* five, std::size_t size) noexcept;

}  // namespace hami_serve
