import assert from 'node:assert/strict';
import path from 'node:path';
import { buildCache } from '#gateway/cli/paths.ts';
import { buildComponent } from '#runtime/build/index.ts';

const built = new Map<string, Promise<Uint8Array>>();

/** Builds a source into a script or, from C or Rust, a component. Each source is built once in a process. */
export function builtComponent(entry: string): Promise<Uint8Array> {
  const full = path.resolve(entry);
  const known = built.get(full) ?? build(full);
  built.set(full, known);
  return known;
}

async function build(entry: string): Promise<Uint8Array> {
  const outcome = await buildComponent(entry, { store: buildCache() });
  assert.ok(outcome.ok, JSON.stringify(outcome));
  return outcome.component;
}
