// The engine as a JavaScript object. Its methods run on JavaScript's thread; the waiters run work on threads of their own.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>
#include "batch.h"
#include "napi.h"
#include "waiter.h"

namespace pie::js {

class EngineObject {
 public:
  // The constructor `Engine(options, tensors)`; see `EngineHandle` in `../../addon.ts`.
  static napi_value defineClass(napi_env env);

  EngineObject(napi_env env, napi_value options, napi_value tensors);
  ~EngineObject() { close(nullptr); }

 private:
  // Work whose promise is not settled yet.
  struct Pending {
    uint64_t id;
    napi_deferred deferred;
    size_t bytes;                      // Of the results.
    std::function<void(void*)> write;  // Writes the results of ended work.
    std::vector<std::shared_ptr<Adapter>> adapters;  // Kept on the device until the step has ended.
    napi_ref arguments = nullptr;                    // Keeps alive the JavaScript arrays that the work reads; or null.
  };
  // Work of one kind, which ends in the order of its start. Each kind has its own waiter, because results of steps must be taken before the engine
  // overwrites them, and adapter loads take long.
  struct Line {
    std::unique_ptr<Waiter> waiter;
    std::deque<Pending> pending;
    uint64_t last = 0;  // Id of the newest work. Unused for steps, whose ids the engine gives.
  };
  using Method = napi_value (EngineObject::*)(napi_env env, const Arguments& arguments);

  static napi_value construct(napi_env env, napi_callback_info info);
  template <Method METHOD>
  static napi_value call(napi_env env, napi_callback_info info);
  static void wake(napi_env env, napi_value, void* context, void*);
  // Runs when a thread ends or a process exits on its own. `process.exit` skips it, so that exiting does not wait for the device.
  static void teardown(void* self);

  void attach(napi_env env, napi_value self, const std::shared_ptr<EngineObject>& shared);
  // Settles the promises of ended work.
  void deliver(napi_env env);
  void deliver(napi_env env, Line& line);
  // Settles the promise of `pending` and then clears `pending.deferred`.
  void settle(napi_env env, Pending& pending, const WorkEnd& end);
  // Keeps the event loop and this object alive while any promise is pending. Call it after adding a piece of work.
  void keepAlive(napi_env env);
  size_t pendingWork() const;
  // Throws "invalid" when too much side work is under way.
  void checkSide() const;
  // Runs `work`, which writes `words` words of results, on the line's thread. Returns a promise of the results.
  napi_value start(napi_env env, Line& line, size_t words, std::function<void(uint32_t*)> work);
  // Lets the thread for loads free an adapter that no step uses any more.
  void retire(std::shared_ptr<Adapter> adapter);
  // Waits for running work and frees everything. Without `env` it settles no promises. The second call does nothing.
  void close(napi_env env);
  Engine& engine();

  napi_value submit(napi_env env, const Arguments& arguments);
  napi_value project(napi_env env, const Arguments& arguments);
  napi_value score(napi_env env, const Arguments& arguments);
  napi_value copySlots(napi_env env, const Arguments& arguments);
  napi_value readPage(napi_env env, const Arguments& arguments);
  napi_value writePage(napi_env env, const Arguments& arguments);
  napi_value settlePages(napi_env env, const Arguments& arguments);
  napi_value pagesSettled(napi_env env, const Arguments& arguments);
  napi_value pages(napi_env env, const Arguments& arguments);
  napi_value loadAdapter(napi_env env, const Arguments& arguments);
  napi_value freeAdapter(napi_env env, const Arguments& arguments);
  napi_value memory(napi_env env, const Arguments& arguments);
  napi_value graphs(napi_env env, const Arguments& arguments);
  napi_value hasCublas(napi_env env, const Arguments& arguments);
  napi_value dispose(napi_env env, const Arguments& arguments);

  BatchLimits limits_{};
  int layers_ = 0;
  int pageCount_ = 0;
  std::unique_ptr<Engine> engine_;
  // `loads_` also frees adapters, because a free blocks its thread: the driver waits for the device before it frees memory. `pages_` waits for page
  // moves.
  Line steps_, side_, loads_, pages_;
  std::map<uint32_t, std::shared_ptr<Adapter>> adapters_;
  uint32_t lastAdapter_ = 0;
  napi_threadsafe_function wake_ = nullptr;
  napi_ref self_ = nullptr;  // Strong while a promise is pending.
  bool hooked_ = false;
};

}  // namespace pie::js
