#include <new>
#include "../testing/test.h"
#include "waiter.h"

using namespace pie;

TEST("a waiter runs work in order; an exception becomes the error of its work, and bad_alloc becomes `out-of-memory`, not `cuda`") {
  std::vector<int> ran;
  Waiter waiter([] {});
  waiter.add(1, [&ran] { ran.push_back(1); });
  waiter.add(2, [] { throw std::bad_alloc(); });
  waiter.add(3, [] { throw EngineError("invalid", "wrong"); });
  waiter.add(4, [] { throw std::runtime_error("unknown"); });
  waiter.add(5, [&ran] { ran.push_back(5); });
  waiter.drain();
  const std::deque<WorkEnd> ends = waiter.take();
  REQUIRE(ends.size() == 5);
  CHECK((ran == std::vector<int>{1, 5}));
  const char* const codes[] = {"", "out-of-memory", "invalid", "cuda", ""};
  for (size_t i = 0; i < ends.size(); i++) {
    CHECK_EQUAL(ends[i].id, i + 1);
    CHECK_EQUAL(ends[i].error ? ends[i].error->code : "", codes[i]);
  }
}
