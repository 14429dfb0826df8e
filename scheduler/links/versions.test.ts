import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { commonVersion, statedVersions, type Versions, versionRefusal } from './versions.ts';

const versions = fc.tuple(fc.nat(40), fc.nat(3)).map(([oldest, more]): Versions => ({ oldest, newest: oldest + more }));
const speaks = ({ oldest, newest }: Versions, version: number) => oldest <= version && version <= newest;

test('two sides find the same version: the newest that both speak', () => {
  fc.assert(
    fc.property(versions, versions, (one, other) => {
      // The highest version of `versions` is 43.
      const common = Array.from({ length: 50 }, (_, version) => version).filter(
        (version) => speaks(one, version) && speaks(other, version),
      );
      assert.equal(commonVersion(one, other), common.at(-1) ?? null);
      assert.equal(commonVersion(other, one), commonVersion(one, other));
    }),
  );
});

test('a side that speaks one version back works with every neighbouring release', () => {
  for (let release = 1; release < 10; release++) {
    const [before, now] = [release - 1, release].map((newest) => ({ oldest: newest - 1, newest })) as [
      Versions,
      Versions,
    ];
    assert.equal(commonVersion(before, now), before.newest);
  }
});

test('a refusal names the side that is too old, in whichever order they are given', () => {
  const host = { name: 'GPU host', versions: { oldest: 12, newest: 13 } };
  const runtime = { name: 'runtime', versions: { oldest: 11, newest: 11 } };
  const text =
    'The runtime is too old for the GPU host: it speaks version 11 of the GPU protocol, the GPU host versions 12 to 13. Install a newer release of Pie on the machine of the runtime.';
  assert.equal(versionRefusal('GPU protocol', host, runtime), text);
  assert.equal(versionRefusal('GPU protocol', runtime, host), text);
});

test('stated versions are two whole numbers of 16 bits, the oldest first; all else is malformed', () => {
  assert.deepEqual(statedVersions(undefined, 3), { oldest: 3, newest: 3 });
  assert.deepEqual(statedVersions({ oldest: 1, newest: 2, more: 1 }, 3), { oldest: 1, newest: 2 });
  const wrong = [null, 1, '1', [], {}, { oldest: 2, newest: 1 }, { oldest: -1, newest: 1 }, { oldest: 0.5, newest: 1 }];
  for (const value of [...wrong, { oldest: 1, newest: 65_536 }]) assert.equal(statedVersions(value, 3), null);
});
