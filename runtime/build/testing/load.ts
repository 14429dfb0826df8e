import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { WitFunction, WitType } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';
import type { Artifact } from '../artifact/artifact.ts';

/** Answers of the host, by interface and function (`runtime` → `log`); an omitted function returns a plain value of its type. */
type Answers = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

interface Loaded {
  run(input: string): Promise<string>;
  /** Makes the instance trap at its next yield. */
  kill(): void;
  /** Number of times that the instance has yielded to the event loop. */
  readonly yields: () => number;
  readonly logs: readonly { readonly level: string; readonly message: string }[];
  /** Bytes of all memories of the instance together. */
  readonly memoryBytes: () => number;
}

type Imports = Record<string, Record<string, unknown>>;
interface Root {
  run(input: string): Promise<string>;
}
type Instantiate = (
  getCoreModule: (name: string) => WebAssembly.Module,
  imports: Imports,
  instantiateCore: (module: WebAssembly.Module, imports: WebAssembly.Imports) => WebAssembly.Instance,
) => Promise<Root>;

/** A module that imports `m.y` and exports it as `y`. The export of a suspending import is a function that a table can hold. */
const FUNCTION_REFERENCE = new WebAssembly.Module(
  Uint8Array.of(
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0],
    ...[2, 7, 1, 1, 0x6d, 1, 0x79, 0, 0, 7, 5, 1, 1, 0x79, 0, 0],
  ),
);

/** Instantiates an artifact with jco's glue and a host that answers plain values. The host follows the fuel protocol as a runtime does. */
export async function load(
  artifact: Pick<Artifact, 'directory' | 'coreModules' | 'glue'>,
  answers: Answers = {},
  fuel = 10_000,
): Promise<Loaded> {
  const modules = new Map(
    artifact.coreModules.map((file) => [file, new WebAssembly.Module(readFileSync(join(artifact.directory, file)))]),
  );
  const { instantiate } = (await import(pathToFileURL(artifact.glue).href)) as { instantiate: Instantiate };
  const logs: { level: string; message: string }[] = [];
  const memories = new Set<WebAssembly.Memory>();
  let killed = false;
  let yields = 0;
  const meterOf = (exports: WebAssembly.Exports) => {
    const global = exports.pie_fuel as WebAssembly.Global;
    global.value = fuel;
    const y = new WebAssembly.Suspending(() => {
      yields += 1;
      global.value = killed ? 0 : fuel;
      return new Promise<void>((resolve) =>
        setImmediate(() => {
          if (killed) global.value = 0;
          resolve();
        }),
      );
    });
    const wrapper = new WebAssembly.Instance(FUNCTION_REFERENCE, { m: { y } });
    (exports.pie_yield as WebAssembly.Table).set(0, wrapper.exports.y);
  };
  const root = await instantiate(
    (name) => {
      const module = modules.get(name);
      if (!module) throw new Error(`the artifact has no ${name}`);
      return module;
    },
    importsFor({
      ...answers,
      runtime: { log: (level: string, message: string) => void logs.push({ level, message }), ...answers.runtime },
    }),
    (module, imports) => {
      const instance = new WebAssembly.Instance(module, imports);
      for (const value of Object.values(instance.exports)) if (value instanceof WebAssembly.Memory) memories.add(value);
      if (instance.exports.pie_fuel) meterOf(instance.exports);
      return instance;
    },
  );
  return {
    run: (input) => root.run(input),
    kill: () => {
      killed = true;
    },
    yields: () => yields,
    logs,
    memoryBytes: () => [...memories].reduce((sum, memory) => sum + memory.buffer.byteLength, 0),
  };
}

function importsFor(answers: Answers): Imports {
  const imports: Imports = {};
  for (const entry of world.imports) {
    const members: Record<string, unknown> = {};
    for (const item of entry.functions) members[item.js] = answerOf(item, answers[entry.js]);
    for (const resource of entry.resources) {
      const Resource = class {};
      for (const item of resource.functions) {
        if (item.kind === 'method') Object.assign(Resource.prototype, { [item.js]: answerOf(item, answers[entry.js]) });
      }
      members[resource.js] = answers[entry.js]?.[resource.js] ?? Resource;
    }
    imports[entry.id.replace(/@.*$/, '')] = members;
  }
  return imports;
}

const answerOf = (item: WitFunction, answers: Readonly<Record<string, unknown>> | undefined): unknown =>
  answers?.[item.js] ?? (() => plain(item.result, true));

/**
 * The simplest value of a type: zero, an empty list, the first case, `ok`. jco takes the result of a function as the bare `ok` value.
 * @param isResult true for the result of a function
 */
function plain(type: WitType | null, isResult = false): unknown {
  if (!type) return undefined;
  switch (type.kind) {
    case 'bool':
      return false;
    case 'string':
    case 'char':
      return '';
    case 'u64':
    case 's64':
      return 0n;
    case 'list':
      return type.element.kind === 'u32' ? new Uint32Array(0) : [];
    case 'option':
      return undefined;
    case 'future':
      return Promise.resolve(plain(type.value));
    case 'result':
      return isResult ? plain(type.ok) : { tag: 'ok', val: plain(type.ok) };
    case 'record':
      return Object.fromEntries(type.fields.map((field) => [field.js, plain(field.type)]));
    case 'variant':
      return { tag: type.cases[0]?.name, val: plain(type.cases[0]?.type ?? null) };
    case 'enum':
      return type.cases[0]?.name;
    case 'tuple':
      return type.items.map((item) => plain(item));
    case 'own':
    case 'borrow':
      return {};
    default:
      return 0;
  }
}
