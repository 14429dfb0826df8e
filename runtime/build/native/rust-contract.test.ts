import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { noRustc, replaceRustc } from '#test/harness/rust.ts';
import { pascalCase, type WitFunction, type WitInterface, type WitType } from '#wit/generate/model.ts';
import { functionName, identifier, typeName } from '#wit/generate/rust/names.ts';
import { world } from '#wit/generated/world.ts';
import { compileWorld } from '../../lowering/compile.ts';
import { instantiate } from '../../lowering/instance.ts';
import { SliceRunner } from '../../lowering/slices.ts';
import { TEST_COMPONENTS } from '../../testing/cache.ts';
import { testArtifact, testProgram } from '../../testing/components.ts';
import { recordingHost, SHAPES, sample, show } from '../../testing/recording-host.ts';
import { compileRust } from './rustc.ts';
import { wrapModule } from './wrap.ts';

const skip = await noRustc();

let root = '';
let restoreRustc: () => void = () => undefined;
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-rust-'));
  if (skip === false) restoreRustc = await replaceRustc(root, optimisingCrateOnly);
});
after(async () => {
  restoreRustc();
  await rm(root, { recursive: true, force: true });
});

/** A rustc that does not optimise the inferlet: to optimise its hundreds of calls, LLVM needs three times as long as for everything else. */
const optimisingCrateOnly = (rustc: string): string => `
case "$*" in *--crate-name=inferlet*) exec ${rustc} "$@" -Copt-level=0; esac
exec ${rustc} "$@"
`;

async function compile(text: string): Promise<Uint8Array> {
  const entry = join(root, 'main.rs');
  await writeFile(entry, text);
  return (await compileRust({ directory: root, entry }, root, TEST_COMPONENTS)).module;
}

async function run(module: Uint8Array, input: string) {
  const program = await testProgram(await testArtifact(await wrapModule(module)));
  const { host, lines } = recordingHost();
  const execution = instantiate(program, compileWorld(host), { slices: new SliceRunner(), cpuLimitMs: 10_000 });
  const ending = await execution.start(input);
  const open = execution.guest.handleCount;
  execution.dispose();
  return { ending, lines, open };
}

/** The name of a type of the crate `pie`, as an inferlet writes it. */
const nameInInferlet = (type: WitType): string => typeName(type).replaceAll('crate::', 'pie::');

const quoted = (text: string): string => JSON.stringify(text).replace(/\\u([0-9a-f]{4})/g, '\\u{$1}');

/** A sampled value as a Rust expression. */
function literal(type: WitType, value: unknown): string {
  switch (type.kind) {
    case 'bool':
      return String(value);
    case 'string':
      return `${quoted(value as string)}.to_string()`;
    case 'list':
      return `vec![${Array.from(value as ArrayLike<unknown>, (item) => literal(type.element, item)).join(', ')}]`;
    case 'option':
      return value === undefined ? 'None' : `Some(${literal(type.value, value)})`;
    case 'result': {
      const { tag, val } = value as { tag: 'ok' | 'err'; val: unknown };
      const side = type[tag];
      return `${pascalCase(tag)}(${side ? literal(side, val) : '()'})`;
    }
    case 'record': {
      const members = value as Record<string, unknown>;
      return `${nameInInferlet(type)} { ${type.fields.map((field) => `${identifier(field.name)}: ${literal(field.type, members[field.js])}`).join(', ')} }`;
    }
    case 'enum':
      return `${nameInInferlet(type)}::${pascalCase(value as string)}`;
    case 'variant': {
      const { tag, val } = value as { tag: string; val: unknown };
      const payload = type.cases.find((entry) => entry.name === tag)?.type;
      return `${nameInInferlet(type)}::${pascalCase(tag)}${payload ? `(${literal(payload, val)})` : ''}`;
    }
    default:
      return `(${String(value)} as ${typeName(type)})`;
  }
}

/** An element of a list argument: a string is borrowed, and any other value is owned. */
const element = (type: WitType, value: unknown): string =>
  type.kind === 'string' ? argument(type, value) : literal(type, value);

/** A sampled argument as a Rust expression. */
function argument(type: WitType, value: unknown): string {
  switch (type.kind) {
    case 'string':
      return quoted(value as string);
    case 'list':
      return `&[${Array.from(value as ArrayLike<unknown>, (item) => element(type.element, item)).join(', ')}]`;
    case 'option':
      return value === undefined ? 'None' : `Some(${argument(type.value, value)})`;
    case 'borrow':
      return `&${heldResource(type.interface, type.resource)}`;
    case 'record':
    case 'variant':
      return `&${literal(type, value)}`;
    default:
      return literal(type, value);
  }
}

/** The Rust expression for the program's only resource of this kind. */
const heldResource = (interfaceName: string, resource: string): string => `held.${member(interfaceName, resource)}`;

const member = (interfaceName: string, resource: string): string => identifier(`${interfaceName}-${resource}`);

interface Call {
  readonly code: string;
  /** The line that the host must record for the call. */
  readonly line: string;
}

