import { conformance } from '../testing/conformance/index.ts';
import { POOL } from '../testing/conformance/topic.ts';
import { createGgmlBackend } from './index.ts';

conformance({ name: 'ggml', create: (model) => createGgmlBackend(model, { ...POOL, bits: 32, threads: 1 }) });
conformance({
  name: 'ggml, keys and values in 16 bits',
  create: (model) => createGgmlBackend(model, { ...POOL, bits: 32, kv: 'float16', threads: 1 }),
  // A sequence's own keys and values have 32 bits until they are stored.
  tolerance: 5e-3,
});
