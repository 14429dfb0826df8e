import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { PageRecords } from '../../memory/page-records.ts';
import { fillSlot } from '../../memory/pool.ts';
import type { DeviceTurns } from '../../memory/registry/stored.ts';
import { makeMemory } from '../../memory/testing/memory.ts';
import { PIECE_BYTES } from '../../protocol/wire.ts';
import { Sending } from './copies.ts';

const PAGE_SIZE = 32;
/** More pages than one piece of a transfer holds. */
const PAGES = 5000;

const turns: DeviceTurns = {
  between: async (next) => {
    while (next()) await setImmediate();
  },
};

test('a sending waits for the copies from the device, refuses a second read at the same time, and stops when it is ended', async () => {
  const { memory, device, open } = makeMemory({ pages: PAGES, pageSize: PAGE_SIZE });
  const space = open();
  space.allocate(1, PAGES);
  const addresses = Uint32Array.from({ length: PAGES }, (_, i) => i + 1);
  for (const address of addresses) {
    const { page } = space.mapping(address);
    device.write(page.frame * PAGE_SIZE, 1000 + address, address);
    fillSlot(page, 0, address);
  }
  const layout = { pageSize: PAGE_SIZE, pageBytes: device.pageBytes };
  const sending = new Sending(space.snapshot(addresses), memory, layout);
  const pieces: Uint8Array[] = [];
  for (let piece = await sending.next(turns); piece.length > 0; piece = await sending.next(turns)) pieces.push(piece);
  assert.equal(sending.checksum(), createHash('sha256').update(Buffer.concat(pieces)).digest('hex'));
  assert.ok(pieces.length > 1, `${pieces.length} pieces`);
  const records = new PageRecords(PAGES, layout, PIECE_BYTES, pieces);
  const data = new Int32Array(PAGE_SIZE * 2);
  for (const [i, address] of addresses.entries()) {
    const { filled, positions } = records.pageAt(i);
    assert.deepEqual([filled, positions[0]], [1, address]);
    records.readPages(i, new Uint8Array(data.buffer));
    assert.deepEqual([data[0], data[1]], [1000 + address, address], `page ${address}`);
  }
  sending.end();
  const twice = new Sending(space.snapshot(addresses), memory, layout);
  const piece = twice.next(turns);
  await assert.rejects(twice.next(turns), /the piece before is still being read/);
  assert.deepEqual(await piece, pieces[0]);
  twice.end();
  const cut = new Sending(space.snapshot(addresses), memory, layout);
  const reading = cut.next({
    between: async (next) => {
      cut.end();
      next();
    },
  });
  await assert.rejects(reading, /the sending has ended/);
  memory.audit();
});
