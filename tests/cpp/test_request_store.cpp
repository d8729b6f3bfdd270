// RequestStore: every function of it, and many threads at once (ci/test tsan runs these under ThreadSanitizer).
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hami/sdk/request_store.hpp"

using namespace hami;

namespace {

std::string text_of(const std::any& value) { return std::any_cast<std::string>(value); }

// Takes both locks when it goes: held by its own thread, they would never come free.
class UsesStoreWhenItGoes {
 public:
  UsesStoreWhenItGoes(RequestStore& store, int& gone) : store_(store), gone_(gone) {}
  UsesStoreWhenItGoes(const UsesStoreWhenItGoes&) = delete;
  ~UsesStoreWhenItGoes() {
    if (store_.contains("other", "key")) ++gone_;
    store_.contains("r", "a");
  }

 private:
  RequestStore& store_;
  int& gone_;
};

std::any used_when_it_goes(RequestStore& store, int& gone) {
  return std::make_shared<UsesStoreWhenItGoes>(store, gone);
}

}  // namespace

TEST_CASE("create begins a request, once") {
  RequestStore store;
  store.create("r1");
  CHECK(store.contains("r1"));
  CHECK_EQ(store.size(), 1u);
  CHECK_EQ(store.size("r1"), 0u);
  CHECK_THROWS_WITH_AS(store.create("r1"), "request \"r1\" exists already", RequestStore::AlreadyExists);
}

TEST_CASE("insert adds a value and never replaces one") {
  RequestStore store;
  CHECK_THROWS_WITH_AS(store.insert("r1", "boxes", 1), "the store has no request \"r1\"", RequestStore::NotFound);
  store.create("r1");
  store.insert("r1", "boxes", std::string("first"));
  CHECK_THROWS_WITH_AS(store.insert("r1", "boxes", std::string("second")), "request \"r1\" has a key \"boxes\" already",
                       RequestStore::AlreadyExists);
  CHECK_EQ(text_of(store.at("r1", "boxes")), "first");
}

TEST_CASE("insert_or_assign says whether it added") {
  RequestStore store;
  CHECK_THROWS_AS(store.insert_or_assign("r1", "boxes", 1), RequestStore::NotFound);
  store.create("r1");
  CHECK(store.insert_or_assign("r1", "boxes", std::string("first")));
  CHECK_FALSE(store.insert_or_assign("r1", "boxes", std::string("second")));
  CHECK_EQ(text_of(store.at("r1", "boxes")), "second");
}

TEST_CASE("get is empty if only the key is absent") {
  RequestStore store;
  CHECK_THROWS_WITH_AS(store.get("r1", "boxes"), "the store has no request \"r1\"", RequestStore::NotFound);
  store.create("r1");
  CHECK_FALSE(store.get("r1", "boxes").has_value());
  store.insert("r1", "boxes", 4);
  CHECK_EQ(std::any_cast<int>(*store.get("r1", "boxes")), 4);
}

TEST_CASE("at and take want the key to be there; take erases it") {
  RequestStore store;
  store.create("r1");
  CHECK_THROWS_WITH_AS(store.at("r1", "boxes"), "request \"r1\" has no key \"boxes\"", RequestStore::NotFound);
  CHECK_THROWS_AS(store.at("r2", "boxes"), RequestStore::NotFound);
  store.insert("r1", "boxes", 4);
  CHECK_EQ(std::any_cast<int>(store.take("r1", "boxes")), 4);
  CHECK_FALSE(store.contains("r1", "boxes"));
  CHECK_THROWS_WITH_AS(store.take("r1", "boxes"), "request \"r1\" has no key \"boxes\"", RequestStore::NotFound);
  CHECK_THROWS_AS(store.take("r2", "boxes"), RequestStore::NotFound);
}

