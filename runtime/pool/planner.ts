import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Artifact } from '../build/index.ts';
import { asPlan, type Plan } from '../lowering/plan.ts';
import { type JcoInstantiate, recordPlan, UnplannableError } from '../lowering/record.ts';

/** Longest that planning may take; the start functions of a component get 0.5 s of it. */
const TIMEOUT_MS = 20_000;
const MAX_OUTPUT_BYTES = 16 << 20;
const MAX_HEAP_MB = 256;
const MAIN = fileURLToPath(new URL('./plan-main.ts', import.meta.url));
/** What the child may read besides the artifact: its own code. */
const CODE = ['..', '../../wit', '../../package.json'].map((path) => fileURLToPath(new URL(path, import.meta.url)));

/** What the child prints. */
export type PlanReply =
  | { readonly plan: Plan }
  /** Only the glue can run it. */
  | { readonly unplannable: string }
  | { readonly error: string };

/**
 * Plans an artifact in a process of its own: planning runs the artifact's glue and the start functions of untrusted code, and a module that was
 * imported once stays in memory for good. Throws what kept the component from being instantiated.
 */
export async function planInChild(artifact: Artifact): Promise<Plan | null> {
  const flags = [
    '--permission',
    ...[...CODE, artifact.directory].map((path) => `--allow-fs-read=${path}`),
    `--max-old-space-size=${MAX_HEAP_MB}`,
    '--disable-warning=ExperimentalWarning',
  ];
  const output = await new Promise<string>((resolve, reject) => {
    execFile(
      process.execPath,
      [...flags, MAIN, artifact.directory],
      { timeout: TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT_BYTES, env: {} },
      (error, stdout) => {
        if (error) reject(new Error(`planning failed: ${error.message.split('\n')[0]}`, { cause: error }));
        else resolve(stdout);
      },
    );
  });
  return planIn(JSON.parse(output) as PlanReply);
}

/** Plans an artifact in this process; for tests and for the child. */
export async function planHere(artifact: Artifact): Promise<Plan | null> {
  const files = artifact.coreModules;
  return planIn(await plan(artifact.directory, files));
}

/** What there is to say of an artifact's plan. */
export async function plan(directory: string, files: readonly string[]): Promise<PlanReply> {
  try {
    const glue = (await import(pathToFileURL(join(directory, 'app.js')).href)) as { instantiate: JcoInstantiate };
    const modules = await Promise.all(
      files.map(async (name) => {
        const bytes = await readFile(join(directory, name));
        return { name, bytes, module: await WebAssembly.compile(bytes) };
      }),
    );
    return { plan: await recordPlan(glue.instantiate, modules) };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return error instanceof UnplannableError ? { unplannable: message } : { error: message };
  }
}

function planIn(reply: PlanReply): Plan | null {
  if ('error' in reply) throw new Error(reply.error);
  return 'plan' in reply ? asPlan(reply.plan) : null;
}
