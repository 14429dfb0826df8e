/**
 * A tenant that takes all it can of each shared resource, beside a small neighbour that wants little of the same. docs/threat-model.md lists the
 * resources and their bounds; other tests check the bounds themselves.
 */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { deployWith } from '#test/harness/deploy.ts';
import { invoke, json, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import { type Platform, until } from '#test/harness/platform.ts';
import { createTenant, submit, type TenantClient } from '#test/harness/tenants.ts';

/** Invocations of the hoarder at once. */
const HOARDERS = 6;

/** For each resource, the units that one invocation of the hoarder wants. */
const RESOURCES = { values: 400, messages: 1600, events: 1600, texts: 400, grammars: 40, entries: 100 };

describe('beside a hoarder', () => {
  let platform: Platform;
  let hoarder: TenantClient;
  let neighbour: TenantClient;
  before(async () => {
    platform = await functionsPlatform();
    [hoarder, neighbour] = [await createTenant(platform, 'hoarder'), await createTenant(platform, 'neighbour')];
    for (const { apiKey } of [hoarder, neighbour]) await deployWith(platform, 'hoarder', {}, apiKey);
  });

  const statesOf = (ids: readonly string[]): Promise<{ status: string; error?: { code: string } }[]> =>
    Promise.all(ids.map(async (id) => json(await hoarder.fetch(`/v1/invocations/${id}`))));

  for (const [what, units] of Object.entries(RESOURCES)) {
    test(`a neighbour gets its few ${what}, and the hoarder is only refused or cancelled`, async () => {
      const ids = await Promise.all(
        Array.from({ length: HOARDERS }, (_, i) =>
          submit(hoarder, 'hoarder', { what, n: units, mark: `${what}-${i}` }),
        ),
      );
      await until('the hoarder runs', async () => (await statesOf(ids)).some(({ status }) => status === 'running'));
      for (let i = 0; i < 3; i++) {
        const end = terminal(await invoke(neighbour, 'hoarder', { what, n: 2, mark: `little-${i}` }));
        assert.deepEqual(end?.data.output, { taken: 2 }, JSON.stringify(end));
      }
      for (const id of ids) await hoarder.fetch(`/v1/invocations/${id}`, { method: 'DELETE' });
      await until('the hoarder has ended', async () =>
        (await statesOf(ids)).every(({ status }) => !['queued', 'running'].includes(status)),
      );
      // A refusal that the guest catches is part of its result. Without one, the hoarder runs until it is cancelled.
      for (const { status, error } of await statesOf(ids))
        assert.ok(status === 'succeeded' || error?.code === 'cancelled', `${status}: ${JSON.stringify(error)}`);
    });
  }
});
