// The pipe's store for plugins.
#include <any>

#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

StoreId id_in(const hami_value& raw) {
  const Value id = borrow(raw);
  if (id.kind() == Kind::kInt) return id.as_int();
  if (id.kind() == Kind::kStr) return id.as_text();
  throw Error(ErrorCode::kDataType, "ids and keys of the store are int or str, got " + type_name(id));
}

// Translates the store's exceptions.
template <class Body>
hami_error* stored(const hami_context* context, Body&& body) {
  return guarded([&] {
    try {
      body(context->pipe->resources.store());
    } catch (const RequestStore::NotFound& error) {
      throw Error(ErrorCode::kNotFound, error.what());
    } catch (const RequestStore::AlreadyExists& error) {
      throw Error(ErrorCode::kAlreadyExists, error.what());
    }
  });
}

hami_value value_of(const std::any& kept) {
  if (const Value* value = std::any_cast<Value>(&kept)) return release_to_abi(*value);
  throw Error(ErrorCode::kDataType, "the stored value is internal to the core");
}

}  // namespace

void add_store(hami_host& host) {
  HAMI_HOST_ENTRY(host, store_create, [](hami_context* context, const hami_value* request) {
    return stored(context, [&](RequestStore& store) { store.create(id_in(*request)); });
  });
  HAMI_HOST_ENTRY(host, store_insert,
                  [](hami_context* context, const hami_value* request, const hami_value* key, const hami_value* value) {
    return stored(context, [&](RequestStore& store) { store.insert(id_in(*request), id_in(*key), borrow(*value)); });
  });
  HAMI_HOST_ENTRY(host, store_get,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    return stored(context, [&](RequestStore& store) { *out = value_of(store.at(id_in(*request), id_in(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_take,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    return stored(context, [&](RequestStore& store) { *out = value_of(store.take(id_in(*request), id_in(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_remove, [](hami_context* context, const hami_value* request) {
    return stored(context, [&](RequestStore& store) {
      const StoreId id = id_in(*request);
      if (!store.remove(id)) throw Error(ErrorCode::kNotFound, "the store has no request " + id.show());
    });
  });
}

}  // namespace hami
