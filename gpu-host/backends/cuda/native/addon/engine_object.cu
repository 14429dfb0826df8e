#include "engine_object.h"
#include <algorithm>
#include <cstring>
#include <utility>
#include "options.h"
#include "pinned.h"

namespace pie::js {

namespace {

// Most steps under way: one runs while the next is prepared. The engine keeps only the results of the last two steps.
constexpr size_t MOST_STEPS = 2;
// Most projections and scorings under way; each keeps copies of its inputs and results.
constexpr size_t MOST_SIDE = 8;
// Most adapter loads under way; each keeps its matrices in memory.
constexpr size_t MOST_LOADS = 8;
// Most waits for page moves: one under way, and one for the moves that were queued after it began.
constexpr size_t MOST_PAGE_WAITS = 2;
// Most states of one projection or scoring.
constexpr int64_t MOST_STATES = 1 << 24;

// Shared by the JavaScript object and the thread-safe function; the last owner destroys the engine.
using Shared = std::shared_ptr<EngineObject>;

// True if the third argument requests a queued move and `bytes` is pinned, the only host memory that the device can access on its own.
bool isQueued(napi_env env, const Arguments& arguments, const View<uint8_t>& bytes) {
  if (arguments.count < 3 || isUndefined(env, arguments.values[2])) return false;
  bool queued = false;
  if (napi_get_value_bool(env, arguments.values[2], &queued) != napi_ok) refuse("queued is neither true nor false");
  return queued && isPinned(bytes.data, bytes.count);
}

// A copy that other threads may read while JavaScript changes or transfers the array.
template <typename T>
std::vector<T> copied(const View<T>& view) {
  return std::vector<T>(view.data, view.data + view.count);
}

}  // namespace

EngineObject::EngineObject(napi_env env, napi_value options, napi_value tensors) {
  const EngineOptions read = readOptions(env, options);
  const MappedTensors mapped(readTensors(env, tensors));
  limits_ = {read.shape.hidden, read.shape.vocabulary, 0};
  layers_ = read.shape.layers;
  engine_ = Engine::create(read, [&mapped](const std::string& name) { return mapped.find(name); });
  pageCount_ = engine_->pageCount();
  limits_.slots = uint32_t(read.pageSize) * uint32_t(pageCount_);
  limits_.tableSlots = uint32_t(engine_->tableSlots());
}

napi_value EngineObject::construct(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, info);
    napi_value target = nullptr;
    check(env, napi_get_new_target(env, info, &target));
    if (target == nullptr) refuse("Engine must be called with new");
    const Shared shared = std::make_shared<EngineObject>(env, arguments.values[0], arguments.values[1]);
    try {
      shared->attach(env, arguments.self, shared);
    } catch (...) {
      // The thread-safe function owns the object too, so without `close` the device's memory would stay allocated.
      shared->close(env);
      throw;
    }
    return arguments.self;
  });
}

void EngineObject::attach(napi_env env, napi_value self, const Shared& shared) {
  const auto forget = [](napi_env, void* data, void*) { delete static_cast<Shared*>(data); };
  Shared* context = new Shared(shared);
  const napi_status made =
      napi_create_threadsafe_function(env, nullptr, nullptr, text(env, "pie-cuda"), 0, 1, context, forget, context, wake, &wake_);
  if (made != napi_ok) delete context;
  check(env, made);
  // The thread-safe function must not keep an idle event loop alive.
  check(env, napi_unref_threadsafe_function(env, wake_));
  for (Line* line : {&steps_, &side_, &loads_, &pages_})
    line->waiter = std::make_unique<Waiter>([wake = wake_] { napi_call_threadsafe_function(wake, nullptr, napi_tsfn_nonblocking); });
  check(env, napi_add_env_cleanup_hook(env, teardown, this));
  hooked_ = true;
  Shared* wrapped = new Shared(shared);
  const auto collect = [](napi_env finalEnv, void* data, void*) {
    Shared* owner = static_cast<Shared*>(data);
    (*owner)->close(finalEnv);
    // Deleted only here, because the wrapped object needs the reference for its whole lifetime.
    napi_delete_reference(finalEnv, (*owner)->self_);
    delete owner;
  };
  const napi_status status = napi_wrap(env, self, wrapped, collect, nullptr, &self_);
  if (status != napi_ok) delete wrapped;
  check(env, status);
}

