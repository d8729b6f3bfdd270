// Host functions: the store of the pipe.
#include <any>

#include "plugin/handles.hpp"
#include "plugin/host_entry.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

StoreId id_of(const hami_value& raw) {
  const Value id = borrow(raw);
  if (id.kind() == Kind::kInt) return id.as_int();
  if (id.kind() == Kind::kStr) return id.as_text();
  throw Error(ErrorCode::kDataType, "ids and keys of the store must be int or str, got " + type_name(id));
}

// Calls `body` with the store, and translates the exceptions of the store.
template <class Body>
void with_store(const hami_context* context, Body&& body) {
  try {
    body(context->pipe->resources.store());
  } catch (const RequestStore::NotFound& error) {
    throw Error(ErrorCode::kNotFound, error.what());
  } catch (const RequestStore::AlreadyExists& error) {
    throw Error(ErrorCode::kAlreadyExists, error.what());
  }
}

hami_value value_of(const std::any& stored) {
  if (const Value* value = std::any_cast<Value>(&stored)) return release_to_abi(*value);
  throw Error(ErrorCode::kDataType, "the stored value belongs to the core and cannot be read by a plugin");
}

}  // namespace

void add_store(hami_host& host) {
  HAMI_HOST_ENTRY(host, store_create, [](hami_context* context, const hami_value* request) {
    with_store(context, [&](RequestStore& store) { store.create(id_of(*request)); });
  });
  HAMI_HOST_ENTRY(host, store_insert,
                  [](hami_context* context, const hami_value* request, const hami_value* key, const hami_value* value) {
    with_store(context, [&](RequestStore& store) { store.insert(id_of(*request), id_of(*key), borrow(*value)); });
  });
  HAMI_HOST_ENTRY(host, store_get,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    with_store(context, [&](RequestStore& store) { *out = value_of(store.at(id_of(*request), id_of(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_take,
                  [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    with_store(context, [&](RequestStore& store) { *out = value_of(store.take(id_of(*request), id_of(*key))); });
  });
  HAMI_HOST_ENTRY(host, store_remove, [](hami_context* context, const hami_value* request) {
    with_store(context, [&](RequestStore& store) {
      const StoreId id = id_of(*request);
      if (!store.remove(id)) throw Error(ErrorCode::kNotFound, "the store has no request " + id.show());
    });
  });
}

}  // namespace hami
