#include "pinned.h"
#include <functional>
#include <map>
#include <mutex>

namespace pie::js {

namespace {

// The live buffers. Never destroyed: V8 may release buffers while the process exits.
struct Buffers {
  std::mutex mutex;
  std::map<const uint8_t*, size_t, std::greater<const uint8_t*>> bytes;
};
Buffers& buffers() {
  static Buffers* one = new Buffers;
  return *one;
}

void release(void* memory) {
  {
    const std::lock_guard lock(buffers().mutex);
    buffers().bytes.erase(static_cast<uint8_t*>(memory));
  }
  freePinned(memory);
}

}  // namespace

napi_value pinned(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, info);
    const size_t bytes = size_t(integer(env, arguments.values[0], "bytes", 1, int64_t(1) << 40));
    void* memory = allocatePinned(bytes);
    if (memory == nullptr) return undefined(env);
    napi_value buffer;
    const auto finalize = [](napi_env, void* data, void*) { release(data); };
    const napi_status status = napi_create_external_arraybuffer(env, memory, bytes, finalize, nullptr, &buffer);
    if (status != napi_ok) freePinned(memory);
    // Some runtimes forbid external buffers; the caller then uses ordinary memory.
    if (status == napi_no_external_buffers_allowed) return undefined(env);
    check(env, status);
    const std::lock_guard lock(buffers().mutex);
    buffers().bytes[static_cast<uint8_t*>(memory)] = bytes;
    return buffer;
  });
}

bool isPinned(const void* bytes, size_t count) {
  const uint8_t* first = static_cast<const uint8_t*>(bytes);
  const std::lock_guard lock(buffers().mutex);
  const auto found = buffers().bytes.lower_bound(first);
  return found != buffers().bytes.end() && count <= found->second && size_t(first - found->first) <= found->second - count;
}

}  // namespace pie::js