TEST_CASE("erase and remove say whether there was something") {
  RequestStore store;
  CHECK_THROWS_AS(store.erase("r1", "boxes"), RequestStore::NotFound);
  store.create("r1");
  store.insert("r1", "boxes", 4);
  CHECK(store.erase("r1", "boxes"));
  CHECK_FALSE(store.erase("r1", "boxes"));
  CHECK(store.remove("r1"));
  CHECK_FALSE(store.remove("r1"));
  CHECK_FALSE(store.contains("r1"));
  CHECK_FALSE(store.contains("r1", "boxes"));
}

TEST_CASE("keys, size and for_each show one request") {
  RequestStore store;
  for (const char* id : {"r1", "r2"}) store.create(id);
  store.insert("r1", "a", std::string("1"));
  store.insert("r1", "b", std::string("2"));
  std::vector<std::string> names;
  for (const RequestStore::Key& key : store.keys("r1")) names.push_back(*key.text());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"a", "b"});
  CHECK_EQ(store.size(), 2u);
  CHECK_EQ(store.size("r1"), 2u);
  CHECK_EQ(store.keys("r2").size(), 0u);
  std::map<std::string, std::string> seen;
  store.for_each("r1",
                 [&](const RequestStore::Key& key, const std::any& value) { seen[*key.text()] = text_of(value); });
  CHECK(seen == std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}});
  CHECK_THROWS_AS(store.keys("r3"), RequestStore::NotFound);
  CHECK_THROWS_AS(store.size("r3"), RequestStore::NotFound);
  CHECK_THROWS_AS(store.for_each("r3", [](const auto&, const auto&) {}), RequestStore::NotFound);
}

TEST_CASE("for_each sees a snapshot, and its function may use the store") {
  RequestStore store;
  store.create("r1");
  store.insert("r1", "a", 1);
  store.insert("r1", "b", 2);
  int sum = 0;
  store.for_each("r1", [&](const RequestStore::Key& key, const std::any& value) {
    sum += std::any_cast<int>(value);
    store.erase("r1", key);
    store.insert_or_assign("r1", "c", 100);
    if (sum == 3) store.remove("r1");
  });
  CHECK_EQ(sum, 3);
  CHECK_FALSE(store.contains("r1"));
}

TEST_CASE("clear ends all requests") {
  RequestStore store;
  for (int id = 0; id < 5; ++id) store.create(id);
  store.clear();
  CHECK_EQ(store.size(), 0u);
  store.create(1);  // the names are free
}

TEST_CASE("responses are kept by number: req_id -> resp_id -> value") {
  RequestStore store;
  store.create(7);
  for (int resp_id = 0; resp_id < 3; ++resp_id) store.insert(7, resp_id, resp_id * 10);
  CHECK_EQ(std::any_cast<int>(store.at(7, 2)), 20);
  CHECK_THROWS_WITH(store.at(7, 9), "request 7 has no key 9");
}

TEST_CASE("a number and its text are two ids") {
  RequestStore store;
  store.create(7);
  store.create("7");
  store.insert(7, 1, std::string("number"));
  store.insert(7, "1", std::string("text"));
  CHECK_EQ(text_of(store.at(std::int64_t{7}, std::uint8_t{1})), "number");
  CHECK_EQ(text_of(store.at(7, std::string_view("1"))), "text");
  CHECK_EQ(store.size("7"), 0u);
  CHECK(StoreId(7) != StoreId("7"));
}

TEST_CASE("a value is destroyed under no lock") {
  RequestStore store;
  int gone = 0;
  store.create("other");
  store.insert("other", "key", 1);
  store.create("r");
  store.insert("r", "a", used_when_it_goes(store, gone));
  store.insert_or_assign("r", "a", used_when_it_goes(store, gone));
  CHECK_EQ(gone, 1);
  store.erase("r", "a");
  CHECK_EQ(gone, 2);
  store.insert("r", "a", used_when_it_goes(store, gone));
  CHECK_THROWS_AS(store.insert("r", "a", used_when_it_goes(store, gone)), RequestStore::AlreadyExists);
  CHECK_EQ(gone, 3);
  store.remove("r");
  CHECK_EQ(gone, 4);
  store.create("r");
  store.insert("r", "a", used_when_it_goes(store, gone));
  store.take("r", "a");
  CHECK_EQ(gone, 5);
}

