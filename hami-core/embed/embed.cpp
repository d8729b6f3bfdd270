// Behind hami/embed.h: the core's pipes for a program that has no Python.
#include "hami/embed.h"

#include "value/visible.hpp"
#include "pipe/pipe_state.hpp"
#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"
#include "plugin/library.hpp"
#include "registry/registry.hpp"

struct hami_pipe {
  std::shared_ptr<hami::PipeState> state;
};

namespace hami {
namespace {

constexpr Nanoseconds kPatience = 10'000'000'000;

Value texts(const std::vector<std::string>& items) { return make_list({items.begin(), items.end()}); }

// A dict in a table of a node is a sub-table: its keys are the table's, with its name before them.
void add_keys(PipeConfig::Section& section, const MapObject& table, const std::string& prefix) {
  for (const auto& [key, value] : table.entries()) {
    if (value.kind() == Kind::kDict)
      add_keys(section, value.as_dict(), prefix + key + ".");
    else
      section.keys.emplace_back(prefix + key, value);
  }
}

PipeConfig::Section section_of(const std::string& name, const MapObject& table) {
  PipeConfig::Section section{name, {}};
  add_keys(section, table, "");
  return section;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kConfig, why); }

PipeConfig config_of(const Value& given) {
  PipeConfig config;
  if (given.kind() == Kind::kStr) {
    config.nodes.push_back({"default", {{"backend", given}}});
    return config;
  }
  if (given.kind() != Kind::kDict) refuse("a pipe is made of an expression or a dict of nodes, got " + type_name(given));
  for (const auto& [name, value] : given.as_dict().entries()) {
    if (name == "entrypoint")
      config.entrypoint = value.as_text();
    else if (name == "dag_entrypoint")
      config.dag_entrypoint = value.as_text();
    else if (value.kind() != Kind::kDict)
      refuse("at the top level stand nodes, each a dict of its keys; " + in_quotes(name) + " is " + type_name(value));
    else if (name == "global")
      config.global = section_of(name, value.as_dict());
    else if (name == "providers")
      for (const auto& [backend, owner] : value.as_dict().entries()) config.providers[backend] = owner.as_text();
    else
      config.nodes.push_back(section_of(name, value.as_dict()));
  }
  return config;
}

std::shared_ptr<PipeState> build(const PipeConfig& config) {
  register_core();
  try {
    return PipeState::build(config);
  } catch (const PlanProblems& found) {
    if (found.problems.size() == 1) throw found.problems[0];
    std::string text = std::to_string(found.problems.size()) + " problems in the configuration";
    for (const Error& problem : found.problems) text += "\n\n" + problem.message();
    refuse(text);
  }
}

std::vector<Dict> request_of(const hami_value& raw) {
  const Value given = borrow(raw);
  if (given.kind() != Kind::kDict)
    throw Error(ErrorCode::kDataType, "a request is a dict, got " + type_name(given));
  std::vector<Dict> requests(1);
  for (const auto& [key, value] : given.as_dict().entries()) requests[0].enter(key, value);
  return requests;
}

Value answer_of(const Call& call) {
  if (const Error* error = call.error(0)) throw *error;
  std::vector<std::pair<std::string, Value>> entries;
  for (const Dict::Entry& entry : call.dict(0)) entries.emplace_back(std::string(std::string_view(entry.key)), entry.value);
  return make_dict(std::move(entries));
}

void tell(const Call& call, hami_done done, void* data) noexcept {
  Value answer;
  hami_error* const error = guarded([&] { answer = answer_of(call); });
  hami_value raw;
  std::memcpy(&raw, static_cast<const void*>(&answer), sizeof raw);
  done(data, error, &raw);
}

}  // namespace
}  // namespace hami

using namespace hami;

const hami_host* hami_embedded_host() { return &host_table(); }

hami_error* hami_load_plugin(const char* path, hami_value* names) {
  return guarded([&] {
    register_core();
    std::string place = path;
    if (place.find('/') == std::string::npos) place = "./" + place;
    std::vector<std::string> known;
    try {
      for (const ClassPtr& cls : load_library(place, "").classes) {
        Registry::instance().define(cls);
        known.push_back(cls->name);
      }
    } catch (const AbiRefused& refused) {
      throw Error(ErrorCode::kPlugin, "the plugin " + in_quotes(place, 200) + " " + refused.what());
    }
    *names = release_to_abi(texts(known));
  });
}

hami_error* hami_pipe_new(const hami_value* config, hami_pipe** out) {
  return guarded([&] { *out = new hami_pipe{build(config_of(borrow(*config)))}; });
}

hami_error* hami_pipe_call(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_value* out) {
  return guarded([&] {
    const Ref<Call> call = pipe->state->run(request_of(*request), timeout);
    *out = release_to_abi(answer_of(*call));
  });
}

hami_error* hami_pipe_submit(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_done done, void* data) {
  return guarded([&] {
    pipe->state->start(request_of(*request), timeout, InlinePolicy::kNonBlocking,
                       [done, data](Call& call) { tell(call, done, data); });
  });
}

hami_error* hami_pipe_close(hami_pipe* pipe, int64_t patience, hami_value* abandoned) {
  return guarded([&] { *abandoned = release_to_abi(texts(pipe->state->close(patience))); });
}

void hami_pipe_free(hami_pipe* pipe) {
  if (!pipe->state->closed()) host_table().error_free(guarded([&] { pipe->state->close(kPatience); }));
  delete pipe;
}
