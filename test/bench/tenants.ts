import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RUNTIME } from '#infra/runtimes.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { outcomeMs } from './clients.ts';
import { memoryOfTrees, sandboxesOf } from './process-usage.ts';
import { format, formatTail } from './statistics.ts';

/** A sandbox ends after this idle time. */
const SANDBOX_IDLE_S = 5;
/** Wait after the last call, in which the last sandboxes end. */
const AFTER_LAST_S = SANDBOX_IDLE_S + 3;
const TENANTS_IN_TURN = 100;
const QUICK_TENANTS_IN_TURN = 14;
const IDLE_TENANTS = 1000;
const QUICK_IDLE_TENANTS = 12;
const MAX_ROUNDS = 3;
const MAX_SANDBOXES = 16;
const CONFIG = `[runtime]\nmax_sandboxes = ${MAX_SANDBOXES}\nsandbox_idle_s = ${SANDBOX_IDLE_S}\n`;
const SOURCE = `export async function run() { return '"here"'; }\n`;
/** Minimum time between two readings of the memory. */
const SAMPLE_MS = 200;

/** Memory of the runtime and its sandboxes while many tenants invoke in turn, and while all are idle. */
export const tenants: Bench = {
  name: 'tenants',
  help: `Reads the proportional memory of the runtime with its sandboxes while ${TENANTS_IN_TURN} tenants call in turn, each up to ${MAX_ROUNDS} times, and
after ${IDLE_TENANTS} tenants have called once and are idle. At most ${MAX_SANDBOXES} sandboxes run at once. The baseline is the same runtime before any
tenant has called.`,
  quick: `${QUICK_TENANTS_IN_TURN} tenants in turn instead of ${TENANTS_IN_TURN}, and ${QUICK_IDLE_TENANTS} that call once instead of ${IDLE_TENANTS}.`,
  summary: 'memory of the runtime and its sandboxes: many tenants in turn, and many that are idle',
  async run({ repetitions, quick, progress }) {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'pie-tenants-'));
    try {
      const config = path.join(directory, 'pie.toml');
      await writeFile(config, CONFIG);
      await using platform = await Platform.start({ functions: false, env: { PIE_CONFIG: config } });
      const source = path.join(directory, 'here.ts');
      const component = path.join(directory, 'here.wasm');
      await writeFile(source, SOURCE);
      const build = await platform.pie(['build', source, '--out', component]);
      if (build.code !== 0) throw new Error(build.stderr);
      const bytes = await readFile(component);
      const newTenant = async (name: string): Promise<TenantClient> => {
        const tenant = await createTenant(platform, name);
        const form = new FormData();
        form.set('manifest', JSON.stringify({ name: 'here' }));
        form.set('component', new Blob([bytes], { type: 'application/wasm' }), 'component.wasm');
        const response = await tenant.fetch('/v1/functions/here', { method: 'PUT', body: form });
        if (!response.ok) throw new Error(await response.text());
        return tenant;
      };
      const memoryMb = () => (memoryOfTrees(platform.processes).get(RUNTIME) ?? Number.NaN) / 2 ** 20;
      const rows: string[][] = [];
      let emptyMb: number | undefined;
      const row = (name: string, calls: readonly number[], mb: number, sandboxes: number) => {
        emptyMb ??= mb;
        rows.push([
          name,
          String(calls.length),
          formatTail(calls),
          format(mb, 0),
          format(mb / emptyMb),
          String(sandboxes),
        ]);
        progress(`${name}: ${format(mb, 0)} MiB, ${sandboxes} sandboxes`);
      };
      await sleep(2000);
      row('no tenant has called', [], memoryMb(), sandboxesOf(platform.processes));

      const tenantCount = quick ? QUICK_TENANTS_IN_TURN : TENANTS_IN_TURN;
      const tenantsInTurn: TenantClient[] = [];
      for (let i = 0; i < tenantCount; i++) tenantsInTurn.push(await newTenant(`turn-${i}`));
      let peakMb = 0;
      let peakSandboxes = 0;
      const calls: number[] = [];
      let sampledAtMs = 0;
      for (let round = 0; round < Math.min(MAX_ROUNDS, repetitions); round++) {
        for (const tenant of tenantsInTurn) {
          calls.push(await callMs(tenant));
          // Read between two calls, because a reading blocks the thread that measures times.
          if (performance.now() - sampledAtMs < SAMPLE_MS) continue;
          peakMb = Math.max(peakMb, memoryMb());
          peakSandboxes = Math.max(peakSandboxes, sandboxesOf(platform.processes));
          sampledAtMs = performance.now();
        }
        progress(`round ${round + 1}: ${tenantCount} tenants have called`);
      }
      row(`${tenantCount} tenants in turn, at the peak`, calls, peakMb, peakSandboxes);

      const idleCount = quick ? QUICK_IDLE_TENANTS : IDLE_TENANTS;
      const idleCalls: number[] = [];
      for (let i = 0; i < idleCount; i++) {
        idleCalls.push(await callMs(await newTenant(`idle-${i}`)));
        if ((i + 1) % 100 === 0) progress(`${i + 1} of ${idleCount} tenants have called once`);
      }
      await sleep(AFTER_LAST_S * 1000);
      row(
        `${idleCount} tenants that called once, ${AFTER_LAST_S} s after the last`,
        idleCalls,
        memoryMb(),
        sandboxesOf(platform.processes),
      );
      return {
        title: `Memory of the runtime with its sandboxes (at most ${MAX_SANDBOXES}; one ends after ${SANDBOX_IDLE_S} idle seconds)`,
        header: ['', 'calls', 'ms p50, p99', 'memory, MiB', 'over no tenant', 'sandboxes'],
        rows,
        notes: [
          'Memory is proportional (PSS): what the processes share, such as the program itself, counts once. The peak is that of readings between calls.',
          'Times are from the request to the outcome at the HTTP client; each call starts a sandbox, because that of the tenant has not started yet or has ended.',
        ],
        data: rows,
      };
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

const callMs = (tenant: TenantClient): Promise<number> => outcomeMs(tenant, 'here', {});
