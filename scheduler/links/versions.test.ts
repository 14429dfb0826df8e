import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { commonVersion, statedVersions, type Versions, versionRefusal } from './versions.ts';

const MAX_OLDEST = 40;
const MAX_MORE = 3;
const versions = fc
  .tuple(fc.nat(MAX_OLDEST), fc.nat(MAX_MORE))
  .map(([oldest, more]): Versions => ({ oldest, newest: oldest + more }));
const speaks = ({ oldest, newest }: Versions, version: number) => oldest <= version && version <= newest;

test('two sides agree on the newest version that both speak', () => {
  fc.assert(
    fc.property(versions, versions, (one, other) => {
      const common = Array.from({ length: MAX_OLDEST + MAX_MORE + 1 }, (_, version) => version).filter(
        (version) => speaks(one, version) && speaks(other, version),
      );
      assert.equal(commonVersion(one, other), common.at(-1) ?? null);
      assert.equal(commonVersion(other, one), commonVersion(one, other));
    }),
  );
});

test('releases that also speak the version before their own agree with the release before and after', () => {
  for (let release = 1; release < 10; release++) {
    const [before, now] = [release - 1, release].map((newest) => ({ oldest: newest - 1, newest })) as [
      Versions,
      Versions,
    ];
    assert.equal(commonVersion(before, now), before.newest);
  }
});

test('a refusal names the side that is too old, whichever side is passed first', () => {
  const host = { name: 'GPU host', versions: { oldest: 12, newest: 13 } };
  const runtime = { name: 'runtime', versions: { oldest: 11, newest: 11 } };
  const text =
    'The runtime is too old for the GPU host: it speaks version 11 of the GPU protocol, the GPU host versions 12 to 13. Install a newer release of Pie on the machine of the runtime.';
  assert.equal(versionRefusal('GPU protocol', host, runtime), text);
  assert.equal(versionRefusal('GPU protocol', runtime, host), text);
});

test('`statedVersions` accepts two 16-bit whole numbers, the oldest not above the newest, and refuses all else', () => {
  assert.equal(statedVersions(undefined), null);
  assert.deepEqual(statedVersions({ oldest: 1, newest: 2, more: 1 }), { oldest: 1, newest: 2 });
  const wrong = [null, 1, '1', [], {}, { oldest: 2, newest: 1 }, { oldest: -1, newest: 1 }, { oldest: 0.5, newest: 1 }];
  for (const value of [...wrong, { oldest: 1, newest: 65_536 }]) assert.equal(statedVersions(value), null);
});
