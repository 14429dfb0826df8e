import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { download } from './download.ts';

const CONTENT = Uint8Array.from({ length: 700_000 }, (_, i) => i % 251);

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
      [262_144, 262_144, 175_712],
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

  it('frees its memory after 30 s when the server reads nothing of it', (t) => {
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
