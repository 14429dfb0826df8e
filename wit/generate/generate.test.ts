import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { world } from '../generated/world.ts';
import { typeName as cTypeName } from './c/names.ts';
import { comment as cComment } from './c/types.ts';
import { readWorld, render, WIT_DIRECTORY } from './generate.ts';
import { WitError } from './lexer.ts';
import type { NamedType, RecordType } from './model.ts';
import { documentation } from './names.ts';
import { parse } from './parse.ts';
import { type CallReference, referenceOf } from './reference.ts';
import { resolve } from './resolve.ts';
import { typeLines } from './rust/types.ts';

test('the committed files equal those generated from wit/', async () => {
  const rendered = await render();
  const generated = (await readdir(join(WIT_DIRECTORY, 'generated'))).map((name) => `generated/${name}`);
  assert.deepEqual([...generated, 'REFERENCE.md'].sort(), [...rendered.keys()].sort());
  for (const [name, text] of rendered) {
    const committed = await readFile(join(WIT_DIRECTORY, name), 'utf8');
    assert.ok(committed === text, `${name} is stale: run npm run generate`);
  }
});

test('generated/world.ts has the world of wit/*.wit without its documentation', async () => {
  const withoutDocs = (value: unknown): unknown =>
    JSON.parse(JSON.stringify(value, (key, inner) => (key === 'docs' ? undefined : inner)));
  assert.deepEqual(world, withoutDocs(await readWorld()));
});

test('the reference has every interface and call, with its errors and its cost', async () => {
  const rendered = await render();
  const page = rendered.get('REFERENCE.md') ?? '';
  for (const entry of world.imports) {
    assert.ok(page.includes(`\n## ${entry.name}\n`), entry.name);
    for (const { functions } of [entry, ...entry.resources]) {
      for (const { name, resource } of functions) {
        const title = resource === null ? name : `${resource}.${name}`;
        assert.ok(page.includes(`\n### ${title}\n`), title);
      }
    }
  }
  assert.match(
    page,
    /### import-pages\n\n```wit\nimport-pages: func\(queue: borrow<queue>, name: string\) -> future<result<imported, error>>\n/,
  );
  assert.match(page, /Waits: [^\n]* Errors: `not-found`, `invalid-argument`\. C: `pie_allocate_import_pages`\./);
  assert.match(page, /`pie:inferlet\/store@[0-9.]+` · Grant `store` of the manifest\./);
  assert.match(page, /`pie:inferlet\/forward@[0-9.]+` · Trait `forward` of the model\./);
});

test('the text of documentation never ends the comment that is generated around it', () => {
  for (const comment of [documentation, cComment])
    for (const docs of ['All of `*/*`.', 'All of\n`*/*`.']) {
      const text = comment(docs).join('\n');
      assert.equal(text.indexOf('*/'), text.length - 2, text);
    }
});

test('the reference says for each interface that it needs a grant, an encoder, a known trait, or nothing', async () => {
  const { interfaces } = referenceOf(await readWorld());
  const knownTraits = new Set([
    'allocate',
    'forward',
    'fused',
    'penalties',
    'grammar',
    'introspect',
    'kv-files',
    'adapter',
    'tokenize',
    'input-text',
    'input-image',
    'output-text',
  ]);
  const withUnknownNeed = interfaces.filter(({ needs }) => {
    const trait = /^Trait `(.*)` of the model\.$/.exec(needs)?.[1];
    if (trait !== undefined) return !knownTraits.has(trait);
    return !/^(Always there\.|Grant `[a-z]+` |An encoder )/.test(needs);
  });
  assert.deepEqual(withUnknownNeed, []);
});

/** Finds a call of the contract's reference by `<interface>/<call>`. */
async function readCalls(): Promise<(path: string) => CallReference | undefined> {
  const { interfaces } = referenceOf(await readWorld());
  return (path) => interfaces.flatMap((entry) => entry.calls.filter(({ name }) => `${entry.name}/${name}` === path))[0];
}

test('the reference writes "Later calls report" before the errors of a call that has no WIT `result`', async () => {
  const call = await readCalls();
  for (const path of ['queue/queue.stop', 'penalties/start-run', 'http/exchange.constructor']) {
    assert.equal(call(path)?.errorsTitle, 'Later calls report', path);
  }
  for (const path of ['http/exchange.head', 'session/send']) assert.equal(call(path)?.errorsTitle, 'Errors', path);
});

