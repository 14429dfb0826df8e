import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { CallFault } from '../../fault.ts';
import type { RegistryLimits } from '../entry.ts';
import { PageRegistry } from '../registry.ts';
import { PAGE_BYTES, PAGE_SIZE, PageMemory, type TestSnapshot } from './page-memory.ts';

/** Two models that cannot use each other's pages. */
export const MODELS = [
  { name: 'stories (onnx, 8/8 bits, pages of 4)', hash: 'a'.repeat(64) },
  { name: 'minimind (onnx, 8/8 bits, pages of 4)', hash: 'b'.repeat(64) },
] as const;

/** Makes a directory that is removed after the test. */
export function temporaryDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'pie-registry-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** One life of a host: a memory, and a registry over a directory. */
export class Life {
  readonly memory = new PageMemory();
  readonly registry: PageRegistry<TestSnapshot>;

  constructor(directory: string | undefined, model: 0 | 1 = 0, limits: Partial<RegistryLimits> = {}) {
    this.registry = new PageRegistry<TestSnapshot>({
      memory: this.memory,
      pageSize: PAGE_SIZE,
      pageBytes: PAGE_BYTES,
      pageCount: 1000,
      kv: directory === undefined ? undefined : { directory, fingerprint: MODELS[model] },
      limits,
    });
  }
}

/** The tag of the CallFault that `body` throws, or undefined when it throws none. */
export function refusalOf(body: () => unknown): string | undefined {
  try {
    body();
  } catch (error) {
    assert.ok(error instanceof CallFault, String(error));
    return error.error.tag;
  }
  return undefined;
}

/** Asserts that `body` throws a CallFault of that tag whose text matches. */
export function assertRefused(body: () => unknown, tag: string, text: RegExp = /./): void {
  assert.throws(body, (error) => isFault(error, tag, text));
}

/** Asserts that `promise` rejects with a CallFault of that tag whose text matches. */
export async function assertRejected(promise: Promise<unknown> | undefined, tag: string, text: RegExp): Promise<void> {
  assert.ok(promise);
  await assert.rejects(promise, (error) => isFault(error, tag, text));
}

function isFault(error: unknown, tag: string, text: RegExp): boolean {
  assert.ok(error instanceof CallFault, String(error));
  assert.equal(error.error.tag, tag, error.message);
  assert.match(error.message, text);
  return true;
}
