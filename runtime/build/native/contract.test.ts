import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { constantName, functionName, identifier, typeName } from '#wit/generate/c/names.ts';
import { commonPayload } from '#wit/generate/c/types.ts';
import { layoutOf, payloadOffset, sequence } from '#wit/generate/layout.ts';
import { parts, type WitFunction, type WitInterface, type WitType } from '#wit/generate/model.ts';
import { world } from '#wit/generated/world.ts';
import { compileWorld } from '../../lowering/compile.ts';
import { instantiate } from '../../lowering/instance.ts';
import { SliceRunner } from '../../lowering/slices.ts';
import { testArtifact, testProgram } from '../../testing/components.ts';
import { recordingHost, sample, show } from '../../testing/recording-host.ts';
import { compileC } from './clang.ts';
import { wrapModule } from './wrap.ts';

let root = '';
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-native-'));
});
after(() => rm(root, { recursive: true, force: true }));

async function compile(text: string): Promise<Uint8Array> {
  const entry = join(root, 'main.c');
  await writeFile(entry, `#include "pie.h"\n${text}`);
  const { module } = await compileC({ directory: root, entry }, root);
  return module;
}

const PROGRAM =
  'pie_result_string_string pie_run(pie_string input) { (void)input; return (pie_result_string_string){0}; }';

/** Every type that a function of the contract takes or returns, once. */
function allTypes(): WitType[] {
  const found = new Map<string, WitType>();
  const visit = (type: WitType | null): void => {
    if (!type) return;
    parts(type).forEach(visit);
    if (type.kind !== 'future') found.set(typeName(type), type);
  };
  for (const { fn } of allFunctions()) {
    fn.params.forEach(({ type }) => {
      visit(type.kind === 'option' ? type.value : type);
    });
    visit(fn.result);
  }
  return [...found.values()];
}

function allFunctions(): { entry: WitInterface; fn: WitFunction }[] {
  return world.imports.flatMap((entry) =>
    [...entry.resources.flatMap(({ functions }) => functions), ...entry.functions].map((fn) => ({ entry, fn })),
  );
}

/** Assertions for clang that a type has the layout of the canonical ABI. */
function layoutAssertions(type: WitType): string[] {
  const name = typeName(type);
  const { size, align } = layoutOf(type);
  const lines = [`_Static_assert(sizeof(${name}) == ${size} && _Alignof(${name}) == ${align}, "${name}");`];
  const assertOffset = (member: string, offset: number) =>
    lines.push(`_Static_assert(offsetof(${name}, ${member}) == ${offset}, "${name}.${member}");`);
  if (type.kind === 'record') {
    const { offsets } = sequence(type.fields.map((field) => field.type));
    type.fields.forEach((field, i) => {
      assertOffset(identifier(field.name), offsets[i] ?? -1);
    });
  } else if (type.kind === 'option') assertOffset('value', payloadOffset(type));
  else if (type.kind === 'result') {
    if (type.ok) assertOffset('ok', payloadOffset(type));
    if (type.err) assertOffset('err', payloadOffset(type));
  } else if (type.kind === 'variant') {
    const common = commonPayload(type) !== null;
    for (const entry of type.cases)
      if (entry.type) assertOffset(common ? 'value' : identifier(entry.name), payloadOffset(type));
  }
  return lines;
}

/** A sampled value as a C expression. */
function literal(type: WitType, value: unknown): string {
  const name = typeName(type);
  switch (type.kind) {
    case 'bool':
    case 'f32':
    case 'f64':
      return String(value);
    case 'string':
      return `(pie_string){${JSON.stringify(value)}, ${Buffer.byteLength(value as string)}}`;
    case 'list': {
      const items = Array.from(value as ArrayLike<unknown>, (item) => literal(type.element, item));
      return items.length === 0
        ? `(${name}){0}`
        : `(${name}){(const ${typeName(type.element)}[]){${items.join(', ')}}, ${items.length}}`;
    }
    case 'option':
      return value === undefined ? `(${name}){0}` : `(${name}){true, ${literal(type.value, value)}}`;
    case 'record':
      return `(${name}){${type.fields.map((field) => literal(field.type, (value as Record<string, unknown>)[field.js])).join(', ')}}`;
    case 'enum':
      return constantName(type, value as string);
    case 'variant': {
      const { tag, val } = value as { tag: string; val: unknown };
      const payload = type.cases.find((entry) => entry.name === tag)?.type;
      const member = commonPayload(type) ? 'value' : identifier(tag);
      return `(${name}){.tag = ${constantName(type, tag)}${payload ? `, .${member} = ${literal(payload, val)}` : ''}}`;
    }
    case 'own':
    case 'borrow':
      return handle(type.interface, type.resource);
    default:
      return `(${name})${String(value)}u`;
  }
}

/** Name of the variable that holds the program's only resource of this kind. */
const handle = (interfaceName: string, resource: string): string =>
  identifier(`held_${interfaceName}_${resource}`).replaceAll('-', '_');

/** The type of the value behind a parameter that C functions take by pointer; null for a parameter that they take by value. */
function passedByPointer(type: WitType): WitType | null {
  if (type.kind === 'record') return type;
  return type.kind === 'option' ? type.value : null;
}