template <EngineObject::Method METHOD>
napi_value EngineObject::call(napi_env env, napi_callback_info info) {
  return guarded(env, [&]() -> napi_value {
    const Arguments arguments(env, info);
    // V8 guarantees that `this` is an object of this class.
    void* data = nullptr;
    check(env, napi_unwrap(env, arguments.self, &data));
    // A copy, so that the engine outlives this call even if the method disposes of it.
    const Shared shared = *static_cast<Shared*>(data);
    return (shared.get()->*METHOD)(env, arguments);
  });
}

void EngineObject::wake(napi_env env, napi_value, void* context, void*) {
  if (env == nullptr) return;
  const Shared shared = *static_cast<Shared*>(context);
  guarded(env, [&]() -> napi_value {
    shared->deliver(env);
    return nullptr;
  });
}

void EngineObject::teardown(void* self) {
  EngineObject* engine = static_cast<EngineObject*>(self);
  engine->hooked_ = false;
  engine->close(nullptr);
}

Engine& EngineObject::engine() {
  if (!engine_) throw EngineError("disposed", "the engine was disposed of");
  return *engine_;
}

void EngineObject::deliver(napi_env env) {
  for (Line* line : {&steps_, &side_, &loads_, &pages_}) deliver(env, *line);
}

void EngineObject::deliver(napi_env env, Line& line) {
  if (!line.waiter) return;
  for (WorkEnd& end : line.waiter->take()) {
    const auto found = std::find_if(line.pending.begin(), line.pending.end(), [&end](const Pending& each) { return each.id == end.id; });
    if (found == line.pending.end()) continue;
    Pending pending = std::move(*found);
    line.pending.erase(found);
    // A failure of one piece of work must not keep the others from their results.
    guarded(env, [&]() -> napi_value {
      settle(env, pending, end);
      return nullptr;
    });
    for (std::shared_ptr<Adapter>& each : pending.adapters)
      if (each.use_count() == 1) retire(std::move(each));
    bool thrown = false;
    if (napi_is_exception_pending(env, &thrown) != napi_ok || !thrown) continue;
    napi_value error;
    napi_get_and_clear_last_exception(env, &error);
    if (pending.deferred != nullptr) napi_reject_deferred(env, pending.deferred, error);
  }
}

void EngineObject::settle(napi_env env, Pending& pending, const WorkEnd& end) {
  if (pendingWork() == 0) {
    napi_unref_threadsafe_function(env, wake_);
    uint32_t references = 0;
    napi_reference_unref(env, self_, &references);
  }
  if (pending.arguments != nullptr) check(env, napi_delete_reference(env, std::exchange(pending.arguments, nullptr)));
  napi_value buffer;
  void* data = nullptr;
  if (end.error) {
    check(env, napi_reject_deferred(env, std::exchange(pending.deferred, nullptr), makeError(env, end.error->code, end.error->what())));
  } else if (napi_create_arraybuffer(env, pending.bytes, &data, &buffer) != napi_ok) {
    napi_value thrown;
    napi_get_and_clear_last_exception(env, &thrown);
    check(env, napi_reject_deferred(env, std::exchange(pending.deferred, nullptr),
                                    makeError(env, "out-of-memory", "the host cannot allocate memory for the results")));
  } else {
    pending.write(data);
    check(env, napi_resolve_deferred(env, std::exchange(pending.deferred, nullptr), buffer));
  }
}

void EngineObject::retire(std::shared_ptr<Adapter> adapter) {
  loads_.waiter->add(++loads_.last, [held = std::move(adapter)]() mutable { held.reset(); });
}

size_t EngineObject::pendingWork() const {
  size_t count = 0;
  for (const Line* line : {&steps_, &side_, &loads_, &pages_}) count += line->pending.size();
  return count;
}

void EngineObject::keepAlive(napi_env env) {
  if (pendingWork() > 1) return;
  uint32_t references = 0;
  check(env, napi_reference_ref(env, self_, &references));
  check(env, napi_ref_threadsafe_function(env, wake_));
}

void EngineObject::close(napi_env env) {
  if (!engine_) return;
  for (Line* line : {&steps_, &side_, &loads_, &pages_}) {
    if (!line->waiter) continue;
    line->waiter->drain();
    if (env != nullptr) deliver(env, *line);
    line->waiter.reset();
    line->pending.clear();
  }
  adapters_.clear();
  engine_.reset();
  if (wake_ != nullptr) napi_release_threadsafe_function(std::exchange(wake_, nullptr), napi_tsfn_release);
  if (env == nullptr) return;
  if (std::exchange(hooked_, false)) napi_remove_env_cleanup_hook(env, teardown, this);
}

