import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArrayDevice } from './testing/array-device.ts';
import { TransferBuffers } from './transfers.ts';

function makeDevice() {
  const device = new ArrayDevice(4, 1);
  const ends: { resolve: () => void; reject: (why: Error) => void }[] = [];
  return Object.assign(device, {
    ends,
    allocatePinned: (bytes: number) => new Uint8Array(bytes),
    pagesSettled: () => new Promise<void>((resolve, reject) => ends.push({ resolve, reject })),
  });
}

test('a released buffer is taken again only after the copies that use it have ended, and by one transfer at a time', async () => {
  const device = makeDevice();
  const buffers = new TransferBuffers(device);
  const first = buffers.take(8);
  const memory = first.bytes.buffer;
  // The second release must not let two transfers take the buffer.
  first.release();
  first.release();
  const early = buffers.take(8);
  assert.notEqual(early.bytes.buffer, memory, 'a copy may still write to it');
  for (const { resolve } of device.ends) resolve();
  await Promise.resolve();
  assert.equal(buffers.take(8).bytes.buffer, memory);
  assert.notEqual(buffers.take(8).bytes.buffer, memory);
});

test('a buffer whose copies failed is never used again', async () => {
  const device = makeDevice();
  const buffers = new TransferBuffers(device);
  const failed = buffers.take(8);
  failed.release();
  device.ends[0]?.reject(new Error('lost'));
  await Promise.resolve();
  assert.notEqual(buffers.take(8).bytes.buffer, failed.bytes.buffer);
});
