// Implements hami/embed.h: pipes for C and C++ programs without Python.
#include "plugin/api.hpp"  // before hami/embed.h, which includes hami/abi.h

#include "hami/embed.h"
#include "pipe/api.hpp"
#include "registry/api.hpp"

struct hami_pipe {
  std::shared_ptr<hami::PipeState> state;
};

namespace hami {
namespace {

Value texts(const std::vector<std::string>& items) { return make_list({items.begin(), items.end()}); }

// Flattens sub-tables: a dict under the key "a" of a node adds keys that start with "a.".
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

[[noreturn]] void throw_config_error(const std::string& message) { throw Error(ErrorCode::kConfig, message); }

PipeConfig config_of(const Value& given) {
  PipeConfig config;
  if (given.kind() == Kind::kStr) {
    config.nodes.push_back({"default", {{"backend", given}}});
    return config;
  }
  if (given.kind() != Kind::kDict)
    throw_config_error("a pipe takes an expression or a dict of nodes, got " + type_name(given));
  for (const auto& [name, value] : given.as_dict().entries()) {
    if (name == "entrypoint")
      config.entrypoint = value.as_text();
    else if (name == "dag_entrypoint")
      config.dag_entrypoint = value.as_text();
    else if (value.kind() != Kind::kDict)
      throw_config_error("each top-level entry must be a node, which is a dict of its keys; " + in_quotes(name) +
                         " is " + type_name(value));
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
    throw_config_error(text);
  }
}

std::vector<Dict> request_of(const hami_value& raw) {
  const Value given = borrow(raw);
  if (given.kind() != Kind::kDict)
    throw Error(ErrorCode::kDataType, "a request must be a dict, got " + type_name(given));
  std::vector<Dict> requests(1);
  for (const auto& [key, value] : given.as_dict().entries()) requests[0].enter(key, value);
  return requests;
}

Value response_of(const Call& call) {
  if (const Error* error = call.error(0)) throw *error;
  std::vector<std::pair<std::string, Value>> entries;
  for (const Dict::Entry& entry : call.dict(0))
    entries.emplace_back(std::string(std::string_view(entry.key)), entry.value);
  return make_dict(std::move(entries));
}

void complete(const Call& call, hami_done done, void* data) noexcept {
  Value response;  // owned here: `done` borrows it
  hami_error* const error = catch_error([&] { response = response_of(call); });
  hami_value raw;
  std::memcpy(&raw, static_cast<const void*>(&response), sizeof raw);
  done(data, error, &raw);
}

}  // namespace
}  // namespace hami

using namespace hami;

const hami_host* hami_embedded_host() { return &host_table(); }

hami_error* hami_load_plugin(const char* path, hami_value* names) {
  return catch_error([&] {
    register_core();
    std::string file = path;
    if (file.find('/') == std::string::npos) file = "./" + file;  // otherwise dlopen searches the system's folders
    std::vector<std::string> defined;
    try {
      for (const ClassPtr& cls : load_library(file, "").classes) {
        Registry::instance().define(cls);
        defined.push_back(cls->name);
      }
    } catch (const IncompatibleAbi& mismatch) {
      throw Error(ErrorCode::kPlugin, "the plugin " + in_quotes(file, 200) + " " + mismatch.what());
    }
    *names = release_to_abi(texts(defined));
  });
}

hami_error* hami_pipe_new(const hami_value* config, hami_pipe** out) {
  return catch_error([&] { *out = new hami_pipe{build(config_of(borrow(*config)))}; });
}

hami_error* hami_pipe_call(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_value* out) {
  return catch_error([&] {
    const Ref<Call> call = pipe->state->run(request_of(*request), timeout);
    *out = release_to_abi(response_of(*call));
  });
}

hami_error* hami_pipe_submit(hami_pipe* pipe, const hami_value* request, int64_t timeout, hami_done done, void* data) {
  return catch_error([&] {
    pipe->state->start(request_of(*request), timeout, InlinePolicy::kNonBlocking,
                       [done, data](Call& call) { complete(call, done, data); });
  });
}

hami_error* hami_pipe_close(hami_pipe* pipe, int64_t timeout, hami_value* abandoned) {
  return catch_error([&] { *abandoned = release_to_abi(texts(pipe->state->close(timeout))); });
}

void hami_pipe_free(hami_pipe* pipe) {
  if (!pipe->state->closed()) free_error(catch_error([&] { pipe->state->close(PipeShutdown::kCloseTimeout); }));
  delete pipe;
}