napi_value EngineObject::submit(napi_env env, const Arguments& arguments) {
  Engine& engine = this->engine();
  if (steps_.pending.size() >= MOST_STEPS) refuse("two steps are under way");
  const View<uint32_t> words = view<uint32_t>(env, arguments.values[0], "words");
  ParsedBatch parsed = parseBatch(words.data, words.count, limits_);
  std::vector<std::shared_ptr<Adapter>> adapters;
  for (size_t i = 0; i < parsed.sequences.size(); i++) {
    const uint32_t id = parsed.adapters[i];
    if (id == 0) continue;
    const auto found = adapters_.find(id);
    if (found == adapters_.end()) refuse("no such adapter is on the device: " + std::to_string(id));
    parsed.sequences[i].adapter = found->second.get();
    if (std::find(adapters.begin(), adapters.end(), found->second) == adapters.end()) adapters.push_back(found->second);
  }
  const Batch batch{parsed.sequences.data(), int(parsed.sequences.size())};
  uint32_t picks = 0;
  for (const ResultShape& shape : parsed.shapes) picks += shape.topK > 0 ? uint32_t(shape.rows) : 0;
  // Stays 0 if the submit below fails, so that the next batch cannot take picked tokens.
  limits_.picks = 0;
  // Everything that may fail happens before the submit, because a submitted step must be waited for and its adapters must be kept until it ends.
  const auto results = std::make_shared<Results>();
  const size_t bytes = resultWords(parsed.shapes, limits_.hidden) * sizeof(uint32_t);
  auto write = [results, shapes = std::move(parsed.shapes), hidden = limits_.hidden](void* into) {
    packResults(static_cast<uint32_t*>(into), shapes, *results, hidden);
  };
  Pending pending{0, nullptr, bytes, std::move(write), std::move(adapters)};
  napi_value promise;
  check(env, napi_create_promise(env, &pending.deferred, &promise));
  const napi_deferred deferred = pending.deferred;
  steps_.pending.push_back(std::move(pending));
  try {
    steps_.pending.back().id = engine.submit(batch);
  } catch (...) {
    steps_.pending.pop_back();
    // No caller has seen the promise; settling it frees the deferred.
    napi_resolve_deferred(env, deferred, undefined(env));
    throw;
  }
  limits_.picks = picks;
  const uint64_t step = steps_.pending.back().id;
  steps_.waiter->add(step, [&engine, step, results] { *results = engine.wait(step); });
  keepAlive(env);
  return promise;
}

napi_value EngineObject::start(napi_env env, Line& line, size_t words, std::function<void(uint32_t*)> work) {
  const auto results = std::make_shared<std::vector<uint32_t>>(words);
  const size_t bytes = words * sizeof(uint32_t);
  Pending pending{++line.last, nullptr, bytes, [results, bytes](void* into) { if (bytes > 0) std::memcpy(into, results->data(), bytes); }, {}};
  napi_value promise;
  check(env, napi_create_promise(env, &pending.deferred, &promise));
  line.pending.push_back(std::move(pending));
  line.waiter->add(line.last, [results, work = std::move(work)] { work(results->data()); });
  keepAlive(env);
  return promise;
}

void EngineObject::checkSide() const {
  if (side_.pending.size() >= MOST_SIDE) refuse(std::to_string(MOST_SIDE) + " projections and scorings are under way");
}

napi_value EngineObject::project(napi_env env, const Arguments& arguments) {
  const int64_t count = integer(env, arguments.values[1], "count", 1, MOST_STATES);
  const int64_t topK = integer(env, arguments.values[2], "topK", 1, std::min(limits_.vocabulary, MAX_TOP_K));
  const View<float> states = view<float>(env, arguments.values[0], "states", count * limits_.hidden);
  Engine& device = engine();
  const size_t places = size_t(count) * size_t(topK);
  checkSide();
  return start(env, side_, 2 * places, [&device, count, topK, places, copy = copied(states)](uint32_t* results) {
    device.project(copy.data(), int(count), int(topK), results, reinterpret_cast<float*>(results + places));
  });
}

