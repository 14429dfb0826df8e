import { deploy, modelStats } from '#test/harness/deploy.ts';
import { invoke } from '#test/harness/events.ts';
import { newHome, Platform } from '#test/harness/platform.ts';
import { outputOf } from './clients.ts';
import { ANSWER_TOKENS, partsOf, VOCABULARY_SIZE, type Workload } from './prefix-workloads.ts';
import { inTurn, warmUp } from './rounds.ts';
import { randomShape, type Shape } from './shapes.ts';
import { formatSpread, spread } from './statistics.ts';

const CONTEXT = 2048;
/** Enough pages for the requests that a workload sends at once, even if they share none. Saved prefixes may take a quarter of them. */
const PAGES = 1536;

const CACHED = 'cached';
const UNCACHED = 'uncached';
/** Ablations. In the mode `program`, the platform's cache is off, and the program saves and opens prefixes by name. */
const MODES = [
  { name: 'off', model: UNCACHED, saves: false },
  { name: 'automatic', model: CACHED, saves: false },
  { name: 'program', model: UNCACHED, saves: true },
] as const;
type Mode = (typeof MODES)[number];

/** Measurements of one workload in one mode and round. */
interface Sample {
  /** From the first request to the last answer at the HTTP client. */
  readonly elapsedMs: number;
  /** Tokens of prompts that the engine computed. */
  readonly computed: number;
  /** Answers by the key of the request's last part. */
  readonly answers: Readonly<Record<string, string>>;
}

export interface ShapeRow {
  readonly workload: string;
  readonly samples: Readonly<Record<Mode['name'], readonly Sample[]>>;
}

export interface ShapesOptions {
  readonly shape: Shape;
  readonly workloads: readonly Workload[];
  readonly rounds: number;
}

/** Runs SGLang's workloads with the prefix cache off, with the automatic one, and with prefixes that the program saves. */
export async function measureShapes(
  { shape, workloads, rounds }: ShapesOptions,
  progress: (line: string) => void,
): Promise<ShapeRow[]> {
  const home = await newHome();
  const directory = await randomShape(home, shape, { vocabularySize: VOCABULARY_SIZE, contextLength: CONTEXT });
  const config = MODES.slice(0, 2)
    .map(
      ({ model }) =>
        `[[model]]\nname = "${model}"\nsource = "file:${directory}"\npages = ${PAGES}\nprefix_cache = ${model === CACHED}\n`,
    )
    .join('\n');
  await using platform = await Platform.start({ home, functions: false, config });
  await deploy(platform, 'reuse');
  /** Samples of the rounds, by index of the workload and of the mode. */
  const samples: Sample[][][] = workloads.map(() => MODES.map(() => []));
  for (let round = 0; round <= rounds; round++) {
    for (const [workloadIndex, workload] of workloads.entries()) {
      const sides = MODES.map((mode) => () => measure(platform, workload, mode, `${round}/${workloadIndex}`));
      if (round === 0) {
        await warmUp<Sample[]>(sides);
        continue;
      }
      const roundSamples = await inTurn<Sample[]>(round, sides);
      roundSamples.forEach((sample, mode) => {
        samples[workloadIndex]?.[mode]?.push(sample);
      });
      progress(`round ${round} of ${rounds}, ${workload.name}`);
    }
  }
  return workloads.map(({ name }, workloadIndex) => {
    const [off = [], automatic = [], program = []] = samples[workloadIndex] ?? [];
    return { workload: name, samples: { off, automatic, program } };
  });
}

/** A row for each workload and figure: title, automatic, off, ratio of off to automatic, program, ratio of off to program. */
export function shapeRows(rows: readonly ShapeRow[]): string[][] {
  const figures = [
    { title: 'tokens computed', figureOf: ({ computed }: Sample) => computed, digits: 0 },
    { title: 'ms', figureOf: ({ elapsedMs }: Sample) => elapsedMs, digits: 0 },
  ];
  return rows.flatMap(({ workload, samples: { off, automatic, program } }) =>
    figures.map(({ title, figureOf, digits }) => {
      const absolute = (ofMode: readonly Sample[]) => formatSpread(spread(ofMode.map(figureOf)), digits);
      const offOver = (ofMode: readonly Sample[]) =>
        formatSpread(spread(ofMode.map((sample, round) => figureOf(off[round] as Sample) / figureOf(sample))));
      return [
        `${workload}: ${title}`,
        absolute(automatic),
        absolute(off),
        offOver(automatic),
        absolute(program),
        offOver(program),
      ];
    }),
  );
}

/** Number of answers with a cache that differ from the answer without any, and of all answers with a cache. */
export function differingAnswers(rows: readonly ShapeRow[]): { readonly differ: number; readonly of: number } {
  const equalities = rows.flatMap(({ samples: { off, automatic, program } }) =>
    [automatic, program].flatMap((mode) =>
      mode.flatMap(({ answers }, round) =>
        Object.entries(answers).map(([key, answer]) => answer === off[round]?.answers[key]),
      ),
    ),
  );
  return { differ: equalities.filter((equal) => !equal).length, of: equalities.length };
}

async function measure(platform: Platform, workload: Workload, { model, saves }: Mode, scope: string): Promise<Sample> {
  const answers: Record<string, string> = {};
  const names = new Set<string>();
  const call = async (input: object) =>
    outputOf<{ tokens: number[] }>(await invoke(platform, 'reuse', { model, maxTokens: ANSWER_TOKENS, ...input }))
      .tokens;
  const nameOf = (key: string) => {
    const name = `bench/${scope}/${key}`;
    names.add(name);
    return name;
  };
  await modelStats(platform, { model, reset: true });
  const startMs = performance.now();
  // The modes of a round have equal prompts.
  await workload.run(async (parts, keep) => {
    const tokens = await call({
      parts: parts.map(({ tokens, key, isSaved }) => (saves && isSaved ? { tokens, name: nameOf(key) } : { tokens })),
      ...(saves && keep !== undefined && { keep: nameOf(keep) }),
    });
    if (tokens.length !== ANSWER_TOKENS) throw new Error(`${tokens.length} tokens instead of ${ANSWER_TOKENS}`);
    answers[parts.at(-1)?.key ?? ''] = tokens.join();
    return tokens;
  }, partsOf(scope));
  const elapsedMs = performance.now() - startMs;
  const { tokens, decodeTokens } = await modelStats(platform, { model });
  if (names.size > 0) await call({ parts: [], forget: [...names] });
  return { elapsedMs, computed: tokens - decodeTokens, answers };
}
