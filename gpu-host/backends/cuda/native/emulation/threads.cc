// Runs a block: CUDA threads are fibers that are switched when they wait.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include "../device/capability.h"
#include "block.h"
#include "faults.h"
#include "intrinsics.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emulation {

__thread Thread* current = nullptr;

namespace {

constexpr size_t STACK_BYTES = 128 << 10;
// Stacks are a multiple of the page size apart, so their tops would share a few sets of the CPU's cache. Lane i's stack therefore begins i steps
// lower.
constexpr size_t STACK_STEP = 7 * 64;
constexpr size_t MAX_SHARED = pie::SHARED_BYTES;

size_t pageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
size_t roundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

unsigned char* mapped(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::perror("emulation: mmap"), std::abort();
  return static_cast<unsigned char*>(memory);
}
void forbid(unsigned char* from, size_t bytes) {
  if (mprotect(from, bytes, PROT_NONE) != 0) std::perror("emulation: mprotect"), std::abort();
}

// Entry point of a fiber.
void fiberMain() {
  auto& fiber = *static_cast<Fiber*>(current);
  completeFirstSwitch(fiber.context);
  fiber.block->grid->body();
  fiber.block->end(fiber);
}

}  // namespace

BlockRun::BlockRun() : ready(MAX_THREADS) {
  sharedMemory = mapped(roundUp(MAX_SHARED, pageBytes()) + pageBytes());
  forbid(sharedMemory + roundUp(MAX_SHARED, pageBytes()), pageBytes());
}
BlockRun::~BlockRun() {
  munmap(sharedMemory, roundUp(MAX_SHARED, pageBytes()) + pageBytes());
  if (stacks) munmap(stacks, stackCount * (STACK_BYTES + pageBytes()));
}

void BlockRun::start(const Grid& what, GridRun& itsRun) {
  adopt(scheduler);
  grid = &what;
  run = &itsRun;
  threads = what.block.x * what.block.y * what.block.z;
  if (stackCount < threads) {
    if (stacks) munmap(stacks, stackCount * (STACK_BYTES + pageBytes()));
    stackCount = threads;
    stacks = mapped(stackCount * (STACK_BYTES + pageBytes()));
    for (unsigned i = 0; i < stackCount; i++) forbid(stacks + i * (STACK_BYTES + pageBytes()), pageBytes());
  }
  if (fibers.size() < threads) fibers.resize(threads);
  warps.resize((threads + 31) / 32);
  shared = sharedMemory + roundUp(MAX_SHARED, pageBytes()) - roundUp(what.shared, 128);
}

void BlockRun::letNextBegin() {
  if (released) return;
  released = true;
  if (++run->released == grid->blocks()) run->nextMayBegin.reach();
}

void BlockRun::begin(Fiber& fiber) {
  unsigned char* stack = stacks + fiber.linear * (STACK_BYTES + pageBytes()) + pageBytes();
  prepare(fiber.context, stack, STACK_BYTES - fiber.linear % 32 * STACK_STEP, fiberMain);
  makeReady(fiber);
}

void BlockRun::runBlock(uint64_t number, uint64_t seed) {
  const dim3 grid = this->grid->grid, block = this->grid->block;
  // Neighbouring blocks and launches must run their threads in different orders.
  random = (seed * 0x9E3779B97F4A7C15u + number) * 0xD1342543DE82EF95u + 1;
  for (int i = 0; i < 3; i++) (void)coin();
  newestFirst = coin();
  alive = threads;
  atBarrier = atGrid = 0;
  truePredicates = 0;
  released = false;
  readyFirst = readyCount = 0;
  std::memset(shared, UNSET, roundUp(this->grid->shared, 128));
  for (Warp& warp : warps) warp.alive = 0, warp.gatherings.clear();
  const bool backwards = coin();
  for (unsigned n = 0; n < threads; n++) {
    const unsigned i = backwards ? threads - 1 - n : n;
    Fiber& fiber = fibers[i];
    fiber.threadIdx = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    fiber.blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                      static_cast<unsigned>(number / (uint64_t{grid.x} * grid.y))};
    fiber.blockDim = block;
    fiber.gridDim = grid;
    fiber.linear = i;
    fiber.block = this;
    fiber.asyncCopies.clear();
    fiber.waited = false;
    fiber.copies = &fiber.asyncCopies;
    warps[i / 32].alive |= 1u << (i % 32);
    begin(fiber);
  }
  Fiber* first = takeReady();
  current = first;
  switchContext(scheduler, first->context);
  current = nullptr;
  if (failed) return;
  for (size_t i = this->grid->shared; i < roundUp(this->grid->shared, 128); i++) {
    if (shared[i] == UNSET) continue;
    current = &fibers[0];
    reportFault(("dynamic shared memory was written past its " + std::to_string(this->grid->shared) + " bytes").c_str());
    current = nullptr;
    failed = true;
    return;
  }
}

