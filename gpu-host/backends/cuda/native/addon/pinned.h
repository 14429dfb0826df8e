// Pinned memory that JavaScript holds as array buffers.
#pragma once
#include "napi.h"

namespace pie::js {

// `allocatePinned(bytes)`: memory that the device accesses directly, as an ArrayBuffer; undefined if the allocation fails.
napi_value pinned(napi_env env, napi_callback_info info);
// True for bytes within one such buffer.
bool isPinned(const void* bytes, size_t count);

}  // namespace pie::js