TEST_CASE("many threads create, insert, read, visit, take and remove the same few requests") {
  constexpr int kThreads = 6, kRounds = 400, kRequests = 3, kKeys = 4;
  RequestStore store;
  std::atomic<long> wrong{0}, read{0};
  const auto check = [&](const std::any& value, int id) {
    ++read;
    wrong += *std::any_cast<std::shared_ptr<int>>(value) != id;  // each value tells which request it belongs to
  };
  const auto one_round = [&](int id, int key, int what) {
    switch (what) {
      case 0: store.create(id); break;
      case 1: store.insert(id, key, std::make_shared<int>(id)); break;
      case 2: store.insert_or_assign(id, key, std::make_shared<int>(id)); break;
      case 3:
        if (const auto value = store.get(id, key)) check(*value, id);
        break;
      case 4: store.for_each(id, [&](const auto&, const std::any& value) { check(value, id); }); break;
      case 5: check(store.take(id, key), id); break;
      case 6: store.erase(id, key); break;
      case 7: store.keys(id); break;
      case 8: store.contains(id, key); break;
      case 9: store.remove(id); break;
      default: store.size(); break;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      unsigned dice = 12345u + static_cast<unsigned>(t);
      const auto roll = [&](int sides) {
        dice = dice * 1664525u + 1013904223u;
        return static_cast<int>(dice >> 16) % sides;
      };
      for (int i = 0; i < kRounds; ++i) {
        const int id = roll(kRequests), key = roll(kKeys), what = roll(11);
        try {
          one_round(id, key, what);
        } catch (const RequestStore::NotFound&) {
        } catch (const RequestStore::AlreadyExists&) {
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
  CHECK_GT(read.load(), 0);
  CHECK_LE(store.size(), static_cast<std::size_t>(kRequests));
}

TEST_CASE("remove while others read is safe: a reader gets the whole value or NotFound") {
  RequestStore store;
  std::atomic<bool> stop{false};
  std::atomic<long> torn{0}, removed{0};
  const std::string whole(1000, 'x');
  std::vector<std::thread> readers;
  for (int t = 0; t < 3; ++t)
    readers.emplace_back([&] {
      while (!stop) {
        try {
          if (const auto value = store.get("r", "k")) torn += text_of(*value) != whole;
          store.for_each("r", [&](const auto&, const std::any& value) { torn += text_of(value) != whole; });
        } catch (const RequestStore::NotFound&) {
        }
      }
    });
  for (int i = 0; i < 500; ++i) {
    store.create("r");
    store.insert("r", "k", whole);
    removed += store.remove("r");
  }
  stop = true;
  for (std::thread& thread : readers) thread.join();
  CHECK_EQ(torn.load(), 0);
  CHECK_EQ(removed.load(), 500);
}

TEST_CASE("of many threads that create, insert or take one thing, one succeeds") {
  for (int round = 0; round < 50; ++round) {
    RequestStore store;
    std::atomic<int> created{0}, inserted{0}, taken{0};
    const auto race = [](std::atomic<int>& count, auto&& action) {
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
          try {
            action();
            ++count;
          } catch (const std::logic_error&) {
          }
        });
      for (std::thread& thread : threads) thread.join();
    };
    race(created, [&] { store.create("r"); });
    race(inserted, [&] { store.insert("r", "k", 1); });
    race(taken, [&] { store.take("r", "k"); });
    CHECK_EQ(created.load(), 1);
    CHECK_EQ(inserted.load(), 1);
    CHECK_EQ(taken.load(), 1);
  }
}

TEST_CASE("KVStorage is its other name") { CHECK(std::is_same_v<KVStorage, RequestStore>); }
