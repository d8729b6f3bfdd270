// Names to classes: the order of lookup, which classes may be replaced, and the message about an unknown name.
#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

ClassPtr class_named(const std::string& name, const std::string& doc = "", std::vector<std::string> aliases = {}) {
  BackendClass cls;
  cls.name = name;
  cls.aliases = std::move(aliases);
  cls.doc = doc;
  return std::make_shared<BackendClass>(std::move(cls));
}

}  // namespace

TEST_CASE("this process comes before the finder, and a name defined again is the new one") {
  Registry registry;
  registry.add_core(class_named("Core", "", {"C"}));
  registry.define(class_named("Mine", "first"));
  registry.define(class_named("Mine", "second"));
  std::string asked;
  registry.set_finder([&](const std::string& name, const std::string& distribution, const auto& providers) {
    asked += name + "/" + distribution + "/" + (providers.count(name) ? providers.at(name) : "") + " ";
    return class_named(name, "found");
  });
  CHECK_EQ(registry.find("Mine", "", {})->doc, "second");
  CHECK_EQ(registry.find("C", "", {})->name, "Core");
  CHECK_EQ(asked, "");
  CHECK_EQ(registry.find("Other", "", {})->doc, "found");
  CHECK_EQ(registry.find("Mine", "acme", {})->doc, "found");
  CHECK_EQ(registry.find("Mine", "", {{"Mine", "acme-cv"}})->doc, "found");
  CHECK_EQ(asked, "Other// Mine/acme/ Mine//acme-cv ");
}

TEST_CASE("a name of the core cannot be taken, an alias neither names a second class") {
  Registry registry;
  registry.add_core(class_named("Core", "", {"C"}));
  CHECK_THROWS_WITH_AS(registry.define(class_named("Core")), "\"Core\" is a backend of the core; choose another name",
                       Error);
  CHECK_THROWS_WITH_AS(registry.define(class_named("C")), "\"C\" is a backend of the core; choose another name", Error);
  registry.define(class_named("Mine"));
  std::string names;
  for (const ClassPtr& cls : registry.known()) names += cls->name + " ";
  CHECK_EQ(names, "Core Mine ");
  CHECK_FALSE(registry.find_known("Nothing"));
}

TEST_CASE("without a finder a missing name shows the names near to it") {
  Registry registry;
  registry.add_core(class_named("Identity"));
  bool thrown = false;
  try {
    registry.find("Identty", "", {});
  } catch (const MissingBackend& missing) {
    thrown = true;
    CHECK(missing.code == ErrorCode::kBackendNotFound);
    CHECK_EQ(missing.headline, "backend \"Identty\" not found; did you mean Identity?");
    CHECK_EQ(missing.hint, "");
  }
  CHECK(thrown);
}

TEST_CASE("a class that is replaced goes away under no lock") {
  Registry registry;
  bool gone = false;
  // A destructor that runs when the class is removed may use the registry.
  auto held = std::shared_ptr<int>(new int, [&](int* value) {
    delete value;
    gone = true;
    CHECK(registry.find_known("Mine") != nullptr);
    registry.define(class_named("Late"));
  });
  auto cls = std::make_shared<BackendClass>();
  cls->name = "Mine";
  cls->create = [kept = held]() -> BackendPtr { return nullptr; };
  registry.define(std::move(cls));
  registry.set_finder([kept = held](const auto& name, const auto&, const auto&) { return class_named(name); });
  held.reset();
  registry.set_finder([](const auto& name, const auto&, const auto&) { return class_named(name); });
  CHECK_FALSE(gone);
  registry.define(class_named("Mine"));
  CHECK(gone);
  CHECK(registry.find_known("Late") != nullptr);
}

TEST_CASE("brackets are shown as they are written") {
  CHECK_EQ(show_brackets({true, {Phase{1, Phase::kMany}, Phase{}}}), "[backend, …; backend]");
  CHECK_EQ(show_brackets({true, {Phase{1, 2, ItemKind::kKey}}}), "[key, key?]");
  CHECK_EQ(show_brackets({true, {Phase{2, 2, ItemKind::kInstance}}}), "[instance, instance]");
  CHECK_EQ(show_brackets({}), "");
}
