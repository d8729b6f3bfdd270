// Host functions: the keys of requests, and the items of a batch.
#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"
#include "request/wait_graph.hpp"

namespace hami {

Request& request_of(const hami_dict& item) {
  if (!item.request)
    throw Error(ErrorCode::kInvalidArgument, "expected an item of a batch, got the parameters or options of a backend");
  return *item.request;
}

namespace {

// An item that a plugin created for its children.
struct OwnedItem final : hami_dict {
  Ref<Request> owned;
};

bool copy_value(const Value* found, hami_value* out) noexcept {
  if (found) *out = release_to_abi(*found);
  return found != nullptr;
}

void add_dicts(hami_host& host) {
  HAMI_HOST_ENTRY(host, dict_get, [](const hami_dict* dict, const char* key, std::size_t size, hami_value* out) {
    return copy_value(dict->keys->find(view_of(key, size)), out);
  });
  HAMI_HOST_ENTRY(host, dict_take, [](hami_dict* dict, const char* key, std::size_t size, hami_value* out) {
    const bool found = copy_value(dict->keys->find(view_of(key, size)), out);
    if (found) dict->keys->erase(view_of(key, size));
    return found;
  });
  HAMI_HOST_ENTRY(host, dict_set, [](hami_dict* dict, const char* key, std::size_t size, const hami_value* value) {
    const std::string_view name = view_of(key, size);
    check_utf8("a key", name);
    if (name == kTensorRows) {
      dict->keys->erase(name);
      dict->keys->enter(std::string(name), borrow(*value));
    } else {
      dict->keys->set(name, borrow(*value));
    }
  });
  HAMI_HOST_ENTRY(host, dict_erase, [](hami_dict* dict, const char* key, std::size_t size) {
    return dict->keys->erase(view_of(key, size));
  });
  HAMI_HOST_ENTRY(host, dict_size, [](const hami_dict* dict) { return dict->keys->size(); });
  HAMI_HOST_ENTRY(host, dict_at, [](const hami_dict* dict, std::size_t index, hami_text* key, hami_value* out) {
    if (index >= dict->keys->size()) return false;
    const Dict::Entry& entry = *(dict->keys->begin() + static_cast<std::ptrdiff_t>(index));
    *key = text_of(entry.key);
    return copy_value(&entry.value, out);
  });
}

void add_items(hami_host& host) {
  HAMI_HOST_ENTRY(host, item_fail, [](hami_dict* item, hami_error* error) {
    const OwnedError owned(error);
    if (owned) request_of(*item).fail(owned->error);
  });
  HAMI_HOST_ENTRY(host, item_error, [](const hami_dict* item) -> hami_error* {
    if (!item->request || item->request->alive()) return nullptr;
    return make_error(*item->request->error);
  });
  HAMI_HOST_ENTRY(host, item_size,
                  [](const hami_dict* item) -> std::uint64_t { return item->request ? item->request->items : 1; });
  HAMI_HOST_ENTRY(host, item_cancelled,
                  [](const hami_dict* item) { return item->request && item->request->cancelled(); });
  HAMI_HOST_ENTRY(host, item_deadline,
                  [](const hami_dict* item) { return item->request ? item->request->deadline : kNever; });
  HAMI_HOST_ENTRY(host, item_priority,
                  [](const hami_dict* item) -> std::int32_t { return item->request ? item->request->priority : 0; });
  HAMI_HOST_ENTRY(host, item_new, [](const hami_dict* of, hami_dict** out) {
    Request& parent = request_of(*of);
    auto item = std::make_unique<OwnedItem>();
    item->owned = parent.branch({}, 0);
    item->owned->dict = Dict();
    item->owned->items = 1;
    // The parent's thread may wait for this item, and lends it to a child until it completes.
    item->owned->wait_token = Ref<Counted>(make_counted<WaitToken>(WaitToken::Release::kCompleted).get());
    item->keys = &item->owned->dict;
    item->request = item->owned.get();
    *out = item.release();
  });
  HAMI_HOST_ENTRY(host, item_emit, [](hami_dict* item, const hami_value* part, std::int32_t* heard) {
    Request& request = request_of(*item);
    const bool taken = request.has_listener() && request.emit(borrow(*part));
    if (heard) *heard = taken;
  });
  HAMI_HOST_ENTRY(host, item_free, [](hami_dict* item) { delete static_cast<OwnedItem*>(item); });
}

}  // namespace

void add_requests(hami_host& host) {
  add_dicts(host);
  add_items(host);
}

}  // namespace hami