void BlockRun::end(Fiber& fiber) {
  // The thread may have accessed memory of the previous grid.
  if (grid->early && !fiber.waited) kernelFault("a thread ended without having waited for the previous kernel, which may still have been running");
  fiber.state = State::Ended;
  alive--;
  if (alive == 0) letNextBegin();
  Warp& warp = warps[fiber.linear / 32];
  warp.alive &= ~(1u << (fiber.linear % 32));
  // The remaining fibers may have waited only for this one.
  for (Gathering& gathering : warp.gatherings) checkWarp(fiber.linear / 32, gathering);
  checkBarrier();
  Fiber* next = takeNext();
  if (!next && alive > 0) reportDeadlock();
  current = next;
  switchFinally(fiber.context, next ? next->context : scheduler);
}

// Switches to other fibers until this one is ready again.
void BlockRun::park(Fiber& fiber) {
  Fiber* next = takeNext();
  if (!next) reportDeadlock();
  if (next == &fiber) return;
  current = next;
  switchContext(fiber.context, next->context);
}

void BlockRun::checkBarrier() {
  if (atBarrier == 0 || atBarrier < alive) return;
  atBarrier = 0;
  truePredicatesAtLastBarrier = truePredicates;
  truePredicates = 0;
  makeAllReady(State::AtBarrier);
}

void BlockRun::makeAllReady(State waiting) {
  const bool backwards = coin();
  for (unsigned n = 0; n < threads; n++) {
    Fiber& fiber = fibers[backwards ? threads - 1 - n : n];
    if (fiber.state == waiting) makeReady(fiber);
  }
}

void waitForPreviousGrid() {
  BlockRun& block = *current->block;
  Fiber& fiber = block.self();
  fiber.waited = true;
  if (!block.run->previous || block.run->previousEnded) return;
  fiber.state = State::AtGrid;
  block.atGrid++;
  block.park(fiber);
}

void letNextGridBegin() { current->block->letNextBegin(); }

void syncThreads(const Site& site) {
  BlockRun& block = *current->block;
  if (block.atBarrier == 0) {
    block.barrier = &site;
  } else if (block.barrier->line != site.line || (block.barrier->file != site.file && std::strcmp(block.barrier->file, site.file) != 0)) {
    kernelFault("barrier divergence: some threads wait at %s:%d while others come to %s:%d", block.barrier->file, block.barrier->line, site.file, site.line);
  }
  Fiber& fiber = block.self();
  fiber.state = State::AtBarrier;
  fiber.site = &site;
  fiber.lanes = 0;
  block.atBarrier++;
  block.checkBarrier();
  block.park(fiber);
}

// Completes a collective once all its living lanes have arrived.
void BlockRun::checkWarp(unsigned number, Gathering& gathering) {
  if (gathering.arrived == 0 || (gathering.mask & warps[number].alive & ~gathering.arrived) != 0) return;
  const unsigned lanes = gathering.arrived;
  gathering.arrived = 0;
  for (unsigned absent = ~lanes; absent != 0; absent &= absent - 1) gathering.operands[__builtin_ctz(absent)] = nullptr;
  gathering.complete(gathering.operands, lanes);
  const bool backwards = coin();
  for (unsigned n = 0; n < 32; n++) {
    const unsigned lane = backwards ? 31 - n : n;
    if (lanes >> lane & 1) makeReady(fibers[number * 32 + lane]);
  }
}

void warpCollective(unsigned mask, Completion complete, void* operand, const Site& site) {
  BlockRun& block = *current->block;
  Fiber& fiber = block.self();
  const unsigned number = fiber.linear / 32, lane = fiber.linear % 32;
  Warp& warp = block.warps[number];
  if (!(mask >> lane & 1)) kernelFault("%s at %s:%d: the calling lane %u is not in its mask %08x", site.what, site.file, site.line, lane, mask);
  auto place = warp.gatherings.begin();
  for (; place != warp.gatherings.end(); ++place)
    if (place->arrived == 0 || (place->mask == mask && place->complete == complete && place->line == site.line)) break;
  if (place == warp.gatherings.end()) place = warp.gatherings.emplace(place);
  Gathering& gathering = *place;
  if (gathering.arrived == 0) {
    gathering.mask = mask;
    gathering.complete = complete;
    gathering.line = site.line;
  }
  gathering.arrived |= 1u << lane;
  // Null for a barrier, which reads no operands.
  gathering.operands[lane] = operand;
  fiber.state = State::InWarp;
  fiber.site = &site;
  fiber.lanes = mask;
  block.checkWarp(number, gathering);
  block.park(fiber);
}

