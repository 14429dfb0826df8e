import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { download } from './answer.ts';

const CONTENT = Uint8Array.from({ length: 700_000 }, (_, i) => i % 251);
/** Bytes of every piece but the last one. */
const PIECE_BYTES = 256 * 1024;

describe('a download', () => {
  const begin = () => {
    let freed = 0;
    const stream = download(CONTENT, () => freed++);
    return { stream, reader: () => stream.getReader(), freed: () => freed };
  };

  it('passes every byte in pieces and frees its memory at the end', async () => {
    const { stream, freed } = begin();
    const pieces: Uint8Array[] = [];
    for await (const piece of stream) {
      assert.equal(freed(), 0);
      pieces.push(piece);
    }
    assert.deepEqual(
      pieces.map(({ length }) => length),
      [PIECE_BYTES, PIECE_BYTES, CONTENT.length - 2 * PIECE_BYTES],
    );
    assert.ok(Buffer.concat(pieces).equals(CONTENT));
    assert.equal(freed(), 1);
  });

  it('frees its memory when the client leaves', async () => {
    const { reader, freed } = begin();
    const client = reader();
    await client.read();
    await client.cancel();
    assert.equal(freed(), 1);
  });

  it('frees its memory after 30 s when the server never reads from it', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { freed } = begin();
    t.mock.timers.tick(30_000);
    assert.equal(freed(), 1);
  });

  it('fails and frees its memory when the client takes nothing for 30 s', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { reader, freed } = begin();
    const client = reader();
    await client.read();
    t.mock.timers.tick(29_000);
    // The 30 s begin anew when the client takes a piece.
    await client.read();
    t.mock.timers.tick(29_000);
    assert.equal(freed(), 0);
    t.mock.timers.tick(1000);
    assert.equal(freed(), 1);
    await assert.rejects(client.read(), /the client took nothing for too long/);
  });
});
