import type { Distribution, ExportInfo, Imported, StepResult } from '#gpu-host/protocol/calls.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { TestInferlet } from '#runtime/testing/inferlet.ts';
import { value } from '#runtime/testing/outcome.ts';

export const PAGE_SIZE = 16;
export const MODEL = 'tiny';

export const range = (length: number, first = 0) => Uint32Array.from({ length }, (_, i) => first + i);
/** Tokens below 90, in a sequence that depends on the seed. */
export const someTokens = (length: number, seed = 1) =>
  Uint32Array.from({ length }, (_, i) => (i * 37 + seed * 11 + 3) % 90);
export const none = new Uint32Array();

export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** An error as text that begins with its tag; `ok` for a success. */
export async function refused(outcome: Promise<Outcome<unknown>> | Outcome<unknown>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? `${settled.val.tag}: ${settled.val.val}` : 'ok';
}

export const pages = (guest: TestInferlet, number: number) =>
  value(guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', guest.queue, number));
export const step = async (
  guest: TestInferlet,
  tokens: Uint32Array,
  first: number,
  inPages: Uint32Array,
  outPages: Uint32Array,
): Promise<readonly Distribution[]> =>
  value(
    await guest.call<Promise<Outcome<StepResult>>>('fused', 'step', guest.queue, {
      tokens,
      positions: range(tokens.length, first),
      inPages,
      outPages,
      mask: undefined,
      rows: tokens.length,
      output: { tag: 'distributions', val: 4 },
    }),
  ).distributions;
export const save = (guest: TestInferlet, savedPages: Uint32Array, name: string, persistent = true) =>
  guest.call<Promise<Outcome<undefined>>>('allocate', 'export-pages', guest.queue, savedPages, name, persistent);
export const load = (guest: TestInferlet, name: string) =>
  guest.call<Promise<Outcome<Imported>>>('allocate', 'import-pages', guest.queue, name);
export const remove = (guest: TestInferlet, name: string) =>
  guest.call<Promise<Outcome<undefined>>>('allocate', 'unexport', guest.queue, name);
export const makeDurable = (guest: TestInferlet, name: string, interfaceName: 'allocate' | 'kv-files' = 'allocate') =>
  guest.call<Promise<Outcome<undefined>>>(interfaceName, 'make-durable', guest.queue, name);
export const list = async (guest: TestInferlet) =>
  value(await guest.call<Promise<Outcome<readonly ExportInfo[]>>>('allocate', 'list-exports', guest.queue));
