import type { LoadedModel } from '#gpu-host/models/load.ts';
import type { Backend } from '../backend.ts';
import { ensureEmulatedAddon } from '../cuda/build-targets.ts';
import { type CudaBackendOptions, createCudaBackend } from '../cuda/index.ts';

/** The addon that tests compute with: one for this machine's CPU, built when it is first asked for; `PIE_CUDA_ADDON` names another, such as a card's. */
export async function testAddon(): Promise<string> {
  return process.env.PIE_CUDA_ADDON || (await ensureEmulatedAddon());
}

/** A CUDA backend for tests, in float32 unless told. */
export async function createTestCudaBackend(model: LoadedModel, options: CudaBackendOptions): Promise<Backend> {
  return createCudaBackend(model, { precision: 'float32', threads: 1, ...options, addon: await testAddon() });
}
