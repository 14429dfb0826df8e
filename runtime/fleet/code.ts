import { join } from 'node:path';
import { type CodeCache, type Layers, openCodeCache } from '../sandboxes/index.ts';
import { LOADING } from './process.ts';

/** The compiled code of sandboxes in this process's compile cache; null when the process has no cache. `signal` ends the run that fills it. */
export function sandboxCode(layers: Layers, signal: AbortSignal, onError: (error: unknown) => void): CodeCache | null {
  const own = process.env.NODE_COMPILE_CACHE;
  if (!own) return null;
  return openCodeCache({ folder: join(own, 'sandboxes'), program: LOADING, layers, signal, onError });
}
