// PoolTensor: makes one vector from those of the tokens of a text.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "tensors.hpp"

namespace hami_tensor {
namespace {

using Vector = std::vector<double>;  // sums of halves leave their range, and a result is rounded once

constexpr std::string_view kPooled = "sentence_embedding";  // an output of this name is pooled and normalised
constexpr std::string_view kOutputs[] = {kPooled, "last_hidden_state", "token_embeddings"};
constexpr std::string_view kMask = "attention_mask";
constexpr double kShortest = 1e-12;  // a shorter vector is divided by it, as in torch.nn.functional.normalize

// Vectors in contiguous memory, and the places of those that take part, in the order of the text.
struct Tokens {
  hami::Tensor vectors;
  std::size_t size;  // of a vector
  std::vector<std::size_t> places;

  double count() const noexcept { return static_cast<double>(places.size()); }
};

template <class Function>
void for_each_number(const Tokens& tokens, std::size_t place, Function&& function) {
  hami::with_element(tokens.vectors.dtype(), [&](auto element) {
    using Element = decltype(element);
    constexpr std::size_t kWidth = Element::kType.bits / 8;
    const char* const vector = data_of(tokens.vectors) + place * tokens.size * kWidth;
    for (std::size_t i = 0; i < tokens.size; ++i) function(i, static_cast<double>(Element::load(vector + i * kWidth)));
  });
}

Vector vector_at(const Tokens& tokens, std::size_t place) {
  Vector vector(tokens.size);
  for_each_number(tokens, place, [&](std::size_t i, double number) { vector[i] = number; });
  return vector;
}

// The sum of the vectors, divided by `divisor`. With `growing`, the first counts once, the second twice, and so on.
Vector sum(const Tokens& tokens, double divisor, bool growing = false) {
  Vector total(tokens.size);
  double weight = 1;
  for (const std::size_t place : tokens.places) {
    for_each_number(tokens, place, [&](std::size_t i, double number) { total[i] += weight * number; });
    if (growing) ++weight;
  }
  for (double& number : total) number /= divisor;
  return total;
}

// NaN is the largest number.
Vector largest(const Tokens& tokens) {
  Vector most = vector_at(tokens, tokens.places.front());
  for (const std::size_t place : tokens.places)
    for_each_number(tokens, place, [&](std::size_t i, double number) {
      if (number > most[i] || std::isnan(number)) most[i] = number;
    });
  return most;
}

struct Mode {
  std::string_view name;
  Vector (*pool)(const Tokens&);
};
constexpr Mode kModes[] = {
    {"cls", [](const Tokens& tokens) { return vector_at(tokens, tokens.places.front()); }},
    {"lasttoken", [](const Tokens& tokens) { return vector_at(tokens, tokens.places.back()); }},
    {"max", largest},
    {"mean", [](const Tokens& tokens) { return sum(tokens, tokens.count()); }},
    {"mean_sqrt_len_tokens", [](const Tokens& tokens) { return sum(tokens, std::sqrt(tokens.count())); }},
    {"weightedmean", [](const Tokens& tokens) { return sum(tokens, tokens.count() * (tokens.count() + 1) / 2, true); }},
};

void make_unit(Vector& vector) {
  double squares = 0;
  for (const double number : vector) squares += number * number;
  const double length = std::max(std::sqrt(squares), kShortest);
  for (double& number : vector) number /= length;
}

class PoolTensor final : public TensorBackend {
 private:
  struct Output {
    hami::Tensor tensor;
    bool is_pooled;  // by its name
  };

  void init_(const hami::Params& params) override {
    for (const std::string& wanted : params.get<std::vector<std::string>>("pooling")) {
      const auto is_wanted = [&](const Mode& each) { return each.name == wanted; };
      const Mode* const mode = std::find_if(std::begin(kModes), std::end(kModes), is_wanted);
      if (mode == std::end(kModes))
        throw hami::Error(HAMI_FAILED_PRECONDITION, name() + ": unknown pooling " + in_quotes(wanted));
      modes_.push_back(mode);
    }
    normalize_ = params.get<bool>("normalize");
    normalize_pooled_ = params.get<bool>("normalize_pooled");
    include_prompt_ = params.get<bool>("include_prompt");
  }

