// A backend before it is built: its class, and the plan of one use of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "lang/api.hpp"

namespace hami {

// BackendClass: what the registry knows about a backend: parameters, brackets, traits, factory.
struct Expr;
struct Plan;
class PlanContext;

// Which instances a planned backend registers and calls by name, so that a wrong name is found before anything is built.
inline constexpr const char* kInstanceNum = "instance_num";  // the parameter of a class that makes copies

class NameDeclarations {
 public:
  static constexpr std::int64_t kAnyCount = INT64_MAX;  // known only when the pipe is built

  virtual ~NameDeclarations() = default;
  virtual const std::string& node() const = 0;                                       // the node that is being planned
  virtual void register_node() = 0;                                                  // node.<node>
  virtual void register_instances(const std::string& node, std::int64_t count) = 0;  // <node>.<i>
  virtual void call(const std::string& name) = 0;
  virtual void call_all_nodes() = 0;
};

const char* thread_mode_name(ThreadMode thread) noexcept;  // "dedicated", "serialized", "concurrent"
std::optional<ThreadMode> thread_mode_of(std::string_view name) noexcept;

// The parameter of a class that absorbs others; false: it does not.
inline constexpr const char* kFuse = "fuse";

enum class ItemKind {
  kBackend,   // an expression, a name bound by an enclosing IoC, or an instance
  kInstance,  // the name of an instance
  kKey,       // the name of a parameter
};

struct Phase {
  static constexpr std::size_t kMany = SIZE_MAX;
  std::size_t min = 1;
  std::size_t max = 1;
  ItemKind kind = ItemKind::kBackend;
  std::vector<std::string> when = {};  // the words allowed in "(…)" before an item; kAnyWord: any
  static constexpr const char* kAnyWord = "*";
};

struct Brackets {
  bool required = false;
  std::vector<Phase> phases = {};  // empty: takes no brackets
};

std::string show_brackets(const Brackets& brackets);  // for users: "[backend, …; backend]"

// How the core chooses between a class and those of its name for devices (BackendClass::device).
enum class DeviceChoice {
  kNone,         // always this class
  kEachRequest,  // by where the `data` of each request lies
  kWholeBatch,   // the same; all requests of a batch must lie on one device
  kEngine,       // the same as kEachRequest, and data in CPU memory goes to the device of the instance's engine
};

struct BackendClass {
  std::string name;
  std::vector<std::string> aliases = {};
  std::string owner = "hami-core";  // the distribution; empty: registered by this process
  std::string doc;                  // its first line says what it does
  std::string range = {};           // for users: how many items one forward takes; empty: any number
  std::vector<ParamSpec> params = {};
  Brackets brackets = {};
  Traits traits = {};
  DeviceChoice by_device = DeviceChoice::kNone;
  // The kind of device, "cuda", for which this class implements its name; empty: it is the backend of that name.
  std::string device = {};
  std::function<BackendPtr()> create = {};

