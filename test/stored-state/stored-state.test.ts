import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { type Client, invoke, json, readEvents, terminal } from '../harness/events.ts';
import { newHome, Platform, until } from '../harness/platform.ts';
import { READ } from './guest.ts';
import { answersOf, type Expected, expectedOf, FOLDER, restoreState } from './stored.ts';

const entries = await readdir(FOLDER, { withFileTypes: true });
const versions = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);

// A state is never recorded anew: when a format changes, later code still has to read the earlier format. Keep the states here, and record a new
// one in another folder.
for (const version of versions)
  describe(`the state that ${version} stored`, () => {
    let home: string;
    let platform: Platform;
    let expected: Expected;
    before(async () => {
      [home, expected] = await Promise.all([newHome(), expectedOf(version)]);
      await restoreState(version, home);
      platform = await Platform.start({ home, keepHome: true, functions: false });
    });
    after(async () => {
      await platform?.[Symbol.asyncDispose]();
      await rm(home, { recursive: true, force: true, maxRetries: 10 });
    });

    const clientOf = (apiKey: string): Client => ({
      fetch: (route, init = {}) =>
        fetch(`${platform.url}${route}`, {
          ...init,
          headers: { authorization: `Bearer ${apiKey}`, ...(init.headers as Record<string, string>) },
        }),
    });

    it('is shown by the public API', async () => {
      const { tenantKey, operatorKey, invocation, answers } = expected;
      // Later versions may show more members.
      assert.partialDeepStrictEqual(await answersOf(clientOf(tenantKey), invocation), answers);
      const { tenants } = await json(await clientOf(operatorKey).fetch('/v1/tenants'));
      assert.ok(tenants.some(({ name }: { name: string }) => name === 'acme'));
      const audit = await json(await clientOf(operatorKey).fetch('/v1/audit?tenant=acme'));
      assert.match(JSON.stringify(audit), /requests-per-month/);
      await until('the schedule has a next time', async () => {
        const { schedules } = await json(await clientOf(tenantKey).fetch('/v1/schedules'));
        return schedules[0].nextAt !== null;
      });
    });

    it('still replays the events of an ended invocation', async () => {
      const { tenantKey, invocation, events } = expected;
      const route = `/v1/invocations/${invocation}/events`;
      assert.deepEqual(await readEvents(await clientOf(tenantKey).fetch(route)), events);
      const rest = await clientOf(tenantKey).fetch(route, { headers: { 'last-event-id': events[1]?.id ?? '' } });
      assert.deepEqual(await readEvents(rest), events.slice(2));
    });

    it('lets both versions of the function read the secret and the stored value, and counts usage on from the stored counters', async () => {
      const client = clientOf(expected.tenantKey);
      const used = async (): Promise<number[]> => {
        const [row] = (await json(await client.fetch('/v1/usage?by=month'))).usage;
        const { quotas } = await json(await client.fetch('/v1/quotas'));
        const quota = quotas.find((each: { quota: string }) => each.quota === 'requests-per-month');
        return [row.requests, row.succeeded, quota.used];
      };
      const before = await used();
      const [secret, , value] = terminal(expected.events)?.data.output ?? [];
      for (const [name, edition] of [
        ['keeper', 'second'],
        ['keeper@early', 'first'],
      ] as const) {
        const end = terminal(await invoke(client, name, READ));
        assert.equal(end?.event, 'result', JSON.stringify(end));
        assert.deepEqual(end.data.output, [secret, edition, value]);
      }
      assert.deepEqual(
        await used(),
        before.map((count) => count + 2),
      );
    });

    it('is shown by the command line', async () => {
      const apiKey = expected.tenantKey;
      const shown = await platform.pie(['schedule', 'list'], { apiKey });
      assert.match(shown.stdout, /nightly.*keeper/, shown.stderr);
      const attached = await platform.pie(['attach', expected.invocation], { apiKey });
      assert.match(attached.stdout, /keep: a value of acme/, attached.stderr);
    });
  });
