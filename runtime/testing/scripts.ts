import { findSource } from '../build/component/source.ts';
import { buildScript } from '../build/component/stage.ts';
import { unpackScript } from '../build/script/payload.ts';
import { compileWorld, type HostFunction } from '../lowering/compile.ts';
import type { Ending } from '../lowering/execution.ts';
import { decodeHeap, encodeHeap } from '../lowering/heap.ts';
import { instantiate, type Program } from '../lowering/instance.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { type Engine, Engines } from '../pool/engines.ts';
import { evaluateScript } from '../pool/evaluate.ts';
import { makeEngineArtifact } from '../pool/make-engine.ts';
import { basePlan } from '../pool/scripts.ts';
import { TEST_ARTIFACTS } from './cache.ts';
import { recordingHost } from './recording-host.ts';

interface TestEngine {
  readonly engine: Engine;
  /** The engine as a component of its own, whose modules define their memory. */
  readonly program: Program;
}

let testing: Promise<TestEngine> | undefined;

/** The engine of this installation, compiled in this process. Makes it when there is none. */
export function testEngine(): Promise<TestEngine> {
  testing ??= makeTestEngine();
  return testing;
}

async function makeTestEngine(): Promise<TestEngine> {
  const engines = new Engines({ store: TEST_ARTIFACTS, componentOf: async () => null, layers: undefined });
  if (!(await engines.installed())) {
    await makeEngineArtifact();
    return makeTestEngine();
  }
  const engine = await engines.get((await engines.installed())?.hash ?? '');
  const { compileFiles } = await import('../pool/measure.ts');
  return { engine, program: await compileFiles(engine.artifact.directory, basePlan(engine)) };
}

interface ScriptRun {
  readonly ending: Ending;
  readonly logs: readonly { readonly level: string; readonly message: string }[];
  readonly memoryBytes: number;
}

interface ScriptRunOptions {
  /** Functions of the interface `runtime` that replace those of the recording host; without the context, their first parameter. */
  readonly answers?: Readonly<Record<string, (...args: never[]) => unknown>>;
  readonly cpuLimitMs?: number;
  /** Maximum pages of the memory; 1024 by default. */
  readonly pages?: number;
}

/** Builds and evaluates a source in this process. Returns a function that runs it, each time in a new instance. */
export async function testScript(
  path: string,
): Promise<(input: string, options?: ScriptRunOptions) => Promise<ScriptRun>> {
  const { engine, program } = await testEngine();
  const { script } = await buildScript(await findSource(path));
  const made = await evaluateScript(program, engine.hash, unpackScript(script).text);
  const heap = decodeHeap(encodeHeap(made), engine.hash);
  const modules = await Promise.all(
    engine.modules.map(
      async ({ file, bytes }) => [file, await WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>)] as const,
    ),
  );
  return async (input, { answers = {}, cpuLimitMs = 20_000, pages = 1024 } = {}) => {
    const logs: { level: string; message: string }[] = [];
    const { host } = recordingHost();
    const own = Object.entries({
      ...answers,
      log: (level: string, message: string) => void logs.push({ level, message }),
    });
    const runtime = Object.fromEntries(
      own.map(([name, answer]) => [
        name,
        ((_: unknown, ...args: never[]) => (answer as (...all: never[]) => unknown)(...args)) as HostFunction,
      ]),
    );
    const world = compileWorld({ ...host, runtime: { ...host.runtime, ...runtime } });
    const memory = { minimum: engine.memoryPages, maximum: pages };
    const execution = instantiate({ plan: engine.plan, modules: new Map(modules), memory, heap }, world, {
      slices: new SliceRunner(),
      cpuLimitMs,
    });
    execution.guest.context = {} as never;
    const ending = await execution.start(input);
    const { memoryBytes } = execution.state;
    execution.dispose();
    return { ending, logs, memoryBytes };
  };
}
