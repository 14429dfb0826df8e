import { setTimeout as sleep } from 'node:timers/promises';
import { Platform } from '#test/harness/platform.ts';
import { createTenant, submit, waitOf } from '#test/harness/tenants.ts';
import type { Bench } from './bench.ts';
import { format, quantile } from './statistics.ts';

const FLOOD = 2000;
const EVERY_MS = 1000;
const SUBMITTING = 64;
const INPUT = { prompt: 'Once upon a time', maxTokens: 16, temperature: 0 };

/** One tenant floods the platform while another invokes at a steady rate. */
export const flood: Bench = {
  name: 'flood',
  summary: `one tenant sends ${FLOOD} invocations at once, another one a second: how long the second waits`,
  async run({ quick, progress }) {
    await using platform = await Platform.start({ functions: ['text-completion'] });
    const other = await createTenant(platform, 'other');
    const { code, stderr } = await platform.pie(['deploy', 'functions/text-completion'], { apiKey: other.apiKey });
    if (code !== 0) throw new Error(stderr);
    const ask = () => waitOf(other, 'text-completion', INPUT);
    for (let i = 0; i < 5; i++) await ask(); // Warm-up.
    const unloaded: number[] = [];
    for (let i = 0; i < (quick ? 10 : 40); i++) {
      unloaded.push(await ask());
      await sleep(50);
    }
    let left = quick ? 300 : FLOOD;
    let ended = false;
    const ids: string[] = [];
    const flooding = Promise.all(
      Array.from({ length: SUBMITTING }, async () => {
        while (left-- > 0) ids.push(await submit(platform, 'text-completion', INPUT));
      }),
    ).then(async () => {
      for (const id of ids) {
        for (;;) {
          const state = (await (await platform.fetch(`/v1/invocations/${id}`)).json()) as { status: string };
          if (state.status !== 'queued' && state.status !== 'running') break;
          await sleep(100);
        }
      }
      ended = true;
    });
    const startedAt = performance.now();
    const loaded: number[] = [];
    await sleep(100);
    while (!ended) {
      loaded.push(await ask());
      await sleep(EVERY_MS);
    }
    await flooding;
    progress(`${ids.length} ended after ${format((performance.now() - startedAt) / 1000, 1)} s`);
    const sort = (values: readonly number[]) => [...values].sort((a, b) => a - b);
    const [before, during] = [sort(unloaded), sort(loaded)];
    return {
      title: `${ids.length} invocations of one tenant at once, one a second of another`,
      header: ['wait of the second tenant', 'unloaded, ms', 'during the flood, ms', 'ratio', 'aim'],
      rows: [0.5, 0.95].map((q) => {
        const [a, b] = [quantile(before, q), quantile(during, q)];
        return [`p${q * 100}`, format(a, 1), format(b, 1), format(b / a), q === 0.5 ? 'at most 2' : ''];
      }),
      notes: [
        `${during.length} invocations of the second tenant during the flood. From submission to the start of the attempt.`,
      ],
      data: { unloaded, loaded },
    };
  },
};
