// The exports of the addon; `../../addon.ts` declares their types.
#include "engine_object.h"
#include "pinned.h"

namespace pie::js {

namespace {

napi_value listDevices(napi_env env, napi_callback_info) {
  return guarded(env, [&]() -> napi_value {
    napi_value list;
    check(env, napi_create_array(env, &list));
    uint32_t index = 0;
    for (const DeviceInfo& device : devices()) {
      const napi_value entry = object(env);
      set(env, entry, "name", text(env, device.name));
      set(env, entry, "memoryBytes", number(env, double(device.memoryBytes)));
      set(env, entry, "multiprocessors", number(env, device.multiprocessors));
      set(env, entry, "capability", text(env, std::to_string(device.major) + "." + std::to_string(device.minor)));
      set(env, entry, "usable", boolean(env, device.usable));
      set(env, entry, "driverVersion", number(env, device.driverVersion));
      set(env, entry, "runtimeVersion", number(env, device.runtimeVersion));
      check(env, napi_set_element(env, list, index++, entry));
    }
    return list;
  });
}

}  // namespace

}  // namespace pie::js

NAPI_MODULE_INIT() {
  using namespace pie::js;
  return guarded(env, [&]() -> napi_value {
    set(env, exports, "Engine", EngineObject::defineClass(env));
    setFunction(env, exports, "devices", listDevices);
    setFunction(env, exports, "allocatePinned", pinned);
#ifdef PIE_EMULATED
    set(env, exports, "emulated", boolean(env, true));
#else
    set(env, exports, "emulated", boolean(env, false));
#endif
    return exports;
  });
}
