import { extname } from 'node:path';

/** Endings of the sources that this folder compiles. */
export const ENDINGS = ['.c', '.rs', '.wasm'] as const;

/** True for a source that this folder compiles. */
export const isNative = (entry: string): boolean => (ENDINGS as readonly string[]).includes(extname(entry));
