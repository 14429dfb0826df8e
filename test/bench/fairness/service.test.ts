import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { boundOf, compareService, type Request } from './service.ts';

const request = (client: 0 | 1, sentMs: number, piecesMs: readonly number[]): Request => ({
  client,
  sentMs,
  piecesMs,
  input: 10,
  output: 2 * piecesMs.length,
  endMs: piecesMs.at(-1) ?? 1000,
});
/** Requests that wait until the end. */
const waiting = (client: 0 | 1, sentMs: number, count: number): Request[] =>
  Array.from({ length: count }, () => request(client, sentMs, []));

describe('service of two clients', () => {
  it('differs by the surplus of one client within a window in which both wait', () => {
    const both = [...waiting(0, 0, 2), ...waiting(1, 0, 2)];
    // Each request costs 10 input + 2 × 4 output tokens = 18: one of the first client, then two of the second. The first client's lead falls from
    // 18 to -18.
    const requests = [...both, request(0, 0, [100, 200]), request(1, 0, [300, 400]), request(1, 0, [500, 600])];
    assert.deepEqual(compareService(requests, 1, 1000), { difference: 36, waitedMs: 1000, served: [18, 36] });
  });

  it('counts nothing while one of the clients does not wait', () => {
    const first = [...waiting(0, 0, 3), request(0, 0, [100, 200])];
    const none = { difference: 0, waitedMs: 0, served: [0, 0] };
    assert.deepEqual(compareService([...first, request(1, 0, [300])], 1, 1000), none);
    // Both wait from 150 ms on. After that, one piece of the first client arrives: 2 tokens of weight 2.
    const secondWaitsLater = [...first, ...waiting(1, 150, 2)];
    assert.deepEqual(compareService(secondWaitsLater, 1, 1000), { difference: 4, waitedMs: 850, served: [4, 0] });
  });

  it("is bounded, under VTC, by twice the service of the longest prompt or of a batch's output, whichever is larger", () => {
    // 2 × (2 × 1,024) and 2 × (1 × 5,000).
    assert.equal(boundOf(64, 1024), 4096);
    assert.equal(boundOf(5000, 1024), 10_000);
  });
});
