import { join } from 'node:path';
import type { Logger } from '#scheduler/policies/logger.ts';
import { LOADING as BUILD } from './build/child.ts';
import { LOADING as SANDBOX } from './fleet/process.ts';
import { LOADING as EXAMINATION } from './pool/examine.ts';
import { type Layers, openCodeCache, type ProgramCode } from './sandboxes/index.ts';

/** Layers of isolation for each confined program that a runtime starts, each with a cache of the program's compiled code. */
export interface ProgramLayers {
  readonly sandbox: Layers;
  readonly build: Layers;
  readonly examination: Layers;
}

export interface CompiledCode {
  readonly layers: ProgramLayers;
  /** Resolves once the runs that fill the caches have ended. */
  readonly filled: Promise<unknown>;
}

/**
 * Returns the layers for each confined program, with a code cache inside this process's compile cache. Background runs of the programs fill the
 * caches; until then the programs take longer to start. In a process without a compile cache, the layers get no code cache.
 *
 * @param signal ends the background runs
 */
export function withCompiledCode(layers: Layers, signal: AbortSignal, log: Logger): CompiledCode {
  const compileCache = process.env.NODE_COMPILE_CACHE;
  const fills: Promise<void>[] = [];
  const withCode = (name: string, code: ProgramCode): Layers => {
    const cache = compileCache ? openCodeCache({ folder: join(compileCache, name), code, layers, signal, log }) : null;
    if (cache === null) return layers;
    fills.push(cache.filled);
    return { ...layers, codeCache: cache.directory };
  };
  const programs = {
    sandbox: withCode('sandboxes', SANDBOX),
    build: withCode('builds', BUILD),
    examination: withCode('examinations', EXAMINATION),
  };
  return { layers: programs, filled: Promise.all(fills) };
}
