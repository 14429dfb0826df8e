import type { Outcome } from '#gpu-host/protocol/errors.ts';

export const PAGE_SIZE = 16;
export const MODEL = 'tiny';

export const count = (length: number, first = 0) => Uint32Array.from({ length }, (_, i) => first + i);
export const text = (length: number, seed = 1) => Uint32Array.from({ length }, (_, i) => (i * 37 + seed * 11 + 3) % 90);
export const none = new Uint32Array();

export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** The error, as text that begins with its tag. */
export async function refused(outcome: Promise<Outcome<unknown>> | Outcome<unknown>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? `${settled.val.tag}: ${settled.val.val}` : 'ok';
}
