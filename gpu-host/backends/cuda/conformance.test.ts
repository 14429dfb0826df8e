import { conformance } from '../testing/conformance/index.ts';
import { POOL } from '../testing/conformance/topic.ts';
import { createTestCudaBackend } from '../testing/cuda.ts';

conformance({ name: 'cuda', create: (model) => createTestCudaBackend(model, POOL) });
conformance({
  name: 'cuda, keys and values in 8 bits',
  create: (model) => createTestCudaBackend(model, { ...POOL, precision: 'bf16', kv: 'fp8' }),
  // A key rotated to another position is rounded differently.
  tolerance: 5e-2,
});
