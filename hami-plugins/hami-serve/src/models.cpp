// Reads the table of models, and counts their requests.
#include "models.hpp"

#include <simdjson.h>

#include <cstddef>
#include <map>
#include <new>
#include <utility>

namespace hami_serve {
namespace {

constexpr std::size_t kLatencies = 1024;  // as many as Python keeps

constexpr Datatype kDatatypes[] = {
    {"FP32", {kDLFloat, 32, 1}, 4},  {"INT64", {kDLInt, 64, 1}, 8},   {"INT32", {kDLInt, 32, 1}, 4},
    {"UINT8", {kDLUInt, 8, 1}, 1},   {"FP64", {kDLFloat, 64, 1}, 8},  {"FP16", {kDLFloat, 16, 1}, 2},
    {"INT16", {kDLInt, 16, 1}, 2},   {"INT8", {kDLInt, 8, 1}, 1},     {"BOOL", {kDLBool, 8, 1}, 1},
    {"UINT16", {kDLUInt, 16, 1}, 2}, {"UINT32", {kDLUInt, 32, 1}, 4}, {"UINT64", {kDLUInt, 64, 1}, 8},
    {"BF16", {kDLFloat, 32, 1}, 2},  {"BYTES", {kDLUInt, 8, 1}, 0},  // after the datatypes of these types
};

std::vector<Spec> specs_of(simdjson::dom::array given) {
  std::vector<Spec> specs;
  for (const simdjson::dom::element each : given) {
    Spec spec;
    spec.name = std::string(std::string_view(each["name"]));
    spec.datatype = std::string(std::string_view(each["datatype"]));
    for (const std::int64_t size : each["shape"].get_array()) spec.shape.push_back(size);
    spec.is_text = each["is_text"];
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

const Datatype* datatype_of(std::string_view name) noexcept {
  for (const Datatype& each : kDatatypes)
    if (each.name == name) return &each;
  return nullptr;
}

const Datatype* datatype_of(DLDataType type) noexcept {
  for (const Datatype& each : kDatatypes)
    if (each.type.code == type.code && each.type.bits == type.bits && type.lanes == 1) return &each;
  return nullptr;
}

const Spec* spec_of(const std::vector<Spec>& specs, std::string_view name) noexcept {
  for (const Spec& spec : specs)
    if (spec.name == name) return &spec;
  return nullptr;
}

Model::Model(std::int64_t number, hami_caller* caller) : key(number), caller_(caller) {
  counts_.latencies_ns.reserve(kLatencies);
  caller->table->retain(caller);
}

hami::Value Model::new_visits() const {
  hami::Value visits;
  const hami_caller_table& table = *caller_->table;
  if (table.struct_size < offsetof(hami_caller_table, visits_new) + sizeof table.visits_new) return visits;
  if (hami_error* const failed = table.visits_new(&visits.raw())) {
    hami::host().error_free(failed);
    throw std::bad_alloc();
  }
  return visits;
}

void Model::ended(std::int64_t nanoseconds, bool failed, std::uint64_t rows) {
  {
    const std::lock_guard lock(mutex_);
    ++counts_.calls;
    counts_.failures += failed;
    (failed ? counts_.failure_ns : counts_.success_ns) += nanoseconds;
    if (!failed) counts_.more_rows += rows - 1;
    if (counts_.latencies_ns.size() < kLatencies)
      counts_.latencies_ns.push_back(nanoseconds);  // its memory is there
    else
      counts_.latencies_ns[counts_.calls % kLatencies] = nanoseconds;
  }
  --in_flight_;
}

Counts Model::take_counts() {
  Counts taken;
  taken.latencies_ns.reserve(kLatencies);
  const std::lock_guard lock(mutex_);
  std::swap(taken, counts_);
  return taken;
}

std::shared_ptr<const Table> read_table(std::string_view json, const Table& old) {
  std::map<std::int64_t, ModelPtr> known;
  for (const auto& [path, model] : old.by_path) known[model->key] = model;
  simdjson::dom::parser parser;
  const simdjson::dom::element given = parser.parse(json.data(), json.size());
  auto table = std::make_shared<Table>();
  table->ready = given["ready"];
  table->traces = given["traces"];
  table->keeps_journal = table->traces || given["logs"];
  for (const std::string_view name : given["reserved"].get_array()) table->reserved.emplace(name);
  for (const simdjson::dom::element each : given["models"].get_array()) {
    const std::int64_t key = each["key"];
    ModelPtr& model = known[key];
    if (!model) {
      const std::uint64_t address = each["caller"];
      model = std::make_shared<Model>(key, reinterpret_cast<hami_caller*>(address));  // the Python part keeps it open
      model->name = std::string(std::string_view(each["name"]));
      model->version = std::string(std::string_view(each["version"]));
      model->inputs = specs_of(each["inputs"]);
      model->outputs = specs_of(each["outputs"]);
      model->checks_inputs = each["checks_inputs"];
      model->checks_outputs = each["checks_outputs"];
      if (const simdjson::dom::element takes = each["takes_text"]; !takes.is_null()) model->takes_text = bool(takes);
    }
    for (const std::string_view path : each["paths"].get_array()) table->by_path.emplace(path, model);
  }
  return table;
}

}  // namespace hami_serve
