import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { world } from '#wit/generated/world.ts';
import { compileWorld, type HostTable } from '../lowering/compile.ts';
import type { Program } from '../lowering/instance.ts';
import type { Plan } from '../lowering/plan.ts';
import { type JcoInstantiate, recordPlan } from '../lowering/record.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { GuestTrap } from '../lowering/trap.ts';
import type { MeasuredStarts } from './examine.ts';
import { InstancePool } from './pool.ts';

const LAUNCHES = 3;
/** An instance that takes longer than this to make is launched only once. */
const SLOW_MS = 20;
/** An instance with more memory than this is launched only once. */
const LARGE_BYTES = 16 << 20;
/** Key of the only program in this pool. */
const KEY = 'measured';

/** Reads and compiles the modules of an artifact. */
export async function compileFiles(directory: string, plan: Plan): Promise<Program> {
  const files = [...new Set(plan.instances.map(({ module }) => module))];
  const modules = files.map(
    async (file) => [file, await WebAssembly.compile(await readFile(join(directory, file)))] as const,
  );
  return { plan, modules: new Map(await Promise.all(modules)) };
}

/** Loads an artifact and launches it several times. Runs in a disposable process. Throws when an instance cannot be made. */
export async function measureArtifact(directory: string, plan: Plan): Promise<MeasuredStarts> {
  const from = performance.now();
  const program = await compileFiles(directory, plan);
  return measureProgram(program, performance.now() - from);
}

/** Launches a program several times. @param loadMs time that reading and compiling it took */
export function measureProgram(program: Program, loadMs: number): MeasuredStarts {
  const compiled = compileWorld(absentHost(() => 'a start function called the host'));
  const pool = new InstancePool({ world: compiled, slices: new SliceRunner(), budgetBytes: Number.MAX_SAFE_INTEGER });
  try {
    return measureStarts(pool, program, loadMs);
  } finally {
    pool.close();
  }
}

/** Launches a program with an empty pool, then with a full one; returns medians. */
function measureStarts(pool: InstancePool, program: Program, loadMs: number): MeasuredStarts {
  pool.admit(KEY, program);
  const first = pool.take(KEY);
  const isCostly = first.instantiateMs > SLOW_MS || first.execution.state.memoryBytes > LARGE_BYTES;
  const launches = isCostly ? 1 : LAUNCHES;
  const furtherColdMs = Array.from({ length: launches - 1 }, () => pool.take(KEY).instantiateMs);
  const instanceBytes = pool.fill(KEY, launches);
  const warmMs = Array.from({ length: launches }, () => {
    const from = performance.now();
    pool.take(KEY);
    return performance.now() - from;
  });
  const coldStartMs = loadMs + median([first.instantiateMs, ...furtherColdMs]);
  return { coldStartMs: rounded(coldStartMs), warmStartMs: rounded(median(warmMs)), instanceBytes };
}

/** A host whose functions trap: no host is there while start functions run, or while a script is evaluated. @param message of a call's trap */
export function absentHost(message: (call: string) => string): HostTable {
  return Object.fromEntries(
    world.imports.map(({ name, functions, resources }) => {
      const members = [...functions, ...resources.flatMap((resource) => resource.functions)];
      const names = [
        ...members.map(({ coreName }) => coreName),
        ...resources.map((each) => `[resource-drop]${each.name}`),
      ];
      const refuse = (member: string) => () => {
        throw new GuestTrap('trap', message(`${name} ${member}`));
      };
      return [name, Object.fromEntries(names.map((member) => [member, refuse(member)]))];
    }),
  );
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;

/**
 * Plans an artifact's core modules in this process: runs the artifact's glue and the start functions of untrusted code. Throws
 * `UnplannableError`, or the error that prevented the instantiation.
 */
export async function planFiles(directory: string, files: readonly string[]): Promise<Plan> {
  const glue = (await import(pathToFileURL(join(directory, 'app.js')).href)) as { instantiate: JcoInstantiate };
  const modules = await Promise.all(
    files.map(async (name) => {
      const bytes = await readFile(join(directory, name));
      return { name, bytes, module: await WebAssembly.compile(bytes) };
    }),
  );
  return recordPlan(glue.instantiate, modules);
}
