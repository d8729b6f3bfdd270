// The keys of a request that hold the inputs and outputs of a model: `data` and `result`, or keys by the model's names.
// The package hami_tensor.model_keys has the same rules for engines in Python.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hami/backend.hpp"

namespace hami {

// Keys that mean something else to the core: no output is set under these names.
inline constexpr std::string_view kReservedKeys[] = {"data",     "result",  "node_name", "event",  "request_size",
                                                     "req_id",   "context", "state",     "finish", "priority",
                                                     "deadline", "timeout", "parts"};

inline std::string show_keys(const std::vector<std::string>& keys) {
  std::string text = "[";
  for (const std::string& key : keys) text += (text.size() > 1 ? ", \"" : "\"") + key + "\"";
  return text + "]";
}

// Where the inputs of a model are in its requests.
class ModelKeys {
 public:
  ModelKeys() = default;
  // `chosen` is the parameter `inputs` of the backend `owner`: all inputs are read from the keys of these names. Without it,
  // a request has all inputs in `data`, or else each in the key of its name. Error(HAMI_FAILED_PRECONDITION) if `chosen` has
  // another name than those of the inputs, or lacks a required one.
  ModelKeys(std::string owner, std::vector<std::string> required, std::vector<std::string> optional,
            const std::vector<std::string>& chosen)
      : owner_(std::move(owner)), required_(std::move(required)), optional_(std::move(optional)) {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    is_chosen_ = !chosen.empty();
    has_data_input_ = required_.size() > 1 && has(required_, "data");
    if (!is_chosen_) return;
    for (const std::string& name : chosen)
      if (!has(required_, name) && !has(optional_, name)) reject(chosen);
    for (const std::string& name : required_)
      if (!has(chosen, name)) reject(chosen);
    optional_.erase(
        std::remove_if(optional_.begin(), optional_.end(), [&](const std::string& name) { return !has(chosen, name); }),
        optional_.end());
  }

  // Returns `data`, or a dict of the inputs by name. Error(HAMI_REQUEST) names the keys that are missing.
  Value data_of(const Dict& request) const {
    if (is_chosen_) return by_name(request);
    if (std::optional<Value> data = request.find("data")) {
      const bool is_one_input = has_data_input_ && data->kind() != HAMI_DICT && missing_in(request).empty();
      if (!is_one_input) return *std::move(data);
    }
    return by_name(request);
  }

 private:
  std::vector<std::string> missing_in(const Dict& request) const {
    std::vector<std::string> missing;
    for (const std::string& name : required_)
      if (!request.contains(name)) missing.push_back(name);
    return missing;
  }

  Value by_name(const Dict& request) const {
    const std::vector<std::string> missing = missing_in(request);
    if (!missing.empty()) {
      const bool lacks_all = !is_chosen_ && missing.size() == required_.size();
      const std::string what =
          lacks_all ? "the request has no key \"data\", and none of the model's inputs " + show_keys(required_)
                    : "the model has the inputs " + show_keys(required_) + ", of which the request lacks " +
                          show_keys(missing);
      throw Error(HAMI_REQUEST, owner_ + ": " + what + "; its keys are " + show_keys(request.keys()));
    }
    std::vector<std::pair<std::string, Value>> values;
    for (const std::string& name : required_) values.emplace_back(name, request.get(name));
    for (const std::string& name : optional_)
      if (std::optional<Value> value = request.find(name)) values.emplace_back(name, *std::move(value));
    return Value::dict(values);
  }

  [[noreturn]] void reject(const std::vector<std::string>& chosen) const {
    const std::string may = optional_.empty() ? "" : ", and may name " + show_keys(optional_);
    throw Error(HAMI_FAILED_PRECONDITION, owner_ + ": \"inputs\" must name all inputs of the model, " +
                                              show_keys(required_) + may + "; got " + show_keys(chosen));
  }

  std::string owner_;
  std::vector<std::string> required_;
  std::vector<std::string> optional_;
  bool is_chosen_ = false;
  bool has_data_input_ = false;  // beside others: `data` may be this one or all of them
};

// Sets `result`: the value of the only output, or a dict by output name. The outputs in a dict also become keys of the
// request, unless their name is reserved.
inline void give_result(const Dict& request, const Value& result) {
  request["result"] = result;
  if (result.kind() != HAMI_DICT) return;
  for (const auto& [name, value] : result.as_dict())
    if (!name.empty() && std::find(std::begin(kReservedKeys), std::end(kReservedKeys), name) == std::end(kReservedKeys))
      request[name] = value;
}

}  // namespace hami
