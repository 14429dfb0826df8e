import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { artifactHashOf, sha256 } from '#runtime/build/artifact/artifact.ts';
import { makeArtifact } from '#runtime/build/artifact/make.ts';
import { failureFrom } from '#runtime/build/outcome.ts';
import { readArtifact } from '#runtime/build/store.ts';
import { compileWorld } from '#runtime/lowering/compile.ts';
import { instantiate } from '#runtime/lowering/instance.ts';
import { ReservedNameError, UnplannableError } from '#runtime/lowering/record.ts';
import { SliceRunner } from '#runtime/lowering/slices.ts';
import { GuestTrap } from '#runtime/lowering/trap.ts';
import { testProgram } from '#runtime/testing/components.ts';
import { plainHost } from './plain-host.ts';

const MEMORY_PAGES = 64;
const CPU_LIMIT_MS = 20;
/** Wall time after which this process ends an invocation, as the platform does. */
const WALL_LIMIT_MS = 3000;

/** The stage that a mutant reached, and its final code. */
export interface MutantEnd {
  readonly stage: 'build' | 'plan' | 'start' | 'run';
  readonly code: string;
  readonly message: string;
}

const compiled = compileWorld(plainHost());
const slices = new SliceRunner();

/** Builds, plans, instantiates and runs a component in this process. Returns an end with a code; every thrown error is a finding. */
export async function runMutant(component: Uint8Array): Promise<MutantEnd> {
  const store = await mkdtemp(join(tmpdir(), 'pie-mutant-'));
  try {
    const hash = artifactHashOf(sha256(component), { memoryPages: MEMORY_PAGES });
    const directory = join(store, hash);
    try {
      await makeArtifact(component, directory, { memoryPages: MEMORY_PAGES });
    } catch (error) {
      const { code, message } = failureFrom(error);
      return { stage: 'build', code, message };
    }
    const artifact = await readArtifact(store, hash);
    if (!artifact) throw new Error('the artifact that was made is not whole');
    let program: Awaited<ReturnType<typeof testProgram>>;
    try {
      program = await testProgram(artifact);
    } catch (error) {
      const isRefused = error instanceof UnplannableError || error instanceof ReservedNameError;
      if (!isRefused && !isGuestsFault(error)) throw error;
      return { stage: 'plan', code: 'build-failed', message: String(error) };
    }
    let execution: ReturnType<typeof instantiate>;
    try {
      execution = instantiate(program, compiled, { slices, cpuLimitMs: CPU_LIMIT_MS });
    } catch (error) {
      if (!isGuestsFault(error)) throw error;
      return { stage: 'start', code: 'build-failed', message: String(error) };
    }
    const deadline = setTimeout(() => execution.kill(new GuestTrap('deadline-exceeded', 'was late')), WALL_LIMIT_MS);
    const ending = await execution.start('{"tokens": 2}').finally(() => clearTimeout(deadline));
    execution.dispose();
    if (ending.kind === 'trapped') return { stage: 'run', code: ending.trap.code, message: ending.trap.message };
    return { stage: 'run', code: ending.ok ? 'result' : 'inferlet-error', message: ending.text };
  } finally {
    await rm(store, { recursive: true, force: true });
  }
}

/** Messages of V8 for an exhausted stack, and for memories and tables that it cannot allocate. */
const EXHAUSTED = /call stack|WebAssembly/;

/** True for errors that an instantiation may throw: traps, link errors, and exhaustion. Other range errors are faults of the platform. */
const isGuestsFault = (error: unknown): boolean =>
  error instanceof GuestTrap ||
  error instanceof WebAssembly.RuntimeError ||
  error instanceof WebAssembly.LinkError ||
  (error instanceof RangeError && EXHAUSTED.test(error.message));