napi_value EngineObject::score(napi_env env, const Arguments& arguments) {
  const int64_t count = integer(env, arguments.values[1], "count", 1, MOST_STATES);
  const View<float> states = view<float>(env, arguments.values[0], "states", count * limits_.hidden);
  const View<uint32_t> tokens = view<uint32_t>(env, arguments.values[2], "tokens");
  const View<int32_t> first = view<int32_t>(env, arguments.values[3], "first tokens", count + 1);
  for (size_t i = 0; i < tokens.count; i++)
    if (tokens.data[i] >= uint32_t(limits_.vocabulary)) refuse("token " + std::to_string(tokens.data[i]) + " is outside of the vocabulary");
  if (first.data[0] != 0 || size_t(first.data[count]) != tokens.count) refuse("the token lists do not cover all tokens");
  for (int64_t i = 0; i < count; i++)
    if (first.data[i] > first.data[i + 1]) refuse("the token lists overlap");
  Engine& device = engine();
  auto work = [&device, count, asked = copied(tokens), starts = copied(first), copy = copied(states)](uint32_t* results) {
    float* const scores = reinterpret_cast<float*>(results);
    device.score(copy.data(), int(count), asked.data(), starts.data(), scores, scores + asked.size());
  };
  checkSide();
  return start(env, side_, tokens.count + size_t(count), std::move(work));
}

napi_value EngineObject::copySlots(napi_env env, const Arguments& arguments) {
  const View<uint32_t> sources = view<uint32_t>(env, arguments.values[0], "sources");
  const int64_t pairs = int64_t(sources.count);
  const View<uint32_t> destinations = view<uint32_t>(env, arguments.values[1], "destinations", pairs);
  const bool shifted = arguments.count > 2 && !isUndefined(env, arguments.values[2]);
  const View<int32_t> shifts = shifted ? view<int32_t>(env, arguments.values[2], "shifts", pairs) : View<int32_t>{nullptr, 0};
  for (const View<uint32_t>& slots : {sources, destinations})
    for (size_t i = 0; i < slots.count; i++)
      if (slots.data[i] >= limits_.slots) refuse("slot " + std::to_string(slots.data[i]) + " is outside of the pool");
  if (pairs > INT32_MAX) refuse("too many slots at once");
  Engine& device = engine();
  if (pairs > 0) device.copySlots(sources.data, destinations.data, shifts.data, int(pairs));
  return undefined(env);
}

napi_value EngineObject::readPage(napi_env env, const Arguments& arguments) {
  const int64_t page = integer(env, arguments.values[0], "page", 0, pageCount_ - 1);
  Engine& device = engine();
  const View<uint8_t> bytes = view<uint8_t>(env, arguments.values[1], "bytes", int64_t(device.pageBytes()));
  if (isQueued(env, arguments, bytes)) device.queueReadPage(int(page), bytes.data);
  else device.readPage(int(page), bytes.data);
  return undefined(env);
}

napi_value EngineObject::writePage(napi_env env, const Arguments& arguments) {
  const int64_t page = integer(env, arguments.values[0], "page", 0, pageCount_ - 1);
  Engine& device = engine();
  const View<uint8_t> bytes = view<uint8_t>(env, arguments.values[1], "bytes", int64_t(device.pageBytes()));
  if (isQueued(env, arguments, bytes)) device.queueWritePage(int(page), bytes.data);
  else device.writePage(int(page), bytes.data);
  return undefined(env);
}

napi_value EngineObject::settlePages(napi_env env, const Arguments&) {
  engine().settlePages();
  return undefined(env);
}

napi_value EngineObject::pagesSettled(napi_env env, const Arguments&) {
  Engine& device = engine();
  if (pages_.pending.size() >= MOST_PAGE_WAITS) refuse(std::to_string(MOST_PAGE_WAITS) + " waits for pages are under way");
  return start(env, pages_, 0, [&device](uint32_t*) { device.waitForPages(); });
}

napi_value EngineObject::pages(napi_env env, const Arguments&) {
  const Engine& device = engine();
  const napi_value result = object(env);
  set(env, result, "count", number(env, pageCount_));
  set(env, result, "bytes", number(env, double(device.pageBytes())));
  set(env, result, "tableSlots", number(env, double(limits_.tableSlots)));
  return result;
}