// Describes the waiting threads, grouped by the place where they wait.
std::string BlockRun::describeWaiting() const {
  struct Group {
    const Fiber* first;
    unsigned count;
  };
  std::vector<Group> groups;
  for (unsigned i = 0; i < threads; i++) {
    const Fiber& fiber = fibers[i];
    if (fiber.state == State::Ended) continue;
    bool found = false;
    for (Group& group : groups) {
      if (group.first->site->line != fiber.site->line || group.first->site->file != fiber.site->file || group.first->lanes != fiber.lanes) continue;
      group.count++;
      found = true;
      break;
    }
    if (!found) groups.push_back({&fiber, 1});
  }
  std::string waiting;
  for (size_t i = 0; i < groups.size() && i < 6; i++) {
    const Fiber& fiber = *groups[i].first;
    char line[512];
    std::snprintf(line, sizeof line, "%s %u from thread %u on at %s (%s:%d", i ? ";" : "", groups[i].count, fiber.linear, fiber.site->what, fiber.site->file,
                  fiber.site->line);
    waiting += line;
    if (fiber.state == State::InWarp) std::snprintf(line, sizeof line, ", mask %08x)", fiber.lanes), waiting += line;
    else waiting += ")";
  }
  return waiting;
}

// Called when no fiber can run.
void BlockRun::reportDeadlock() {
  // Destructors do not run after a fault, so the text must not be on the heap.
  char waiting[1536];
  std::snprintf(waiting, sizeof waiting, "%s", describeWaiting().c_str());
  kernelFault("deadlock: %u of %u threads have ended, the rest wait for each other:%s", threads - alive, threads, waiting);
}

unsigned char* dynamicShared() { return current->block->shared; }

bool knowsStaticShared() {
#if defined(__linux__) && !defined(EMULATED_SANITIZED)
  return true;
#else
  return false;
#endif
}

void wantShared(const void* address, size_t bytes, const char* what) {
  const BlockRun& block = *current->block;
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) kernelFault("%s %p, which is no multiple of %zu", what, address, bytes);
  const auto* at = static_cast<const unsigned char*>(address);
  if (at >= block.shared && at + bytes <= block.shared + block.grid->shared) return;
  if (!block.staticShared || (at >= block.staticShared && at + bytes <= block.staticShared + block.staticSharedBytes)) return;
  kernelFault("%s %p, which is no shared memory of the block: its dynamic part is %zu bytes from %p on", what, address, block.grid->shared,
              static_cast<const void*>(block.shared));
}

void kernelFault(const char* format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  reportFault(message);
  // Faults are caught: abandon the block with all its fibers.
  Fiber& fiber = *static_cast<Fiber*>(current);
  BlockRun& block = *fiber.block;
  block.failed = true;
  switchFinally(fiber.context, block.scheduler);
  std::abort();
}

std::string whereInKernel() {
  if (!current) return "";
  const Fiber& fiber = *static_cast<const Fiber*>(current);
  char text[512];
  std::snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u) of (%u, %u, %u), thread (%u, %u, %u) of (%u, %u, %u)", fiber.block->grid->kernel,
                fiber.blockIdx.x, fiber.blockIdx.y, fiber.blockIdx.z, fiber.gridDim.x, fiber.gridDim.y, fiber.gridDim.z, fiber.threadIdx.x, fiber.threadIdx.y,
                fiber.threadIdx.z, fiber.blockDim.x, fiber.blockDim.y, fiber.blockDim.z);
  return text;
}

}  // namespace emulation

static int countAtBarrier(int predicate, const emulation::Site& site) {
  emulation::BlockRun& block = *emulation::current->block;
  block.truePredicates += predicate != 0;
  emulation::syncThreads(site);
  return block.truePredicatesAtLastBarrier;
}
int __syncthreads_count(int predicate, const char* file, int line) { return countAtBarrier(predicate, {"__syncthreads_count", file, line}); }
int __syncthreads_or(int predicate, const char* file, int line) { return countAtBarrier(predicate, {"__syncthreads_or", file, line}) > 0; }
int __syncthreads_and(int predicate, const char* file, int line) { return countAtBarrier(predicate == 0, {"__syncthreads_and", file, line}) == 0; }
