import { deploy, modelStats } from '#test/harness/deploy.ts';
import { invoke } from '#test/harness/events.ts';
import { Platform } from '#test/harness/platform.ts';
import type { Bench } from './bench.ts';
import { outputOf } from './clients.ts';
import { inTurn, warmUp } from './rounds.ts';
import { format, formatSpread, type Spread, spread } from './statistics.ts';

/** Ways of generating a text; `help` explains them. */
const WAYS = ['run', 'jump', 'oracle', 'step'] as const;
/** Texts that each way generates in a round, one after another. */
const TEXTS = 10;
const QUICK_TEXTS = 2;
/** A schema with long names and few free values. It forces many tokens: at their places it allows no other. */
const FIXED = object({
  customer_identifier: { type: 'integer', minimum: 1, maximum: 99_999 },
  subscription_status: { enum: ['active', 'cancelled', 'suspended'] },
  requires_follow_up: { type: 'boolean' },
  preferred_language: { enum: ['english', 'german', 'japanese'] },
  satisfaction_score: { type: 'integer', minimum: 0, maximum: 10 },
});
/** An example of {@link FIXED}. */
const RECORD = {
  customer_identifier: 204,
  subscription_status: 'active',
  requires_follow_up: true,
  preferred_language: 'german',
  satisfaction_score: 7,
};
const ON_LINES = JSON.stringify(RECORD, null, 2);
/** Allows no whitespace. */
const COMPACT = { 'x-guidance': { whitespace_flexible: false } };
/** A schema with short names and free strings, which forces few tokens. */
const FREE = object({
  name: { type: 'string', maxLength: 20 },
  hair: { type: 'string', maxLength: 20 },
  age: { type: 'integer', minimum: 0, maximum: 120 },
});

/** An example of {@link FREE}. */
const PERSON = { name: 'Tim', hair: 'brown', age: 5 };

const CASES = {
  fixed: { schema: FIXED, prompt: JSON.stringify(RECORD) },
  'on lines': { schema: FIXED, prompt: ON_LINES },
  'on lines, compact': { schema: { ...FIXED, ...COMPACT }, prompt: ON_LINES },
  free: { schema: FREE, prompt: JSON.stringify(PERSON) },
};
const QUICK: readonly string[] = ['fixed', 'free'];

interface Output {
  readonly texts: readonly { readonly text: string; readonly tokens: readonly number[] }[];
  readonly elapsedMs: number;
}

interface Sample {
  readonly text: string;
  readonly tokens: number;
  readonly steps: number;
  readonly msPerText: number;
}

/** Compares jump-forward decoding with stepwise decoding of the same JSON, in the same run. */
export const constrained: Bench = {
  name: 'constrained',
  summary: 'device steps and time of JSON of a fixed schema, with and without jumps over forced tokens',
  help: `One inferlet generates ${TEXTS} greedy texts under a JSON schema, one after the other, in each of four ways. run: forced tokens are jumped
over, and the runtime decodes ahead of the inferlet. jump: forced tokens are jumped over, step by step. oracle: no jumps, and a forced token needs
no mask. step: no jumps, and every token takes the mask of the grammar. The baseline is the oracle. A round runs all ways; every round begins
with another way. An unmeasured round comes first, to warm up. Time is by the inferlet's clock.`,
  quick: `${QUICK.length} of ${Object.keys(CASES).length} schemas (${QUICK.join(' and ')}), and ${QUICK_TEXTS} texts instead of ${TEXTS}.`,
  async run({ repetitions, quick, progress }) {
    await using platform = await Platform.start({ functions: false });
    await deploy(platform, 'constrained');
    const rows: {
      schema: string;
      way: string;
      tokens: number;
      steps: Spread;
      fewer: Spread;
      ms: Spread;
      faster: Spread;
      same: string;
    }[] = [];
    const cases = Object.entries(CASES).filter(([name]) => !quick || QUICK.includes(name));
    const texts = quick ? QUICK_TEXTS : TEXTS;
    for (const [schema, schemaCase] of cases) {
      const rounds: Record<(typeof WAYS)[number], Sample>[] = [];
      const side = (way: (typeof WAYS)[number]) => () => measure(platform, way, schemaCase, texts);
      for (let i = 0; i <= repetitions; i++) {
        const sides = [side('run'), side('jump'), side('oracle'), side('step')] as const;
        const [run, jump, oracle, step] = await (i === 0 ? warmUp(sides) : inTurn(i, sides));
        for (const { text } of [run, jump])
          if (text !== oracle.text) throw new Error(`${schema}: ${text} instead of ${oracle.text}`);
        if (i > 0) rounds.push({ run, jump, oracle, step }); // Round 0 only warms up.
      }
      for (const way of WAYS) {
        const over = (of: (sample: Sample) => number) =>
          spread(rounds.map((round) => of(round.oracle) / of(round[way])));
        const row = {
          schema,
          way,
          tokens: rounds[0]?.[way].tokens ?? 0,
          steps: spread(rounds.map((round) => round[way].steps)),
          fewer: over(({ steps }) => steps),
          ms: spread(rounds.map((round) => round[way].msPerText)),
          faster: over(({ msPerText }) => msPerText),
          same: rounds.every((round) => round[way].text === round.oracle.text) ? 'yes' : 'no',
        };
        rows.push(row);
        progress(
          `${schema}, ${way}: ${format(row.fewer.median)} times fewer steps, ${format(row.faster.median)} times faster`,
        );
      }
    }
    return {
      title: 'JSON of a schema, with and without jumps over forced tokens',
      header: ['schema', 'way', 'tokens', 'steps', 'fewer', 'aim', 'ms a text', 'faster', 'same text'],
      rows: rows.map((row) => [
        row.schema,
        row.way,
        String(row.tokens),
        formatSpread(row.steps, 0),
        formatSpread(row.fewer),
        row.schema === 'fixed' && row.way === 'run' ? '≥ 2' : '',
        formatSpread(row.ms),
        formatSpread(row.faster),
        row.same,
      ]),
      notes: [
        'on lines: the example in the prompt is printed on lines. compact: the grammar allows no whitespace.',
        'jump: forced tokens are appended and computed with the next sampled token. run: the same, and the runtime decodes ahead of the inferlet. oracle: a step a token; the forced token replaces the one that is sampled without a mask. step: a step a token, with the mask of the grammar.',
        `tokens, steps: of one text of ${texts}. Steps are the batches of the GPU host. fewer, faster: the oracle's over this way's, within the round.`,
        "The grammar's mask allows several spellings of a forced text, so `step` may write other tokens, and with them another text.",
      ],
      data: rows,
    };
  },
};

function object(properties: Readonly<Record<string, object>>): object {
  return { type: 'object', properties, required: Object.keys(properties), additionalProperties: false };
}

interface Case {
  readonly schema: object;
  /** An example, whose whitespace the model imitates. */
  readonly prompt: string;
}

async function measure(platform: Platform, way: string, { schema, prompt }: Case, times: number): Promise<Sample> {
  await modelStats(platform, { reset: true });
  const input = { way, schema, prompt: `${prompt}\n`, times };
  const { texts, elapsedMs } = outputOf<Output>(await invoke(platform, 'constrained', input));
  const { batches } = await modelStats(platform);
  const [first] = texts;
  if (!first || texts.some(({ text }) => text !== first.text))
    throw new Error(`${way}: equal prompts, different texts`);
  return { text: first.text, tokens: first.tokens.length, steps: batches / times, msPerText: elapsedMs / times };
}
