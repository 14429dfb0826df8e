import path from 'node:path';
import { invoke } from '#test/harness/events.ts';
import { Platform, ROOT } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { startTogether } from './clients.ts';
import { format, formatSpread, spread } from './statistics.ts';

const MISDEEDS = ['throw', 'garbage', 'spin', 'recurse', 'allocate', 'flood'];
const NEIGHBOURS = 8;
const STEPS = 200;
/** Decodes one after another while the misbehaviour goes on: a context is soon full. */
const ROUNDS = 4;
/** Between the failure of the misbehaving inferlet and its next invocation. */
const PAUSE_MS = 1000;

interface Decoded {
  readonly elapsedMs: number;
  readonly tokens: number;
}

/** Time per token of eight decoding neighbours, with and without an inferlet that misbehaves, in turn. */
export const isolation: Bench = {
  name: 'isolation',
  summary: "neighbours' time per token while an inferlet throws, spins, recurses, allocates or floods",
  async run({ repetitions, quick, progress }) {
    await using platform = await Platform.start({ functions: false });
    for (const [name, file] of [
      ['hostile', 'hostile'],
      ['decode', 'decode.ts'],
    ] as const) {
      const deploy = await platform.pie([
        'deploy',
        path.join(ROOT, `test/inferlets/${file}`),
        '--name',
        name,
        '--json',
      ]);
      if (deploy.code !== 0) throw new Error(deploy.stderr);
    }
    const neighbours = Array.from({ length: NEIGHBOURS }, () => ({ way: 'fused', context: 16, steps: STEPS }));
    /** Milliseconds a token over some rounds, while `disturb` runs beside. */
    const measure = async (disturb: (signal: AbortSignal) => Promise<void>) => {
      const over = new AbortController();
      let disturbing: Promise<void> | undefined;
      const perToken: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const outputs = await startTogether<Decoded>(platform, 'decode', neighbours, async () => {
          disturbing ??= disturb(over.signal);
        });
        perToken.push(...outputs.map((each) => each.elapsedMs / each.tokens));
      }
      over.abort();
      await disturbing;
      return perToken.reduce((sum, each) => sum + each, 0) / perToken.length;
    };
    const quiet = () => measure(async () => undefined);
    await quiet();
    const results: { misdeed: string; ratios: number[] }[] = [];
    for (const misdeed of MISDEEDS) {
      const ratios: number[] = [];
      for (let i = 0; i < (quick ? 1 : repetitions); i++) {
        const base = await quiet();
        // Again and again for as long as the neighbours decode: each ends in its own failure.
        const disturbed = await measure(async (signal) => {
          while (!signal.aborted) {
            await invoke(platform, 'hostile', { misdeed });
            await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
          }
        });
        ratios.push(disturbed / base);
      }
      results.push({ misdeed, ratios });
      progress(`${misdeed}: ${format(spread(ratios).median)}`);
    }
    return {
      title: `Time per token of ${NEIGHBOURS} neighbours beside one misbehaving inferlet, over the same alone`,
      header: ['inferlet that does', 'ratio, median (min–max)', 'aim'],
      rows: results.map(({ misdeed, ratios }) => [misdeed, formatSpread(spread(ratios)), '< 1.10']),
      notes: [
        `The misbehaving one is invoked again ${PAUSE_MS} ms after it has failed; launching it is part of what its neighbours feel.`,
      ],
      data: results,
    };
  },
};
