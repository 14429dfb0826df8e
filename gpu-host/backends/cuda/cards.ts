import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { ADDON_FILE, type CudaDevice, loadAddon } from './addon.ts';
import { CudaError } from './errors.ts';

/** What `pie doctor` is told of cards. */
export type CardsAnswer =
  /** There is no addon, or, with `why`, it cannot be loaded. `named`: by `PIE_CUDA_ADDON`. */
  | { readonly kind: 'no-addon'; readonly file: string; readonly named: boolean; readonly why?: string }
  | { readonly kind: 'cards'; readonly emulated: boolean; readonly cards: readonly CudaDevice[] };

function ask(): CardsAnswer {
  const named = Boolean(process.env.PIE_CUDA_ADDON);
  const file = resolve(process.env.PIE_CUDA_ADDON || ADDON_FILE);
  if (!existsSync(file)) return { kind: 'no-addon', file, named };
  try {
    const addon = loadAddon(file);
    return { kind: 'cards', emulated: addon.emulated, cards: addon.devices() };
  } catch (error) {
    if (!(error instanceof CudaError && error.cause instanceof Error)) throw error;
    return { kind: 'no-addon', file, named, why: error.cause.message };
  }
}

// A process of its own: a driver may crash or hang whoever asks it.
if (import.meta.main) process.stdout.write(`${JSON.stringify(ask())}\n`);
