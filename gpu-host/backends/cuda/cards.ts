import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { ADDON_FILE, type CudaDevice, CudaError, loadAddon } from './addon.ts';

/** This program's report to `pie doctor` about the machine's cards. */
export type CardsAnswer =
  /** Without `why`, the addon's file does not exist; with it, the file cannot be loaded. `named` is true when `PIE_CUDA_ADDON` names the file. */
  | { readonly kind: 'no-addon'; readonly file: string; readonly named: boolean; readonly why?: string }
  | { readonly kind: 'cards'; readonly emulated: boolean; readonly cards: readonly CudaDevice[] };

function findCards(): CardsAnswer {
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

// Runs as a separate process: a driver may crash or hang the process that queries it.
if (import.meta.main) process.stdout.write(`${JSON.stringify(findCards())}\n`);
