import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { deployWith } from '#test/harness/deploy.ts';
import { readEvents, terminal } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';

/** Duration of the load; half of it beside each number of busy processes. `PIE_STARVED_S=60` tries the test. */
const LOAD_S = Number(process.env.PIE_STARVED_S ?? (process.env.PIE_TEST_ALL ? 600 : 0));
const HOGS = [4, 20];
/** Cores of the platform and of the busy processes. */
const CORES = '0,1';
/** Invocations at once, over all tenants. */
const CLIENTS = 24;
const TENANTS = ['first', 'second', 'third'];

/** Codes of errors by which the platform ends an invocation that neither its function nor its client has ended. */
const PLATFORM_CODES: ReadonlySet<string> = new Set([
  'runtime-lost',
  'device-lost',
  'terminated',
  'unavailable',
  'internal',
  'quarantined',
]);

const skip = LOAD_S === 0 && 'it takes ten minutes; `npm run test:all` or PIE_STARVED_S=60 runs it';

describe('two cores beside busy processes', { skip }, () => {
  let platform: Platform;
  const hogs = new Set<ChildProcess>();
  before(async () => {
    platform = await Platform.start({ functions: ['text-completion'], on: ['taskset', '-c', CORES] });
  });
  after(async () => {
    for (const hog of hogs) hog.kill('SIGKILL');
    await platform?.[Symbol.asyncDispose]();
  });

  test('lose no runtime, and each end that the platform causes has its record', {
    timeout: (LOAD_S + 600) * 1000,
  }, async (t) => {
    const tenants = await Promise.all(TENANTS.map((name) => createTenant(platform, name)));
    for (const { apiKey } of tenants) await deployWith(platform, 'counted', {}, apiKey);
    const died: string[] = [];
    const watching = new AbortController();
    void (async () => {
      while (!watching.signal.aborted) {
        const { name, why } = await platform.event(({ kind }) => kind === 'died', 2 ** 31 - 1);
        died.push(`${name}: ${why}`);
      }
    })().catch(() => undefined);
    const ends = new Map<string, { readonly code: string; readonly message: string }>();
    for (const count of HOGS) {
      while (hogs.size < count) hogs.add(busyProcess());
      const untilMs = performance.now() + (LOAD_S / HOGS.length) * 1000;
      await Promise.all(
        Array.from({ length: CLIENTS }, async (_, client) => {
          for (let i = 0; performance.now() < untilMs; i++) {
            const tenant = tenants[client % tenants.length] ?? assert.fail();
            const [id, end] = await invokeOnce(tenant, client, i);
            ends.set(id, end);
          }
        }),
      );
    }
    watching.abort();
    // Records are written a moment after the ends that they report.
    await sleep(1000);
    const records = logs(platform);
    const byPlatform = [...ends].filter(([, { code }]) => PLATFORM_CODES.has(code));
    const unrecorded = byPlatform.filter(([id]) => !records.includes(id));
    const counts = Object.fromEntries(
      [...Map.groupBy(ends.values(), ({ code }) => code)].map(([c, e]) => [c, e.length]),
    );
    t.diagnostic(
      `ends: ${JSON.stringify(counts)}; by the platform ${byPlatform.length}, without a record ${unrecorded.length}`,
    );
    t.diagnostic(
      `late leases: ${records.match(/has not renewed its lease/g)?.length ?? 0}; children that died: ${died.join('; ')}`,
    );
    assert.ok((counts.result ?? 0) > 0, 'invocations succeed');
    assert.equal(counts['runtime-lost'] ?? 0, 0, JSON.stringify(byPlatform.slice(0, 3)));
    assert.deepEqual(died, []);
    assert.deepEqual(unrecorded, []);
  });
});

/** Computes in a session of its own, so that the kernel's autogroups give it as much as a whole process of the platform. */
function busyProcess(): ChildProcess {
  const hog = spawn('taskset', ['-c', CORES, process.execPath, '-e', 'for(;;);'], { detached: true, stdio: 'ignore' });
  hog.unref();
  return hog;
}

/** Invokes one of three kinds of work, and follows it to its end. Returns its id, and `result` or the error of its end. */
async function invokeOnce(tenant: TenantClient, client: number, i: number) {
  const mark = `${tenant.name}-${client}-${i}`;
  const inputs = [
    { mark, tokens: 60 },
    { mark, tokens: 20, pauseMs: 50 },
    { mark, tokens: 12, child: true },
  ];
  const response = await tenant.fetch('/v1/functions/counted/invocations', {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify(inputs[i % inputs.length]),
  });
  const id = (response.headers.get('content-location') ?? response.headers.get('location'))?.split('/').at(-1) ?? mark;
  if (!response.ok) {
    const { code = `${response.status}`, message = '' } = (await response.json()) as {
      code?: string;
      message?: string;
    };
    return [id, { code, message }] as const;
  }
  const end = terminal(await readEvents(response));
  const { code = 'closed', message = '' } = end?.event === 'result' ? { code: 'result' } : { ...end?.data };
  return [id, { code: String(code), message: String(message) }] as const;
}

/** All logs of the platform's processes. */
function logs({ home }: Platform): string {
  const folder = path.join(home, 'logs');
  return readdirSync(folder)
    .map((file) => readFileSync(path.join(folder, file), 'utf8'))
    .join('\n');
}