  void forward_(hami::Batch batch) override {
    for (hami::Dict& item : batch) {
      try {
        set_vector(item);
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
  }

  void set_vector(const hami::Dict& item) const {
    const Output output = output_of(item);
    const bool is_vector = output.is_pooled || output.tensor.rank() == 2;
    if (!is_vector && modes_.empty()) return;
    Vector vector = is_vector ? vector_at({contiguous(output.tensor), output.tensor.count(), {}}, 0)
                              : pooled(tokens_of(item, output.tensor));
    bool normalizes = is_vector ? normalize_pooled_ : normalize_;
    if (const std::optional<hami::Value> dimensions = item.find("dimensions"); dimensions && !dimensions->is_none()) {
      vector.resize(checked_dimensions(*dimensions, vector.size()));
      normalizes = normalizes || output.is_pooled;  // a vector of length 1 is one again after the cut
    }
    if (const std::optional<hami::Value> wanted = item.find("normalize"); wanted && !wanted->is_none())
      normalizes = wanted->as_bool();
    if (normalizes) make_unit(vector);
    const hami::Tensor made = hami::Tensor::make(hami::kFloat32, {static_cast<std::int64_t>(vector.size())});
    char* to = data_of(made);
    for (const double number : vector) {
      hami::Element<float, float, kDLFloat>::store(to, static_cast<float>(number));
      to += sizeof(float);
    }
    item[kResult] = made;
  }

  Output output_of(const hami::Dict& item) const {
    TensorItems items = read_tensors(item, name());
    std::size_t chosen = 0;
    bool is_named = false;
    for (std::size_t i = 0; i < std::size(kOutputs) && !is_named; ++i) {
      const auto found = std::find(items.keys.begin(), items.keys.end(), kOutputs[i]);
      is_named = found != items.keys.end();
      if (is_named) chosen = static_cast<std::size_t>(found - items.keys.begin());
    }
    if (!is_named && items.tensors.size() != 1)
      throw hami::Error(HAMI_REQUEST, name() + " takes a tensor or the result of a model, one of whose outputs is " +
                                          std::string(kOutputs[0]) + ", " + std::string(kOutputs[1]) + " or " +
                                          std::string(kOutputs[2]) + "; got " + items.show_form());
    const hami::Tensor& tensor = items.tensors[chosen];
    if ((tensor.rank() != 2 && tensor.rank() != 3) || tensor.view().shape[0] != 1 || !is_float(tensor.dtype()))
      throw hami::Error(HAMI_REQUEST, name() + " takes floating-point numbers [1, tokens, size] or [1, size], got " +
                                          show_tensor(tensor));
    return {tensor, is_named && items.keys[chosen] == kPooled};
  }

  Tokens tokens_of(const hami::Dict& item, const hami::Tensor& tensor) const {
    Tokens tokens{contiguous(tensor), static_cast<std::size_t>(tensor.view().shape[2]), {}};
    tokens.places = places_of(item, tensor.view().shape[1]);
    if (const std::optional<hami::Value> prompt = item.find("prompt_tokens");
        prompt && !prompt->is_none() && !include_prompt_) {
      const auto left_out =
          std::min(tokens.places.size(), static_cast<std::size_t>(std::max<std::int64_t>(0, prompt->as_int())));
      tokens.places.erase(tokens.places.begin(), tokens.places.begin() + static_cast<std::ptrdiff_t>(left_out));
    }
    if (tokens.places.empty()) throw hami::Error(HAMI_REQUEST, name() + ": the text has no tokens to pool");
    return tokens;
  }

  // The places of the tokens that the mask of the request has; without a mask, all of them.
  std::vector<std::size_t> places_of(const hami::Dict& item, std::int64_t count) const {
    std::vector<std::size_t> places;
    const std::optional<hami::Value> given = item.find(kMask);
    if (!given) {
      for (std::int64_t place = 0; place < count; ++place) places.push_back(static_cast<std::size_t>(place));
      return places;
    }
    const hami::Tensor mask = contiguous(given->as_tensor());
    const Shape shape = mask.shape();
    const bool has_row = shape.size() == 2 && shape[0] == 1;
    const bool is_integer = hami::with_element(mask.dtype(), [](auto) {}) && !is_float(mask.dtype());
    if ((shape.size() != 1 && !has_row) || shape.back() != count || !is_integer)
      throw hami::Error(HAMI_REQUEST, name() + ": the text has " + std::to_string(count) + " tokens, and " +
                                          std::string(kMask) + " is " + show_tensor(mask) + "; it must be integers [" +
                                          std::to_string(count) + "] or [1, " + std::to_string(count) + "]");
    for_each_number({mask, static_cast<std::size_t>(count), {}}, 0, [&](std::size_t place, double number) {
      if (number != 0) places.push_back(place);
    });
    return places;
  }

  Vector pooled(const Tokens& tokens) const {
    Vector joined;
    for (const Mode* mode : modes_) {
      const Vector vector = mode->pool(tokens);
      joined.insert(joined.end(), vector.begin(), vector.end());
    }
    return joined;
  }

  std::size_t checked_dimensions(const hami::Value& wanted, std::size_t size) const {
    const std::int64_t length = wanted.kind() == HAMI_INT ? wanted.as_int() : 0;
    if (length < 1 || length > static_cast<std::int64_t>(size))
      throw hami::Error(HAMI_REQUEST, name() + ": \"dimensions\" must be from 1 to " + std::to_string(size) + ", got " +
                                          (wanted.kind() == HAMI_INT ? std::to_string(length) : "another type"));
    return static_cast<std::size_t>(length);
  }

  std::vector<const Mode*> modes_;
  bool normalize_ = false;
  bool normalize_pooled_ = false;
  bool include_prompt_ = true;
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::PoolTensor, "PoolTensor",
    "pooling: list = '' 'cls, lasttoken, max, mean, mean_sqrt_len_tokens or weightedmean, or several, whose vectors are joined; "
    "without it, only a vector that is pooled already has a result'; normalize: bool = false 'divide the vector by its "
    "length'; normalize_pooled: bool = false 'also one that is pooled already'; include_prompt: bool = true 'false: the first "
    "tokens, as many as the key prompt_tokens says, are left out'",
    "Turns the vectors of the tokens of a text, [1, tokens, size], into one of float32. Sums are made in float64, in the order of the\n"
    "text. `data` is a tensor, or a dict with `sentence_embedding`, `last_hidden_state` or `token_embeddings`. A request may have\n"
    "the keys `attention_mask` (0: the token takes no part), `normalize` and `dimensions`, to which the vector is cut before\n"
    "it is normalised. A vector [1, size], or `sentence_embedding`, is pooled already.");
