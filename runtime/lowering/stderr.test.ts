import assert from 'node:assert/strict';
import { it } from 'node:test';
import { Guest } from './guest.ts';
import { stderrStub } from './stderr.ts';

it("keeps the first 4096 characters of a guest's standard error, however much the guest writes", () => {
  const guest = new Guest();
  const memory = new WebAssembly.Memory({ initial: 2 });
  new Uint8Array(memory.buffer).fill('a'.charCodeAt(0), 64);
  guest.attach(memory, null);
  const write = stderrStub(guest, 'wasi:io/streams@0.2.6', '[method]output-stream.write') as (
    ...core: number[]
  ) => void;
  for (const length of [3000, 100_000, 5]) write(1, 64, length, 16);
  assert.equal(guest.stderr, 'a'.repeat(4096));
});