napi_value EngineObject::loadAdapter(napi_env env, const Arguments& arguments) {
  Engine& device = engine();
  if (lastAdapter_ == UINT32_MAX) refuse("no id is left for an adapter");
  if (loads_.pending.size() >= MOST_LOADS) refuse(std::to_string(MOST_LOADS) + " adapters are being loaded");
  const uint32_t count = length(env, arguments.values[0], "matrices");
  std::vector<AdapterMatrices> matrices(count);
  const auto projections = std::make_shared<std::vector<std::string>>(count);
  for (uint32_t i = 0; i < count; i++) {
    const napi_value each = element(env, arguments.values[0], i);
    AdapterMatrices& read = matrices[i];
    read.layer = int(integer(env, get(env, each, "layer"), "layer", 0, layers_ - 1));
    read.rank = getInt(env, each, "rank", 1);
    (*projections)[i] = getString(env, each, "projection");
    read.projection = (*projections)[i].c_str();
    read.inputs = getInt(env, each, "columns", 1);
    read.outputs = getInt(env, each, "rows", 1);
    read.a = view<float>(env, get(env, each, "a"), "values of A", int64_t(read.rank) * read.inputs).data;
    read.b = view<float>(env, get(env, each, "b"), "values of B", int64_t(read.rank) * read.outputs).data;
  }
  const uint32_t id = ++lastAdapter_;
  const auto made = std::make_shared<std::shared_ptr<Adapter>>();
  const auto write = [this, id, made](void* into) {
    const double values[] = {double(id), double((*made)->bytes())};
    std::memcpy(into, values, sizeof values);
    adapters_[id] = std::move(*made);
  };
  Pending pending{++loads_.last, nullptr, 2 * sizeof(double), write, {}};
  napi_value promise;
  check(env, napi_create_promise(env, &pending.deferred, &promise));
  check(env, napi_create_reference(env, arguments.values[0], 1, &pending.arguments));
  loads_.pending.push_back(std::move(pending));
  loads_.waiter->add(loads_.last, [&device, made, projections, read = std::move(matrices)] { *made = device.loadAdapter(read); });
  keepAlive(env);
  return promise;
}

napi_value EngineObject::freeAdapter(napi_env env, const Arguments& arguments) {
  const auto found = adapters_.find(uint32_t(integer(env, arguments.values[0], "the adapter", 0, UINT32_MAX)));
  if (found == adapters_.end()) return undefined(env);
  std::shared_ptr<Adapter> adapter = std::move(found->second);
  adapters_.erase(found);
  if (adapter.use_count() == 1) retire(std::move(adapter));
  return undefined(env);
}

napi_value EngineObject::memory(napi_env env, const Arguments&) {
  const MemoryReport report = engine().memory();
  const napi_value result = object(env);
  set(env, result, "weights", number(env, double(report.weights)));
  set(env, result, "pool", number(env, double(report.pool)));
  set(env, result, "scratch", number(env, double(report.scratch)));
  set(env, result, "total", number(env, double(report.total)));
  set(env, result, "free", number(env, double(report.free)));
  set(env, result, "pagesThatFit", number(env, report.pagesThatFit));
  return result;
}

napi_value EngineObject::graphs(napi_env env, const Arguments&) {
  const GraphReport report = engine().graphs();
  const napi_value result = object(env);
  set(env, result, "captured", number(env, double(report.captured)));
  set(env, result, "refused", number(env, double(report.refused)));
  set(env, result, "why", text(env, report.why.c_str()));
  return result;
}

napi_value EngineObject::hasCublas(napi_env env, const Arguments&) { return boolean(env, engine().hasCublas()); }

napi_value EngineObject::dispose(napi_env env, const Arguments&) {
  close(env);
  return undefined(env);
}

napi_value EngineObject::defineClass(napi_env env) {
  const auto method = [](const char* name, napi_callback callback) {
    return napi_property_descriptor{name, nullptr, callback, nullptr, nullptr, nullptr, napi_default_method, nullptr};
  };
  const napi_property_descriptor methods[] = {
      method("submit", call<&EngineObject::submit>),           method("project", call<&EngineObject::project>),
      method("score", call<&EngineObject::score>),             method("copySlots", call<&EngineObject::copySlots>),
      method("readPage", call<&EngineObject::readPage>),       method("writePage", call<&EngineObject::writePage>),
      method("settlePages", call<&EngineObject::settlePages>), method("pagesSettled", call<&EngineObject::pagesSettled>),
      method("pages", call<&EngineObject::pages>),             method("loadAdapter", call<&EngineObject::loadAdapter>),
      method("freeAdapter", call<&EngineObject::freeAdapter>), method("memory", call<&EngineObject::memory>),
      method("graphs", call<&EngineObject::graphs>),           method("hasCublas", call<&EngineObject::hasCublas>),
      method("dispose", call<&EngineObject::dispose>),
  };
  napi_value constructor;
  check(env, napi_define_class(env, "Engine", NAPI_AUTO_LENGTH, construct, nullptr, std::size(methods), methods, &constructor));
  return constructor;
}

}  // namespace pie::js
