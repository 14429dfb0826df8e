// Switching between stacks.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_SANITIZED 1
#endif
#endif
#ifdef EMULATED_SANITIZED
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__

extern "C" void emulationSwitch(void** save, void* load);

namespace emulation {

struct Context {
  void* stackPointer = nullptr;
#ifdef EMULATED_SANITIZED
  void* fake = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
#endif
};

// Must be called first on a new stack.
inline void completeFirstSwitch([[maybe_unused]] Context& context) {
#ifdef EMULATED_SANITIZED
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

inline void prepare(Context& context, unsigned char* stack, size_t bytes, void (*start)()) {
  auto* top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{63});
  *--top = nullptr;  // Return address of `start`, which never returns.
  *--top = reinterpret_cast<void*>(start);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  context.stackPointer = top;
#ifdef EMULATED_SANITIZED
  // The previous fiber on this stack ended without returning from its functions.
  __asan_unpoison_memory_region(stack, bytes);
  context.fake = nullptr;
  context.bottom = stack;
  context.bytes = bytes;
#endif
}

// Registers a thread's own stack before the first switch from it.
inline void adopt([[maybe_unused]] Context& context) {
#ifdef EMULATED_SANITIZED
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &context.bytes);
  pthread_attr_destroy(&attributes);
  context.bottom = bottom;
#endif
}

inline void switchContext(Context& from, Context& to) {
#ifdef EMULATED_SANITIZED
  __sanitizer_start_switch_fiber(&from.fake, to.bottom, to.bytes);
  emulationSwitch(&from.stackPointer, to.stackPointer);
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#else
  emulationSwitch(&from.stackPointer, to.stackPointer);
#endif
}

// Like switchContext, but `from` is never resumed.
inline void switchFinally(Context& from, Context& to) {
#ifdef EMULATED_SANITIZED
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.bytes);
#endif
  emulationSwitch(&from.stackPointer, to.stackPointer);
}

}  // namespace emulation

#else

#include <ucontext.h>

namespace emulation {

struct Context {
  ucontext_t saved;
};
inline void completeFirstSwitch(Context&) {}
inline void adopt(Context&) {}
inline void prepare(Context& context, unsigned char* stack, size_t bytes, void (*start)()) {
  getcontext(&context.saved);
  context.saved.uc_stack.ss_sp = stack;
  context.saved.uc_stack.ss_size = bytes;
  context.saved.uc_link = nullptr;
  makecontext(&context.saved, start, 0);
}
inline void switchContext(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }
inline void switchFinally(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }

}  // namespace emulation

#endif
