// allBelow finds a value that is too large at any position.
#include "bounds.h"
#include <vector>
#include "../testing/test.h"

using namespace pie;

TEST("bounds: allBelow finds a value of any size that is too large, at any position") {
  for (const uint32_t end : {1u, 7u, 1u << 20, 0x80000000u}) {
    for (size_t count = 0; count < 20; count++) {
      std::vector<uint32_t> values(count, end - 1);
      CHECK(allBelow(values.data(), count, end));
      for (size_t at = 0; at < count; at++) {
        for (const uint32_t large : {end, 0x80000000u, 0xffffffffu}) {
          values[at] = large;
          CHECK(!allBelow(values.data(), count, end));
          CHECK(largest(values.data(), count) == large);
        }
        values[at] = end - 1;
      }
    }
  }
  const uint32_t none = 0;
  CHECK(!allBelow(&none, 1, 0));
}
