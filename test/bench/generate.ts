import { deploy } from '#test/harness/deploy.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { BareBackend, measureOverBare } from './over-bare.ts';
import { format, formatSpread } from './statistics.ts';

const WAYS = ['split', 'fused', 'run-ahead', 'penalties'] as const;
const CONTEXT = 32;
const STEPS = 192;
const QUICK_STEPS = 64;
const CLIENTS = [1, 8, 32];
const QUICK_CLIENTS = [1, 8];

/** Aims of the ratio, by way and number of clients. */
const AIMS: Readonly<Record<string, string>> = { 'fused 1': '≤ 1.05', 'fused 32': '≤ 1.10' };

/** Time per output token through the whole platform over the backend's bare loop, in the same run. */
export const generate: Bench = {
  name: 'generate',
  summary: 'time per output token over a bare loop of the same backend, at 1, 8 and 32 clients',
  help: `1, 8 and 32 inferlets decode ${STEPS} tokens side by side in four ways: three calls a token, one step a token, a run on the device, and a
run with a frequency and a presence penalty.
The baseline is the same backend called back to back in the benchmark's own process, at the same batch and context. Both run in each round
and take turns in going first; an extra first round warms up both.`,
  quick: `${QUICK_CLIENTS.join(' and ')} inferlets (of ${CLIENTS.join(', ')}), and ${QUICK_STEPS} tokens instead of ${STEPS}.`,
  async run({ repetitions, quick, progress }) {
    const [clients, steps] = quick ? [QUICK_CLIENTS, QUICK_STEPS] : [CLIENTS, STEPS];
    await using platform = await Platform.start({ functions: false });
    await deploy(platform, 'decode');
    await using bare = await BareBackend.open(platform);
    const { entry } = bare;
    const rows = await measureOverBare(platform, bare, {
      ways: WAYS,
      context: CONTEXT,
      rounds: repetitions,
      clients,
      steps,
      progress,
    });
    return {
      title: `Time per output token, ${entry.name} (${entry.backend}, ${entry.bits} bits), context ${CONTEXT} to ${CONTEXT + steps}`,
      header: [
        'way',
        'clients',
        'ms a token',
        'bare step ms',
        'ratio',
        'aim',
        'mean batch',
        'device busy',
        'steps ahead',
      ],
      rows: rows.map((row) => [
        row.way,
        String(row.clients),
        formatSpread(row.perToken),
        formatSpread(row.bare),
        formatSpread(row.ratio),
        AIMS[`${row.way} ${row.clients}`] ?? '',
        format(row.batch.median, 1),
        format(row.deviceShare.median),
        `${Math.round(100 * row.aheadShare.median)} %`,
      ]),
      notes: [
        'split: embed, forward, next-distribution. fused: one step a token. run-ahead: decoded on the device. penalties: the same, with logits that the GPU host changes for each token.',
        'The bare loop calls the backend back to back at the same batch, context and threads; in each round one follows the other, in turns, and the ratio is taken within the round.',
        'Steps ahead were handed to the device while the one before was computed, where the backend can (cuda).',
        `ms a token: from the first start signal to the last token, by the inferlets' clocks, over ${steps} steps. The signals go out one after another, and that time counts.`,
      ],
      data: rows,
    };
  },
};
