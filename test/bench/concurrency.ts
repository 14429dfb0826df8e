import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { connectStats } from './clients.ts';
import { inTurn } from './rounds.ts';
import { format, formatSpread, spread } from './statistics.ts';
import { inputsOf, type ReceivedStream, receive, receiveAll } from './streams.ts';

const CLIENTS = 32;
const MAX_TOKENS = 96;
const QUICK_TOKENS = 48;

/** Texts and tokens that the clients of one side received. */
interface Side {
  readonly elapsedMs: number;
  readonly tokens: number;
  readonly texts: readonly string[];
}

interface Round {
  /** The streams one after another. */
  readonly alone: Side;
  /** The same streams all at once. */
  readonly together: Side;
  readonly meanBatch: number;
}

/** 32 invocations at once against the same 32 one after another. */
export const concurrency: Bench = {
  name: 'concurrency',
  summary: `${CLIENTS} invocations at once against the same ${CLIENTS} one after another`,
  help: `${CLIENTS} HTTP clients stream ${MAX_TOKENS} tokens each at temperature 0, all at once. The baseline is the same ${CLIENTS} streams one
after another. A round runs both, which take turns in going first, and compares the tokens a second that the clients received, and the texts.`,
  quick: `At most ${QUICK_TOKENS} tokens instead of ${MAX_TOKENS}.`,
  async run({ repetitions, quick, progress }) {
    const maxTokens = quick ? QUICK_TOKENS : MAX_TOKENS;
    await using platform = await Platform.start({ functions: ['text-completion'] });
    const stats = await connectStats(platform);
    const inputs = inputsOf(CLIENTS, maxTokens);
    const rounds: Round[] = [];
    try {
      await receiveAll(platform, inputs); // Warm-up.
      for (let i = 0; i < repetitions; i++) {
        const [alone, [together, meanBatch]] = await inTurn(i, [
          () => oneByOne(platform, inputs),
          async () => {
            await stats.stats({ reset: true });
            const side = await atOnce(platform, inputs);
            return [side, (await stats.stats()).models[0]?.meanBatchSize ?? 0] as const;
          },
        ]);
        rounds.push({ alone, together, meanBatch });
        progress(`round ${i + 1}: ${format(perSecond(together) / perSecond(alone))}×`);
      }
    } finally {
      stats.close();
    }
    const of = (pick: (round: Round) => number) => spread(rounds.map(pick));
    return {
      title: `${CLIENTS} × at most ${maxTokens} tokens, at once and one after another`,
      header: ['figure', 'median (min–max)', 'aim'],
      rows: [
        [
          'throughput, at once over one after another',
          formatSpread(of((r) => perSecond(r.together) / perSecond(r.alone))),
          '≥ 2.5',
        ],
        ['mean batch size', formatSpread(of((r) => r.meanBatch)), '≥ 24'],
        [
          'texts that differ',
          formatSpread(
            of((r) => r.together.texts.filter((text, i) => text !== r.alone.texts[i]).length),
            0,
          ),
          '0',
        ],
        [
          'tokens/s at once',
          formatSpread(
            of((r) => perSecond(r.together)),
            0,
          ),
          '',
        ],
        [
          'tokens/s one after another',
          formatSpread(
            of((r) => perSecond(r.alone)),
            0,
          ),
          '',
        ],
      ],
      notes: [
        'Each round runs both ways, in turns; the ratio is taken within the round. Tokens are those that the HTTP clients received.',
      ],
      data: rounds,
    };
  },
};

const perSecond = ({ tokens, elapsedMs }: Side): number => (tokens * 1000) / elapsedMs;

async function oneByOne(platform: Platform, inputs: readonly object[]): Promise<Side> {
  const startMs = performance.now();
  const received: (() => ReceivedStream)[] = [];
  for (const input of inputs) received.push(await receive(platform, input));
  return sideOf(received, performance.now() - startMs);
}

async function atOnce(platform: Platform, inputs: readonly object[]): Promise<Side> {
  const startMs = performance.now();
  const received = await receiveAll(platform, inputs);
  return sideOf(received, performance.now() - startMs);
}

function sideOf(received: readonly (() => ReceivedStream)[], elapsedMs: number): Side {
  const streams = received.map((parse) => parse());
  return {
    elapsedMs,
    tokens: streams.reduce((sum, { tokens }) => sum + tokens, 0),
    texts: streams.map(({ text }) => text),
  };
}