/** A call whose arguments are samples from `number` on, and whose answer must be the sample `answer`. */
function call(entry: WitInterface, fn: WitFunction, number: number, answer: number): Call {
  const args = fn.params.map(({ type }, index) =>
    type.kind === 'borrow' ? { resource: `${type.resource}#1` } : sample(type, number + index),
  );
  const expressions = fn.params.map(({ type }, index) => argument(type, args[index]));
  const self = fn.kind === 'method' && fn.resource ? [{ resource: `${fn.resource}#1` }] : [];
  const line = `${entry.name} ${fn.coreName}(${[...self, ...args].map(show).join(', ')})`;
  const module = `pie::${identifier(entry.name)}`;
  const name = functionName(fn);
  if (fn.kind === 'constructor') {
    const resource = fn.resource ?? '';
    // Constructors run before `held` exists, so they name local variables.
    const made = `${module}::${pascalCase(resource)}::${name}(${expressions.join(', ')})`;
    return { code: `let ${member(entry.name, resource)} = ${made.replaceAll('held.', '')};`, line };
  }
  const callee = fn.resource ? `${heldResource(entry.name, fn.resource)}.${name}` : `${module}::${name}`;
  const started = `${callee}(${expressions.join(', ')})${fn.result?.kind === 'future' ? '.wait()' : ''}`;
  const value = fn.result?.kind === 'future' ? fn.result.value : fn.result;
  if (!value || value.kind === 'own') return { code: `drop(${started});`, line };
  const expected = literal(value, sample(value, answer));
  return { code: `let expected: ${nameInInferlet(value)} = ${expected}; assert_eq!(${started}, expected);`, line };
}

/** Every function of the contract. The recording host answers the calls of a function with the samples `base + 1`, `base + 2` and so on. */
function allFunctions(): { entry: WitInterface; fn: WitFunction; base: number }[] {
  let functions = 0;
  return world.imports.flatMap((entry) =>
    [...entry.functions, ...entry.resources.flatMap((resource) => resource.functions)].map((fn) => ({
      entry,
      fn,
      base: functions++ * SHAPES,
    })),
  );
}

/** Makes the calls in one program, and checks the calls that the host recorded and the end of the run. */
async function makeCalls(
  constructors: readonly Call[],
  heldFields: readonly string[],
  others: readonly Call[],
): Promise<void> {
  // Each call has its own function: the compiler takes minutes for one function with a thousand calls.
  const module = await compile(`
    struct Held { ${heldFields.join(', ')} }
    ${others.map(({ code }, i) => `#[inline(never)] fn call_${i}(held: &Held) { ${code} }`).join('\n')}
    fn run(input: String) -> Result<String, String> {
      ${constructors.map(({ code }) => code).join('\n')}
      let held = Held { ${heldFields.map((member) => member.split(':')[0]).join(', ')} };
      for call in [${others.map((_, i) => `call_${i}`).join(', ')}] as [fn(&Held); ${others.length}] {
        call(&held);
      }
      Ok(input)
    }
    pie::inferlet!(run);`);
  const { ending, lines, open } = await run(module, 'a "line"\nand é\u0001');
  const calls = [...constructors, ...others];
  const recorded = lines.filter((line) => !line.includes('[resource-drop]'));
  recorded.forEach((line, i) => {
    assert.equal(line, calls[i]?.line, `call ${i}`);
  });
  assert.deepEqual(ending, { kind: 'returned', ok: true, text: 'a "line"\nand é\u0001' });
  assert.equal(recorded.length, calls.length);
  // All resources and futures have gone out of scope, so no handle is open.
  assert.equal(open, 0);
}

describe('pie.rs', { skip }, () => {
  const contractFunctions = allFunctions();
  const constructors = contractFunctions.filter(({ fn }) => fn.kind === 'constructor');
  const others = contractFunctions.filter(({ fn }) => fn.kind !== 'constructor');
  // Queues and grammars come first, because later constructors may take them. `>>> 0` turns the index -1 of all others into the largest rank.
  const rank = (name: string): number => ['queue', 'compiled'].indexOf(name) >>> 0;
  constructors.sort((a, b) => rank(a.fn.resource ?? '') - rank(b.fn.resource ?? ''));
  const heldFields = constructors.map(({ entry, fn }) => {
    const resource = fn.resource ?? '';
    return `${member(entry.name, resource)}: pie::${identifier(entry.name)}::${pascalCase(resource)}`;
  });
  const half = Math.ceil(others.length / 2);

  for (const [part, functions] of [others.slice(0, half), others.slice(half)].entries()) {
    it(`makes every call of the contract with arguments and answers of every shape, part ${part + 1}`, () =>
      makeCalls(
        constructors.map(({ entry, fn }) => call(entry, fn, 3, 0)),
        heldFields,
        // Four calls of each function: the host's fourth answer is an error.
        [1, 2, 4, 5].flatMap((number, index) =>
          functions.map(({ entry, fn, base }) => call(entry, fn, number, base + index + 1)),
        ),
      ));
  }
});
