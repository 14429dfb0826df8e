import { isErrorCode } from '#gateway/app/errors/codes.ts';
import { Arena } from '#test/hostile/arena.ts';
import { Random } from '../../harness/random.ts';
import { MutantWorker, type Outcome } from './mutant-worker.ts';
import { mutant } from './mutate.ts';
import { readSeeds, type Seed } from './seeds.ts';

export interface FuzzComponentsOptions {
  readonly modules: number;
  readonly seed: number;
  /** Number of mutants that also go through a whole platform. */
  readonly endToEnd: number;
  /** Index of the first mutant, 0 by default. */
  readonly first?: number;
  readonly workers?: number;
  /** Called with the number of finished mutants. */
  readonly onProgress?: (done: number) => void;
  readonly onOutcome?: (outcome: Outcome) => void;
  /** Called at once with each finding, so that a run of hours that is cut short has reported its findings. */
  readonly onFinding?: (finding: string) => void;
}

export interface FuzzComponentsReport {
  readonly seed: number;
  readonly modules: number;
  readonly endToEnd: number;
  readonly seconds: number;
  /** Number of mutants by the stage that they reached and their final code. */
  readonly ends: Readonly<Record<string, number>>;
  /** The same for the mutants that went through the platform. */
  readonly endToEndEnds: Readonly<Record<string, number>>;
  /** Failures, each with the index that replays it. */
  readonly findings: readonly string[];
}

/** Codes that blame the platform. */
const PLATFORM_FAULTS = new Set(['internal', 'runtime-lost', 'device-lost', 'artifact-unavailable']);
/** Mutants on the platform at a time. Each waits for its build, and then for a story of the canary, the tenant that must not notice. */
const CONCURRENT_MUTANTS = 4;
const CANARY = { restMs: 500 };
/** Message of a build that threw an error without a code. */
const UNTYPED = /^The build stopped: /;

/** Builds, plans and runs mutated components in throw-away processes, and deploys and invokes some of them on a whole platform. */
export async function fuzzComponents(options: FuzzComponentsOptions): Promise<FuzzComponentsReport> {
  const { modules, seed, first = 0, workers = 1 } = options;
  const startedMs = performance.now();
  const findings: string[] = [];
  const reportFinding = (finding: string): void => {
    findings.push(finding);
    options.onFinding?.(finding);
  };
  const ends: Record<string, number> = {};
  const endToEndEnds: Record<string, number> = {};
  const seeds = await readSeeds();
  let next = first;
  let done = 0;
  const work = async (): Promise<void> => {
    using worker = new MutantWorker();
    while (next < first + modules) {
      const index = next++;
      const outcome = await worker.run(seed, index);
      options.onOutcome?.(outcome);
      count(ends, outcome.kind === 'ended' ? `${outcome.stage} ${outcome.code}` : outcome.kind);
      const finding = findingIn(outcome);
      if (finding !== null) reportFinding(`${describe(seeds, seed, index)}: ${finding}`);
      options.onProgress?.(++done);
    }
  };
  await Promise.all(Array.from({ length: workers }, work));
  if (options.endToEnd > 0) {
    const stride = Math.max(1, Math.floor(modules / options.endToEnd));
    const chosen = Array.from({ length: options.endToEnd }, (_, i) => first + i * stride);
    await throughPlatform(seeds, seed, chosen, endToEndEnds, reportFinding, () => options.onProgress?.(++done));
  }
  const seconds = (performance.now() - startedMs) / 1000;
  return { seed, modules, endToEnd: options.endToEnd, seconds, ends, endToEndEnds, findings };
}

function findingIn(outcome: Outcome): string | null {
  if (outcome.kind !== 'ended') return `the process ${outcome.fault}`;
  if (outcome.code === 'build-failed' && UNTYPED.test(outcome.message)) return outcome.message;
  return null;
}

/** Deploys and invokes mutants beside a canary, `CONCURRENT_MUTANTS` at a time. */
async function throughPlatform(
  seeds: readonly Seed[],
  seed: number,
  indexes: readonly number[],
  ends: Record<string, number>,
  reportFinding: (finding: string) => void,
  onDone: () => void,
): Promise<void> {
  const pending = [...indexes];
  while (pending.length > 0) {
    await using arena = await Arena.start(CANARY);
    const running = new Set<number>();
    let isSound = true;
    const attackInTurn = async (): Promise<void> => {
      while (isSound) {
        const index = pending.shift();
        if (index === undefined) return;
        running.add(index);
        try {
          const { bytes } = mutant(seeds, Random.of(seed, index));
          const report = await arena.attack({ name: `mutant-${index}`, source: () => ({ component: bytes }) });
          for (const end of report.ends) {
            count(ends, end);
            const [, code = ''] = end.split(' ');
            const isExpected = code === 'result' || (isErrorCode(code) && !PLATFORM_FAULTS.has(code));
            if (!isExpected) reportFinding(`${describe(seeds, seed, index)}: ${end}: ${report.message}`);
          }
        } catch (error) {
          // Harm to the arena ends all running mutants: the first mutant to fail reports all of them as suspects.
          if (isSound) {
            const harm = error instanceof Error ? error.message : String(error);
            reportFinding(`${[...running].map((each) => describe(seeds, seed, each)).join(', or ')}: ${harm}`);
          }
          isSound = false;
        }
        running.delete(index);
        onDone();
      }
    };
    await Promise.all(Array.from({ length: CONCURRENT_MUTANTS }, attackInTurn));
    if (isSound) for (const held of await arena.leftBehind()) reportFinding(`left behind: ${held}`);
  }
}

function describe(seeds: readonly Seed[], seed: number, index: number): string {
  const { seed: name, mutations } = mutant(seeds, Random.of(seed, index));
  return `seed ${seed} index ${index} (${name}: ${mutations.join(', ')})`;
}

const count = (counts: Record<string, number>, key: string): void => {
  counts[key] = (counts[key] ?? 0) + 1;
};
