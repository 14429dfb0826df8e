import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RUNTIME } from '#infra/runtimes.ts';
import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, type TenantClient } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { outputOf } from './clients.ts';
import { sandboxesOf, usageOfTrees } from './process-usage.ts';
import { format, quantile } from './statistics.ts';

const IDLE_S = 5;
const MOST_SANDBOXES = 16;
const CONFIG = `[runtime]\nmax_sandboxes = ${MOST_SANDBOXES}\nsandbox_idle_s = ${IDLE_S}\n`;
const SOURCE = `export async function run() { return '"here"'; }\n`;
const SAMPLE_MS = 200;

/** Memory of the runtime and its sandboxes while many tenants invoke in turn, and while all are idle. */
export const tenants: Bench = {
  name: 'tenants',
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
      const residentMb = () =>
        [...usageOfTrees(platform.processes)]
          .filter(([name]) => name === RUNTIME)
          .reduce((sum, [, { residentBytes }]) => sum + residentBytes / 2 ** 20, 0);
      const rows: string[][] = [];
      const row = (name: string, calls: readonly number[], mb: number, sandboxes: number) => {
        const sorted = [...calls].sort((a, b) => a - b);
        const times = calls.length > 0 ? [0.5, 0.99].map((q) => format(quantile(sorted, q), 1)) : ['', ''];
        rows.push([name, String(calls.length), ...times, format(mb, 0), String(sandboxes)]);
        progress(`${name}: ${format(mb, 0)} MiB, ${sandboxes} sandboxes`);
      };
      await sleep(2000);
      row('no tenant has called', [], residentMb(), sandboxesOf(platform.processes));

      const many = quick ? 20 : 100;
      const turn: TenantClient[] = [];
      for (let i = 0; i < many; i++) turn.push(await newTenant(`turn-${i}`));
      let peakMb = 0;
      let peakSandboxes = 0;
      const sampler = setInterval(() => {
        peakMb = Math.max(peakMb, residentMb());
        peakSandboxes = Math.max(peakSandboxes, sandboxesOf(platform.processes));
      }, SAMPLE_MS);
      const calls: number[] = [];
      for (let round = 0; round < (quick ? 1 : Math.min(3, repetitions)); round++) {
        for (const tenant of turn) calls.push(await callOf(tenant));
      }
      clearInterval(sampler);
      row(`${many} tenants in turn, at the peak`, calls, peakMb, peakSandboxes);

      const idle = quick ? 50 : 1000;
      const idleCalls: number[] = [];
      for (let i = 0; i < idle; i++) idleCalls.push(await callOf(await newTenant(`idle-${i}`)));
      await sleep((IDLE_S + 3) * 1000);
      row(
        `${idle} tenants that called once, ${IDLE_S + 3} s after the last`,
        idleCalls,
        residentMb(),
        sandboxesOf(platform.processes),
      );
      return {
        title: `Memory of the runtime with its sandboxes, at most ${MOST_SANDBOXES}, idle for ${IDLE_S} s`,
        header: ['', 'calls', 'p50, ms', 'p99, ms', 'resident, MiB', 'sandboxes'],
        rows,
        notes: ['Resident memory counts what processes share, such as the program itself, once for each.'],
        data: rows,
      };
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
};

async function callOf(tenant: TenantClient): Promise<number> {
  const start = performance.now();
  outputOf(await invoke(tenant, 'here', {}));
  return performance.now() - start;
}
