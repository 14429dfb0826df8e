import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { lstat, mkdir, readFile, rename, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { packageFolders } from '#infra/install.ts';
import { textForTenant } from '#scheduler/policies/text-for-tenant.ts';
import { sha256 } from '../build/artifact/artifact.ts';
import { type BuildFailure, MAX_DESCRIPTION_BYTES, readPlainFile } from '../build/index.ts';
import { failureFrom } from '../build/outcome.ts';
import { moveDirectory, publishDirectory } from '../build/publish.ts';
import { Places } from '../build/script/places.ts';
import { makeTemporary, noteRead, removeTree, sweep } from '../build/store.ts';
import { toolchain } from '../build/toolchain.ts';
import { decodeHeap } from '../lowering/heap.ts';
import type { Plan } from '../lowering/plan.ts';
import {
  crashReason,
  type Layers,
  LimitPassed,
  machineLayers,
  type ProgramCode,
  runConfined,
} from '../sandboxes/index.ts';
import type { Engine } from './engines.ts';
import { HEAP_FILE, PLACES_FILE } from './evaluate.ts';
import { startsSchema } from './examine.ts';

/** Description of a script's artifact. */
const META_FILE = 'script.json';

/** Largest heap, and largest table of places. A heap is sent to a sandbox in one message of at most 32 MiB. */
const MAX_HEAP_BYTES = 31 << 20;
const MAX_PLACES_BYTES = 32 << 20;
/** An evaluation computes for at most 4 s, which costs about 10 s with the pauses of the guest; the rest is for the start of the child, the engine's modules, and the measured launches. */
const CPU_MS = 30_000;
/** Wall-clock bound of an evaluation, which gets little CPU time on a busy machine. */
const TIMEOUT_MS = 120_000;
const MEMORY_MB = 768;
const MAX_FILES = { megabytes: 256, names: 8 };

const MAIN = fileURLToPath(new URL('evaluate-main.ts', import.meta.url));
/** Files of the child's code. */
const CODE = [
  ...['../pool', '../lowering', '../build', '../../wit', '../../scheduler/functions', '../../package.json'].map(
    (path) => fileURLToPath(new URL(path, import.meta.url)),
  ),
  ...packageFolders(),
];

// V8 then compiles only the engine's functions that run, and optimises none: an evaluation takes 0.1 s, not 0.25.
const PROGRAM = { main: MAIN, once: true } as const;

/** A program that only loads the code of an evaluation, to fill its code cache. */
export const LOADING: ProgramCode = { program: { ...PROGRAM, args: [], read: CODE } };

const text = z.string().max(10_000);
const place = z.strictObject({ file: z.string().max(1000), line: z.int().min(1), column: z.int().min(1) });
const replySchema = z.union([
  z.strictObject({ starts: startsSchema, evaluateMs: z.number().min(0) }),
  z.strictObject({ refused: z.strictObject({ message: text, hint: text, place: place.optional() }) }),
  z.strictObject({ error: text }),
]);
/** Output of the child: the script's starts, the reason that it cannot be loaded, or a fault of the platform. */
export type EvaluateReply = Readonly<z.infer<typeof replySchema>>;

const hex = z.string().regex(/^[0-9a-f]{64}$/);
const metaSchema = z
  .strictObject({
    hash: hex,
    component: z.strictObject({ hash: hex, bytes: z.int().min(0) }).readonly(),
    /** sha256 of the engine's component. */
    engine: hex,
    heap: z.strictObject({ bytes: z.int().min(0), hash: hex, pages: z.int().min(0) }).readonly(),
    placesBytes: z.int().min(0),
    starts: startsSchema.readonly(),
    evaluateMs: z.number().min(0),
    createdAt: z.iso.datetime(),
  })
  .readonly();

/** A script after its evaluation, as it is kept on disk. */
export interface ScriptArtifact {
  readonly directory: string;
  readonly meta: Readonly<z.infer<typeof metaSchema>>;
}

export type EvaluateOutcome =
  | { readonly ok: true; readonly artifact: ScriptArtifact; readonly cached: boolean; readonly totalMs: number }
  | BuildFailure;

/** Name of a script's artifact: a hash of the script, which names its engine, and of the code that evaluates it. */
export const scriptArtifactHashOf = (componentHash: string): string =>
  sha256(JSON.stringify(['script', componentHash, toolchain()]));

interface EvaluateOptions {
  /** Directory of artifacts. */
  readonly store: string;
  readonly layers?: Layers | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Evaluates a script on its engine in a confined child, and keeps the checked result. Throws only when its signal aborts (the signal's reason). */
export async function evaluateInChild(
  engine: Engine,
  script: Uint8Array,
  options: EvaluateOptions,
): Promise<EvaluateOutcome> {
  const startedMs = performance.now();
  const component = { hash: sha256(script), bytes: script.length };
  const hash = scriptArtifactHashOf(component.hash);
  const passed = () => Math.round((performance.now() - startedMs) * 10) / 10;
  const known = await readScriptArtifact(options.store, component.hash);
  if (known) return { ok: true, artifact: known, cached: true, totalMs: passed() };
  let temporary: string | undefined;
  try {
    await sweep(options.store);
    temporary = await makeTemporary(options.store);
    const [scriptFile, planFile, out, taken] = ['script', 'plan.json', 'out', 'taken'].map((name) =>
      join(temporary ?? '', name),
    ) as [string, string, string, string];
    await Promise.all([
      writeFile(scriptFile, script),
      writeFile(planFile, JSON.stringify(basePlan(engine))),
      mkdir(out),
    ]);
    const reply = await runChild([engine.artifact.directory, planFile, scriptFile, out], engine, temporary, options);
    if ('error' in reply) throw new Error(reply.error);
    if ('refused' in reply) {
      const { message, hint, place: at } = reply.refused;
      const diagnostics = at ? [{ ...at, text: message, source: '' }] : [];
      return { ok: false, code: 'build-failed', message, hint, ...(diagnostics.length > 0 ? { diagnostics } : {}) };
    }
    const [heapBytes, places] = await Promise.all([
      readPlainFile(join(out, HEAP_FILE), MAX_HEAP_BYTES).catch(() => {
        throw new Error(`the heap of the script is missing, or has more than ${MAX_HEAP_BYTES >> 20} MiB`);
      }),
      readPlainFile(join(out, PLACES_FILE), MAX_PLACES_BYTES),
    ]);
    // The child has run a stranger's module: what it wrote is checked like any upload.
    const heap = decodeHeap(heapBytes, engine.hash);
    if (heap.basePages !== engine.memoryPages)
      throw new Error(`the heap begins with ${heap.basePages} pages, not the engine's ${engine.memoryPages}`);
    new Places(places);
    const meta: ScriptArtifact['meta'] = {
      hash,
      component,
      engine: engine.hash,
      heap: { bytes: heapBytes.length, hash: sha256(heapBytes), pages: heap.pages },
      placesBytes: places.length,
      starts: reply.starts,
      evaluateMs: reply.evaluateMs,
      createdAt: new Date().toISOString(),
    };
    await mkdir(taken);
    await Promise.all([
      writeFile(join(taken, HEAP_FILE), heapBytes),
      writeFile(join(taken, PLACES_FILE), places),
      writeFile(join(taken, META_FILE), `${JSON.stringify(meta, null, 2)}\n`),
    ]);
    const directory = join(options.store, hash);
    if (!(await moveDirectory(taken, directory))) {
      // A damaged artifact is moved aside in one step, because another evaluation may publish meanwhile. A whole one, which is equal, stays.
      if (!(await readScriptArtifact(options.store, component.hash)))
        await rename(directory, join(temporary, 'damaged')).catch((error: NodeJS.ErrnoException) => {
          if (error.code !== 'ENOENT') throw error;
        });
      await publishDirectory(taken, directory);
    }
    const artifact = await readScriptArtifact(options.store, component.hash);
    if (!artifact) throw new Error(`the artifact ${hash} is not whole`);
    return { ok: true, artifact, cached: false, totalMs: passed() };
  } catch (error) {
    options.signal?.throwIfAborted();
    return failureFrom(error);
  } finally {
    if (temporary !== undefined) await removeTree(temporary);
  }
}

/** The plan of the engine's modules as they are in its artifact: they define the memory that `Engine.plan` imports. */
export function basePlan({ plan }: Engine): Plan {
  const instances = plan.instances.map(({ module, imports }) => ({
    module,
    imports: imports.filter(({ source }) => source.kind !== 'memory'),
  }));
  return { ...plan, instances };
}

async function runChild(
  args: readonly string[],
  engine: Engine,
  folder: string,
  { layers, signal }: EvaluateOptions,
): Promise<EvaluateReply> {
  const program = { ...PROGRAM, args, read: [...CODE, engine.artifact.directory, folder], write: [folder] };
  const isAnswer = (line: string) => parse(line) !== null;
  const limits = { timeoutMs: TIMEOUT_MS, cpuMs: CPU_MS, memoryMb: MEMORY_MB, files: MAX_FILES, isAnswer, signal };
  const result = await runConfined(layers ?? (await machineLayers()), program, limits).catch((cause: unknown) => {
    if (!(cause instanceof LimitPassed)) throw cause;
    return cause;
  });
  if (result instanceof LimitPassed) {
    const limit = {
      time: `longer than ${TIMEOUT_MS / 1000} s`,
      cpu: `more than ${CPU_MS / 1000} s of CPU time`,
      memory: `more than ${MEMORY_MB} MiB of memory`,
      files: `files of more than ${MAX_FILES.megabytes} MiB`,
    }[result.limit];
    return {
      refused: {
        message: `Loading the module took ${limit} and was stopped.`,
        hint: 'A module is evaluated once, at deploy: move the work into run(), and large data into the input or a store.',
      },
    };
  }
  const reply = replySchema.safeParse(parse(result.output.trimEnd().split('\n').at(-1) ?? '')).data;
  if (reply) return reply;
  const reason = textForTenant(crashReason(result.errors));
  return {
    error: `the process that loaded the module ended with ${result.code ?? 'a signal'}: ${reason || 'no message'}`,
  };
}

/** Reads a script's artifact for use, which protects it from removal for a while; null when it is missing or not whole. */
export async function readScriptArtifact(store: string, componentHash: string): Promise<ScriptArtifact | null> {
  const hash = scriptArtifactHashOf(componentHash);
  const directory = join(store, hash);
  const forget = noteRead(directory);
  const artifact = await readScriptArtifactAsItIs(store, hash);
  if (artifact === null) {
    forget();
    return null;
  }
  const now = new Date();
  await utimes(directory, now, now).catch(() => undefined);
  return artifact;
}

/** Reads a script's artifact without protecting it from removal. */
export async function readScriptArtifactAsItIs(store: string, hash: string): Promise<ScriptArtifact | null> {
  const directory = join(store, hash);
  try {
    const meta = metaSchema.parse(
      JSON.parse(String(await readPlainFile(join(directory, META_FILE), MAX_DESCRIPTION_BYTES))),
    );
    const sizes = { [HEAP_FILE]: meta.heap.bytes, [PLACES_FILE]: meta.placesBytes };
    for (const [file, bytes] of Object.entries(sizes))
      if ((await lstat(join(directory, file))).size !== bytes) return null;
    return meta.hash === hash ? { directory, meta } : null;
  } catch {
    return null;
  }
}

/** Reads the heap of an artifact. Throws when its content has another hash. */
export async function readHeap({ directory, meta }: ScriptArtifact): Promise<Uint8Array> {
  const bytes = await readFile(join(directory, HEAP_FILE));
  if (createHash('sha256').update(bytes).digest('hex') !== meta.heap.hash)
    throw new Error('the heap of the script is damaged: its content has another hash');
  return bytes;
}

/**
 * Returns a function that replaces a script's places in a text by the author's. It reads the table at the first place that it meets; few runs fail.
 * A table that is gone or damaged leaves texts as they are.
 */
export function placedBy({ directory }: ScriptArtifact): (text: string) => string {
  let places: Places | null | undefined;
  return (text) => {
    if (!text.includes('<input>:')) return text;
    if (places === undefined) {
      try {
        places = new Places(readFileSync(join(directory, PLACES_FILE)));
      } catch {
        places = null;
      }
    }
    return places === null ? text : places.inText(text);
  };
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