test('the reference mentions dependent calls only for a call that takes a queue', async () => {
  const call = await readCalls();
  assert.match(call('forward/forward')?.cost ?? '', /its errors show in the calls that depend on it/);
  assert.equal(call('runtime/log')?.cost, 'Issued without waiting.');
});

const worldOf = (text: string) => resolve([parse('test.wit', text)], 'w');

suite('resolve()', () => {
  const resolved = worldOf(`package a:b@1.2.3;
    /// About x.
    interface x {
      /// A pair.
      record pair { %list: list<u8>, second: option<tuple<s64, f32>>, }
      type pairs = list<pair>;
      resource thing { constructor(n: u32); get: func() -> future<result<pairs, e>>; make: static func(t: borrow<thing>) -> thing; }
      enum e { one, two }
    }
    interface y { use x.{pair as couple, thing}; swap: func(p: couple, t: borrow<thing>) -> result; bare: func(); }
    world w { import x; import y; export go: async func(a: string) -> result<_, string>; }`);
  const [x, y] = resolved.imports;

  test('replaces each name of a declared type by the type, the same object in all interfaces', () => {
    const pair = x?.types[0] as RecordType;
    assert.equal(pair.docs, 'A pair.');
    assert.deepEqual(
      pair.fields.map(({ name, js }) => [name, js]),
      [
        ['list', 'list'],
        ['second', 'second'],
      ],
    );
    assert.equal(y?.functions[0]?.params[0]?.type, pair);
    assert.deepEqual(y?.functions[0]?.result, { kind: 'result', ok: null, err: null });
    assert.equal(y?.functions[1]?.result, null);
    const get = x?.resources[0]?.functions[1];
    assert.deepEqual(get?.result, {
      kind: 'future',
      value: { kind: 'result', ok: { kind: 'list', element: pair }, err: x?.types[1] },
    });
  });

  test('gives interfaces and functions the names that core modules import', () => {
    assert.equal(x?.id, 'a:b/x@1.2.3');
    assert.deepEqual(
      x?.resources[0]?.functions.map(({ coreName, kind }) => [coreName, kind]),
      [
        ['[constructor]thing', 'constructor'],
        ['[method]thing.get', 'method'],
        ['[static]thing.make', 'static'],
      ],
    );
  });

  test('keeps the result and `async` of an exported function', () => {
    const [go] = resolved.exports;
    assert.deepEqual(go?.result, { kind: 'result', ok: null, err: { kind: 'string' } });
    assert.equal(go?.async, true);
  });
});

test('Rust derives a default only for a variant whose first case is `none`', () => {
  const { imports } = worldOf(`package a:b@1.0.0;
    interface x { variant first { none, some(u8) } variant last { some(u8), none } }
    world w { import x; }`);
  const rust = imports[0]?.types.map((type) =>
    typeLines(type as NamedType, { lift: new Set(), lower: new Set() }).join('\n'),
  );
  assert.deepEqual(
    rust?.map((text) => [/\bDefault\b/.test(text), text.includes('#[default]')]),
    [
      [true, true],
      [false, false],
    ],
  );
});

test('the name of a C result leaves out its error type only if that is `types.error`', () => {
  const { imports } = worldOf(`package a:b@1.0.0;
    interface types { variant error { none } enum other { none } }
    interface x { use types.{error, other}; f: func() -> result<u8, error>; g: func() -> result<u8, other>; }
    world w { import types; import x; }`);
  assert.deepEqual(
    imports[1]?.functions.map(({ result }) => result && cTypeName(result)),
    ['pie_result_u8', 'pie_result_u8_other'],
  );
});