/** A call whose arguments are samples from `number` on, and the line that the host must record for the call. */
function call(entry: WitInterface, fn: WitFunction, number: number): { code: string; line: string } {
  const name = functionName(entry, fn);
  const args: unknown[] = [];
  const expressions: string[] = [];
  if (fn.kind === 'method' && fn.resource) {
    args.push({ resource: `${fn.resource}#1` });
    expressions.push(handle(entry.name, fn.resource));
  }
  fn.params.forEach(({ type }, index) => {
    const isHandle = type.kind === 'borrow';
    const value = isHandle ? { resource: `${type.resource}#1` } : sample(type, number + index);
    args.push(value);
    const byPointer = passedByPointer(type);
    if (type.kind === 'option' && value === undefined) expressions.push('0');
    else if (byPointer) {
      const text = literal(byPointer, value);
      expressions.push(
        text.startsWith(`(${typeName(byPointer)}){`) ? `&${text}` : `&(${typeName(byPointer)}){${text}}`,
      );
    } else expressions.push(literal(type, value));
  });
  const line = `${entry.name} ${fn.coreName}(${args.map(show).join(', ')})`;
  const started = `${name}(${expressions.join(', ')})`;
  if (fn.kind === 'constructor')
    return { code: `${typeName(fn.result as WitType)} ${handle(entry.name, fn.resource ?? '')} = ${started};`, line };
  return { code: fn.result?.kind === 'future' ? `${name}_wait(${started});` : `(void)${started};`, line };
}

describe('pie.h', () => {
  it('lays out every type as the canonical ABI does', async () => {
    const types = allTypes();
    assert.ok(types.length > 80, `${types.length} types`);
    await compile([...types.flatMap(layoutAssertions), PROGRAM].join('\n'));
    // A false assertion fails the compilation, so the assertions above hold.
    await assert.rejects(compile(`_Static_assert(sizeof(pie_error) == 13, "size");\n${PROGRAM}`), /main\.c:2:1/);
  });

  it('makes every call of the contract with sampled arguments of every shape', async () => {
    const functions = allFunctions();
    const constructors = functions.filter(({ fn }) => fn.kind === 'constructor');
    const others = functions.filter(({ fn }) => fn.kind !== 'constructor');
    // Queues and grammars come first, because later constructors may take them. `>>> 0` turns the index -1 of all others into the largest rank.
    const rank = (name: string): number => ['queue', 'compiled'].indexOf(name) >>> 0;
    constructors.sort((a, b) => rank(a.fn.resource ?? '') - rank(b.fn.resource ?? ''));
    const calls = [
      ...constructors.map(({ entry, fn }) => call(entry, fn, 3)),
      ...[1, 2, 3, 4, 5].flatMap((number) => others.map(({ entry, fn }) => call(entry, fn, number))),
    ];
    const module = await compile(`pie_result_string_string pie_run(pie_string input) {
      ${calls.map(({ code }) => code).join('\n')}
      pie_buffer text = {0};
      pie_append_json(&text, input);
      return (pie_result_string_string){.ok = pie_text(&text)};
    }`);
    const program = await testProgram(await testArtifact(await wrapModule(module)));
    const { host, lines } = recordingHost();
    const execution = instantiate(program, compileWorld(host), {
      slices: new SliceRunner(),
      cpuLimitMs: 10_000,
    });
    // `pie_append_json` writes a line break as \u000a.
    const ending = await execution.start('a "line"\nand é\u0001');
    execution.dispose();
    assert.deepEqual(ending, {
      kind: 'returned',
      ok: true,
      text: JSON.stringify('a "line"\nand é\u0001').replace('\\n', '\\u000a'),
    });
    const recorded = lines.filter((line) => !line.includes('[resource-drop]'));
    recorded.forEach((line, i) => {
      assert.equal(line, calls[i]?.line, `call ${i}`);
    });
    assert.equal(recorded.length, calls.length);
  });

  it('releases arena memory up to a mark and keeps earlier allocations intact', async () => {
    const module = await compile(`pie_result_string_string pie_run(pie_string input) {
      uint64_t sum = 0, first = 0;
      char *kept = pie_alloc(1000, 8);
      for (uint32_t i = 0; i < 1000; i++) kept[i] = (char)i;
      for (uint32_t turn = 0; turn < 200; turn++) {
        pie_mark_t mark = pie_mark();
        for (uint32_t i = 1; i < 40; i++) {
          char *block = pie_alloc(i * i * 100, 1 << i % 5);
          if ((uint32_t)block & ((1u << i % 5) - 1)) __builtin_trap();
          for (uint32_t k = 0; k < i * i * 100; k += 100) block[k] = (char)i;
        }
        pie_release(mark);
        if (turn == 0) first = __builtin_wasm_memory_size(0);
      }
      for (uint32_t i = 0; i < 1000; i++) if (kept[i] != (char)i) __builtin_trap();
      sum = __builtin_wasm_memory_size(0) - first;
      pie_buffer text = {0};
      pie_append_number(&text, sum);
      pie_append(&text, input);
      return (pie_result_string_string){.failed = true, .err = pie_text(&text)};
    }`);
    const program = await testProgram(await testArtifact(await wrapModule(module)));
    const execution = instantiate(program, compileWorld(recordingHost().host), {
      slices: new SliceRunner(),
      cpuLimitMs: 10_000,
    });
    // The guest returns the pages by which memory grew after the first turn, and its input.
    assert.deepEqual(await execution.start(' pages'), { kind: 'returned', ok: false, text: '0 pages' });
    execution.dispose();
  });
});
