import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Backend } from '../backend.ts';
import { ensureEmulatedAddon } from '../cuda/build-cache.ts';
import { type CudaBackendOptions, createCudaBackend } from '../cuda/index.ts';
import { withWholeRows } from './whole-rows.ts';

/** The tests' addon: the emulated one, which the first call builds, or the file that `PIE_CUDA_ADDON` names, such as a card's addon. */
export async function testAddon(): Promise<string> {
  return process.env.PIE_CUDA_ADDON || (await ensureEmulatedAddon());
}

/** A CUDA backend for tests, by default in float32 and without graphs captured at start. */
export async function createTestCudaBackend(model: LoadedModel, options: CudaBackendOptions): Promise<Backend> {
  const defaults = { precision: 'float32', threads: 1, warmUpMs: 0 } as const;
  return withWholeRows(await createCudaBackend(model, { ...defaults, ...options, addon: await testAddon() }));
}
