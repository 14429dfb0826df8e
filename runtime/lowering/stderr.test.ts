import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Guest } from './guest.ts';
import { stderrStub } from './instance.ts';

it("the stub keeps the first 4096 characters of a guest's standard error, however much the guest writes", () => {
  const guest = new Guest();
  // Two pages: 128 KiB.
  const memory = new WebAssembly.Memory({ initial: 2 });
  const stream = 1;
  const textAt = 64;
  const resultAt = 16;
  new Uint8Array(memory.buffer).fill('a'.charCodeAt(0), textAt);
  guest.attach(memory, null);
  const write = stderrStub(guest, 'wasi:io/streams@0.2.6', '[method]output-stream.write') as (
    ...core: number[]
  ) => void;
  for (const length of [3000, 100_000, 5]) write(stream, textAt, length, resultAt);
  assert.equal(guest.stderr, 'a'.repeat(4096));
});
