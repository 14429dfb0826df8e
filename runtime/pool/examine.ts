import { randomUUID } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { PLAN_FILE } from '../build/artifact/artifact.ts';
import { type Artifact, MAX_DESCRIPTION_BYTES, readPlainFile } from '../build/index.ts';
import { asPlan, type Plan } from '../lowering/plan.ts';
import { UnplannableError } from '../lowering/record.ts';
import {
  crashReason,
  type Layers,
  LimitPassed,
  machineLayers,
  type ProgramCode,
  runConfined,
} from '../sandboxes/index.ts';

/** Results of examining an artifact: its plan, and the times of launches. */
export interface Examination {
  readonly plan: Plan;
  readonly starts: MeasuredStarts;
}

/** Output of the child: the confined process that runs `examine-main.ts`. */
export type ExamineReply =
  | Examination
  /** A plan cannot describe the artifact. */
  | { readonly unplannable: string }
  /** Error that prevented the instantiation. */
  | { readonly error: string };

/** CPU time of an examination; start functions get 0.5 s of it for planning, and 0.1 s per launch. */
const CPU_MS = 30_000;
/** Wall-clock bound of an examination, which gets little CPU time on a busy machine. */
const TIMEOUT_MS = 240_000;
/** Bound on what the child prints: it writes no files. */
const MAX_FILES = { megabytes: 64, names: 0 };
/** Resident memory of the child without large instances, in MiB. */
const MEMORY_MB = 512;
/** Number of instances of a large program that live at once: one for the plan, two for the measured launches. */
const LARGE_INSTANCES = 3;
const PAGES_PER_MEGABYTE = 16;
const MAIN = fileURLToPath(new URL('examine-main.ts', import.meta.url));
/** Files of the child's code. */
const CODE = ['../pool', '../lowering', '../build/wasm', '../../wit', '../../package.json'].map((path) =>
  fileURLToPath(new URL(path, import.meta.url)),
);

/** A program that only loads the code of an examination, to fill its code cache. */
export const LOADING: ProgramCode = { program: { main: MAIN, args: [], read: CODE } };

/** File in an artifact's folder with the times of launches. */
const STARTS_FILE = 'starts.json';

/** Validates launch times: a process with untrusted input measured them. */
export const startsSchema = z.strictObject({
  /** Launch with an empty pool: reading, compiling and instantiating. */
  coldStartMs: z.number().min(0),
  /** Launch with a ready instance. */
  warmStartMs: z.number().min(0),
  /** Memory of a ready instance. */
  instanceBytes: z.int().min(0),
});
/** Launch times, measured in a fresh process, which has compiled nothing before. */
export type MeasuredStarts = Readonly<z.infer<typeof startsSchema>>;

const text = z.string().max(10_000);
const replySchema = z.union([
  z.strictObject({ plan: z.unknown(), starts: startsSchema }),
  z.strictObject({ unplannable: text }),
  z.strictObject({ error: text }),
]);

/**
 * Examines an artifact in a disposable confined process, because an examination runs the artifact's glue and untrusted start functions.
 * Checks the reply and keeps it beside the artifact. Throws `UnplannableError`, or the error that prevented the instantiation.
 */
export async function examineArtifact(artifact: Artifact, layers?: Layers): Promise<Examination> {
  const { plan, starts } = await inChild(artifact, layers ?? (await machineLayers()));
  await Promise.all([keepPlan(artifact, plan), keep(artifact, STARTS_FILE, starts)]);
  return { plan, starts };
}

/** Reads the plan that is stored beside an artifact; null when none is, or only one of another format version. */
export async function keptPlan(artifact: Artifact): Promise<Plan | null> {
  return asPlan(await readKept(artifact, PLAN_FILE));
}

/** Keeps a plan beside its artifact. */
export const keepPlan = (artifact: Artifact, plan: Plan): Promise<void> => keep(artifact, PLAN_FILE, plan);

/** Start times from the artifact's examination; null when there are none. */
export async function keptStarts(artifact: Artifact): Promise<MeasuredStarts | null> {
  return startsSchema.safeParse(await readKept(artifact, STARTS_FILE)).data ?? null;
}

async function inChild(artifact: Artifact, layers: Layers): Promise<Examination> {
  const { directory, meta } = artifact;
  const program = { main: MAIN, args: [directory], read: [...CODE, directory] };
  const memoryMb = MEMORY_MB + Math.ceil((LARGE_INSTANCES * meta.options.memoryPages) / PAGES_PER_MEGABYTE);
  const isAnswer = (line: string) => parse(line) !== null;
  const limits = { timeoutMs: TIMEOUT_MS, cpuMs: CPU_MS, memoryMb, files: MAX_FILES, isAnswer };
  const result = await runConfined(layers, program, limits).catch((cause: unknown) => {
    if (!(cause instanceof LimitPassed)) throw cause;
    const limitText = {
      time: `${TIMEOUT_MS / 1000} s`,
      cpu: `${CPU_MS / 1000} s of CPU time`,
      memory: `${memoryMb} MiB of memory`,
      files: `${MAX_FILES.megabytes} MiB of output`,
    }[cause.limit];
    throw new Error(`instantiating it took more than ${limitText}`, { cause });
  });
  const reply = replySchema.safeParse(parse(result.output)).data;
  if (!reply) {
    throw new Error(
      `the process that instantiated it ended with ${result.code ?? 'a signal'}: ${crashReason(result.errors) || 'no message'}`,
    );
  }
  if ('error' in reply) throw new Error(reply.error);
  if ('unplannable' in reply) throw new UnplannableError(reply.unplannable);
  const plan = asPlan(reply.plan);
  if (!plan) throw new Error('the process that instantiated it answered no plan of this version');
  return { plan, starts: reply.starts };
}

const readKept = (artifact: Artifact, file: string): Promise<unknown> =>
  readPlainFile(join(artifact.directory, file), MAX_DESCRIPTION_BYTES).then(
    (bytes) => parse(String(bytes)),
    () => null,
  );

/** Writes atomically. Ignores failures: the next process examines the artifact again. */
async function keep(artifact: Artifact, file: string, value: unknown): Promise<void> {
  const path = join(artifact.directory, file);
  const temporary = `${path}.${process.pid}-${randomUUID()}`;
  await writeFile(temporary, JSON.stringify(value))
    .then(() => rename(temporary, path))
    .catch(() => rm(temporary, { force: true }))
    .catch(() => undefined);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