suite('parsing and resolving WIT throws', () => {
  /** WIT text, and a part of the error's message. Most parts begin with the place of the mistake: file, line and column. */
  const mistakes: readonly (readonly [string, string])[] = [
    [
      'package a:b@1.0.0;\ninterface x { f: func(a: strin); }\nworld w { import x; }',
      "test.wit:2:26: no type is named 'strin' here",
    ],
    ['package a:b@1.0.0;\ninterface x {\n  f func();\n}', "test.wit:3:5: expected ':', found 'func'"],
    ['package a:b@1.0.0; world w { import q; }', "test.wit:1:37: no interface is named 'q'"],
    ['package a:b@1.0.0; interface x { record r { a: r } } world w { import x; }', "'r' contains itself"],
    [
      'package a:b@1.0.0; interface x { use y.{t}; f: func(a: t); } interface y { use x.{t}; } world w { import x; }',
      "test.wit:1:83: no interface declares 't': the 'use's lead in a circle",
    ],
    [
      'package a:b@1.0.0; interface x { f: func(a: map<u8>); } world w { import x; }',
      "'map' is not a type of our subset",
    ],
    [
      'package a:b@1.0.0; interface x { f: func(a: tuple<u8, _>); } world w { import x; }',
      "'tuple' needs a type for each item",
    ],
    [
      'package a:b@1.0.0; interface x { f: func(a: list<u8, u16>); } world w { import x; }',
      "test.wit:1:45: 'list' has 2 types in its brackets; the limit is 1",
    ],
    [
      'package a:b@1.0.0; interface x { f: func() -> result<u8, u8, u8>; } world w { import x; }',
      "'result' has 3 types in its brackets; the limit is 2",
    ],
    [
      'package a:b@1.0.0; interface x { resource r { } f: func(a: own<own<r>>); } world w { import x; }',
      "test.wit:1:60: 'own' is not a type of our subset",
    ],
    ['package a:b@1.0.0; interface x { § }', "test.wit:1:34: unexpected character '§'"],
    ['package a:b@1.0.0; interface x {', 'found the end of the file'],
    ['package a:b; world w {}', "expected '@'"],
    ['interface x {}', 'no file says which package this is'],
    ['package a:b@1.0.0;', "no world is named 'w'"],
    ['package a:b@1.0.0; world w { include z; }', "expected 'import' of an interface or 'export' of a function"],
  ];
  for (const [text, message] of mistakes) {
    test(`"${message}"`, () => {
      assert.throws(
        () => worldOf(text),
        (error) => error instanceof WitError && error.message.includes(message),
      );
    });
  }
});

test('guest.d.ts accepts the code of an inferlet, and refuses a typed array of another type and a model name that is no string', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'pie-guest-'));
  try {
    const source = `
      import { Run, step, type StepRequest } from 'pie:inferlet/fused@0.1.0';
      import { Queue } from 'pie:inferlet/queue@0.1.0';
      import { send, receive, type Message } from 'pie:inferlet/session@0.1.0';
      import { now, type ModelInfo } from 'pie:inferlet/runtime@0.1.0';
      import type { Error as HandlerError, Future, Outcome, Thrown } from 'pie:inferlet/types@0.1.0';
      export async function run(input: string): Promise<string> {
        using queue = new Queue('m');
        const request: StepRequest = { tokens: [1], positions: new Uint32Array(1), inPages: [], outPages: [], rows: 1, output: { tag: 'none' } };
        const outcome = await step(queue, request).read();
        if (outcome.tag === 'err') { const error: HandlerError = outcome.val; return error.val + input; }
        const tokens: number[] = outcome.val.tokens;
        const waiting: Future<Outcome<Message>> = receive();
        const message = await waiting.read();
        if (message.tag === 'ok') send(message.val);
        try { send({ tag: 'bytes', val: [1, 2] }); } catch (thrown) { return (thrown as Thrown).payload.tag; }
        const next = await new Run(queue, { token: 1, position: 0, pages: [], maxTokens: 1, sampler: { temperature: 0, topK: 0, topP: 1, minP: 0, seed: 1 }, stopTokens: [] }).next().read();
        if (next.tag === 'ok' && next.val.finished !== null) return next.val.finished;
        const names: ModelInfo['traits'] = [];
        // @ts-expect-error a typed array of another type traps
        step(queue, { ...request, tokens: new Int32Array(1) });
        // @ts-expect-error a model is named by a string
        new Queue(5);
        return String(now() + tokens.length + names.length);
      }`;
    await writeFile(join(directory, 'inferlet.ts'), source);
    const files = ['inferlet.ts', join(WIT_DIRECTORY, 'generated/guest.d.ts')];
    const compilerOptions = {
      strict: true,
      noEmit: true,
      target: 'esnext',
      module: 'nodenext',
      lib: ['esnext'],
      types: [],
      noUnusedLocals: true,
    };
    await writeFile(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }));
    const tsc = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));
    await promisify(execFile)(process.execPath, [tsc, '-p', directory]).catch((error: { stdout: string }) =>
      assert.fail(error.stdout),
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