  bool uses_python = false;     // its calls hold the GIL
  bool free_args = false;       // accepts any arguments: Add(k=v, …)
  bool takes_all_keys = false;  // its parameters are all keys of the node, and any named arguments
  bool is_instance = false;     // Forward[name] means this class, which represents one object of the program
  bool reads_settings = false;  // may have key=value among its bracket items
  bool schedules = false;       // allowed only in a node's init expression
  bool owns_threads = false;    // provides the threads of its children
  bool outlines_items = false;  // its items are planned and not built: another process builds them from their outlines
  // The container in which a use runs that is not in one with outlines_items, as if it were written X[use]; empty: none.
  std::string runs_in = {};
  bool makes_copies = false;  // builds `instance_num` copies of its item; "auto" reaches it only if that is lightweight
  bool binds_names = false;   // the items of its first phase are visible in all later ones
  bool runs_in_order = false;  // its items run one after another, so that one may absorb the next
  // Classes of its owner: a backend of one of them that directly follows one of this class is absorbed, see Backend::absorb.
  std::vector<std::string> absorbs = {};
  // The backend in its brackets where it is written without them, if it is installed; empty: none.
  std::string default_child = {};
  // The reason why a backend that is copied must not contain it, and what to do instead; empty: it may.
  std::string refuses_copies = {};
  // The key of a node whose value makes this class wrap the node's backend: Class[value, backend]. Empty: none does.
  std::string wraps_nodes_with = {};
  // The key for one more item, Class[value, backend, item]: an expression, "skip" for the backend Skip, or "pass" for none.
  std::string wraps_nodes_otherwise = {};
  // Declares the names that a planned use registers and calls. Empty: it does neither.
  std::function<void(const Plan& plan, NameDeclarations& names)> declare_names = {};
  // Replaces the expression by another one when the pipe is planned (Reflect).
  std::function<Plan(PlanContext& context, const Expr& expr)> expand = {};
};

using ClassPtr = std::shared_ptr<const BackendClass>;

// Plan: a checked expression before it is built: every name is resolved, every parameter is read.
struct GeneratedBody;
struct PlanItem;

struct Plan {
  ClassPtr cls;  // null: `binding` or `instance` refers to an existing backend
  Params params;
  std::vector<Arg> args;  // of a class with free_args
  std::vector<std::vector<PlanItem>> phases;
  std::vector<Plan> absorbed;  // backends whose work this one does too, in their order
  std::size_t binding = 0;     // > 0: the number of a backend that an enclosing IoC binds
  std::string instance;        // the name of a registered instance
  Traits traits;               // its own combined with those of its children
  std::string label;           // the name as written, for messages; with the names of those that it absorbed
  std::string absent_child;  // why the plugin of its default child could not be loaded; empty: it was, or there is none
};

struct PlanItem {
  std::vector<Arg> when;
  std::size_t binding = 0;     // > 0: the number by which later phases refer to this item
  std::string text;            // of an instance or a key
  std::unique_ptr<Plan> plan;  // of a backend

  bool says(const char* word) const {
    for (const Arg& arg : when)
      if (arg.key.empty() && arg.value == word) return true;
    return false;
  }
};

// A plan as text, from which another process plans the same: every parameter is written out.
struct Outline {
  std::string expression;
  std::vector<std::pair<std::string, Value>> keys;  // of its node: parameters that an expression cannot give
  std::vector<std::string> local;                   // the classes that the other process must register, by name
};

Outline outline_of(const Plan& plan);
// What a plan refers to that only this process has, for messages; empty: nothing.
std::string needed_around(const Plan& plan);

// PlanContext: what a class that expands to another expression (Reflect) can ask while its pipe is planned.
class PlanContext {
 public:
  virtual ~PlanContext() = default;
  // The value of a parameter as text, by the scopes of reference/expressions.md: the arguments of an enclosing generated
  // backend, the node, [global], the defaults of the generated backend. Empty if there is none. Counts as a use of the key.
  virtual std::string text_of(const std::string& key) = 0;
  // Whether the parameter has a value of any type. Counts as a use of the key.
  virtual bool has(const std::string& key) = 0;
  // Plans the expression that is its value; names that are bound around the expanding expression are not visible in it.
  virtual Plan plan_value(const std::string& key) = 0;
  // Plan a part of the expanding expression; a text within it.
  virtual Plan plan_expr(const Expr& expr) = 0;
  virtual Plan plan_text(const std::string& text) = 0;
  // Plans the body of a generated backend in the place of `use`, an expression that names it.
  virtual Plan plan_generated(const GeneratedBody& body, const Expr& use) = 0;
  // Counts the keys that a part would use, without planning it or reporting its errors.
  virtual void skip_expr(const Expr& expr) = 0;
  // Records that the plan calls an instance.
  virtual void call_instance(Span span, const std::string& name) = 0;
  // Reports an error at `span` of the expanding expression and continues.
  virtual void problem(Span span, const std::string& headline, const std::string& hint) = 0;
};

}  // namespace hami
