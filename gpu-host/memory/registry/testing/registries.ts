import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { CallFault } from '../../fault.ts';
import type { RegistryLimits } from '../entry.ts';
import { PageRegistry } from '../registry.ts';
import type { Requester } from '../stored.ts';
import { PAGE_BYTES, PAGE_SIZE, PageMemory, TestRequester, type TestSnapshot } from './page-memory.ts';

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

  /** An inferlet of tenant `t`. */
  readonly requester: TestRequester;

  constructor(
    directory: string | undefined,
    model: 0 | 1 = 0,
    limits: Partial<RegistryLimits> = {},
    wait?: () => number,
  ) {
    this.requester = new TestRequester(this.memory, 't', wait);
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

const turns = new TestRequester(new PageMemory());
/** A requester that saves, and fails the test when a snapshot has to come from disk. */
export const memoryOnly: Requester<TestSnapshot> = {
  tenant: 't',
  hasEnded: false,
  whenEnded: () => () => undefined,
  between: (next) => turns.between(next),
  restore: () => assert.fail('nothing had to come from disk'),
};

/** Gives an importer the snapshot itself. */
export const same = (snapshot: TestSnapshot): TestSnapshot => snapshot;

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

/** The tag of the CallFault that `body` throws or rejects with, or undefined when it does neither. */
export async function laterRefusalOf(body: () => unknown): Promise<string | undefined> {
  try {
    await body();
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
export async function assertRejected(promise: unknown, tag: string, text: RegExp = /./): Promise<void> {
  assert.ok(promise instanceof Promise);
  await assert.rejects(promise, (error) => isFault(error, tag, text));
}

function isFault(error: unknown, tag: string, text: RegExp): boolean {
  assert.ok(error instanceof CallFault, String(error));
  assert.equal(error.error.tag, tag, error.message);
  assert.match(error.message, text);
  return true;
}
