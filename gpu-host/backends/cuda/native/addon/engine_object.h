// The engine as a JavaScript object. Everything but the waiter's thread happens on JavaScript's.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <vector>
#include "batch.h"
#include "napi.h"
#include "steps.h"

namespace pie::js {

class EngineObject {
 public:
  // The constructor `Engine(options, tensors)`; see `EngineHandle` of `../../addon.ts`.
  static napi_value defineClass(napi_env env);

  EngineObject(napi_env env, napi_value options, napi_value tensors);
  ~EngineObject() { close(nullptr); }

 private:
  // A step that JavaScript waits for.
  struct Pending {
    uint64_t step;
    napi_deferred deferred;
    std::vector<ResultShape> shapes;
    std::shared_ptr<Adapter> adapter;  // Kept on the device until the step has ended.
  };
  using Method = napi_value (EngineObject::*)(napi_env env, const Arguments& arguments);

  static napi_value construct(napi_env env, napi_callback_info info);
  template <Method METHOD>
  static napi_value call(napi_env env, napi_callback_info info);
  static void wake(napi_env env, napi_value, void* context, void*);
  // At the end of a thread, and of a process that has nothing left to do; `process.exit` does not come here, so it waits for no card.
  static void teardown(void* self);

  void attach(napi_env env, napi_value self, const std::shared_ptr<EngineObject>& shared);
  // Hands out what has ended.
  void deliver(napi_env env);
  // Takes `deferred` when it is told.
  void settle(napi_env env, Pending& pending, const StepEnd& end);
  // Waits for what is under way and frees everything; without `env`, nobody is told any more. Does nothing the second time.
  void close(napi_env env);
  Engine& engine();

  napi_value submit(napi_env env, const Arguments& arguments);
  napi_value project(napi_env env, const Arguments& arguments);
  napi_value score(napi_env env, const Arguments& arguments);
  napi_value copySlots(napi_env env, const Arguments& arguments);
  napi_value readPage(napi_env env, const Arguments& arguments);
  napi_value writePage(napi_env env, const Arguments& arguments);
  napi_value pages(napi_env env, const Arguments& arguments);
  napi_value loadAdapter(napi_env env, const Arguments& arguments);
  napi_value freeAdapter(napi_env env, const Arguments& arguments);
  napi_value memory(napi_env env, const Arguments& arguments);
  napi_value graphs(napi_env env, const Arguments& arguments);
  napi_value dispose(napi_env env, const Arguments& arguments);

  BatchLimits limits_{};
  int layers_ = 0;
  int pageCount_ = 0;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<StepWaiter> waiter_;
  std::deque<Pending> pending_;
  std::map<int64_t, std::shared_ptr<Adapter>> adapters_;
  int64_t lastAdapter_ = 0;
  napi_threadsafe_function wake_ = nullptr;
  napi_ref self_ = nullptr;  // Strong while JavaScript waits for a step.
  bool hooked_ = false;
};

}  // namespace pie::js
