import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  DEFAULT_LIMITS,
  LIMIT_BOUNDS,
  type Manifest,
  manifestModels,
  parseManifest,
  resolveLimits,
} from './manifest.ts';

const nested = (depth: number): unknown => JSON.parse(`${'['.repeat(depth)}${']'.repeat(depth)}`);

describe('manifest', () => {
  test('a manifest with every field is parsed unchanged', () => {
    const manifest = {
      name: 'text-completion',
      description: 'Completes a text.',
      input: {
        type: 'object',
        required: ['prompt'],
        properties: { prompt: { type: 'string', maxLength: 100 } },
        additionalProperties: false,
      },
      model: ['stories15m', 'org/other-model'],
      limits: { cpuMs: 1000, tokens: 5 },
      pool: { min: 2 },
      latency: { firstTokenMs: 200, perTokenMs: 40 },
      restartable: true,
      secrets: ['TOKEN'],
      environment: { MODE: 'fast' },
      main: 'src/main.ts',
    };
    assert.deepEqual(parseManifest(manifest), { ok: true, manifest });
    assert.deepEqual(parseManifest({ $schema: './pie.schema.json', ...manifest }), { ok: true, manifest });
    assert.deepEqual(resolveLimits(manifest as Manifest), {
      ...DEFAULT_LIMITS,
      cpuMs: 1000,
      tokens: 5,
      maxPriority: 3,
    });
    assert.deepEqual(manifestModels(manifest as Manifest), manifest.model);
    assert.deepEqual(manifestModels({ name: 'a', model: 'm' }), ['m']);
    assert.deepEqual(manifestModels({ name: 'a' }), []);
    const without = { name: 'a', latency: false };
    assert.deepEqual(parseManifest(without), { ok: true, manifest: without });
  });

  const contextsOf = (input: string) => {
    const manifest: Manifest = { name: 'a', limits: { pages: 'context' } };
    const { pages, contexts } = resolveLimits(manifest, { ...DEFAULT_LIMITS, pages: 512 }, input);
    assert.equal(pages, 512);
    return contexts;
  };

  test('counts the contexts of an input for `limits.pages: "context"`, and keeps the default pages', () => {
    assert.ok(parseManifest({ name: 'a', limits: { pages: 'context' } }).ok);
    const inputs: [input: unknown, contexts: number][] = [
      [{}, 1],
      [{ prompt: 'a', n: 1 }, 1],
      [{ messages: [], n: 4 }, 4],
      [{ prompt: ['a', 'b', 'c'], n: 2 }, 6],
      [{ prompt: [[1, 2], [3]] }, 2],
      [{ prompt: [1, 2, 3], n: 2 }, 2],
      [{ prompt: [] }, 1],
      [{ prompt: ['say "n": 9'] }, 1],
      [{ deep: { n: 9 } }, 1],
      [{ n: 0 }, 1],
      [{ n: 1.5 }, 1],
      [{ n: '3' }, 1],
      [{ n: 1e9 }, 1_000_000],
      [[{ n: 3 }], 1],
      [null, 1],
    ];
    for (const [input, contexts] of inputs)
      assert.equal(contextsOf(JSON.stringify(input)), contexts, JSON.stringify(input));
    assert.equal(contextsOf('{"n": 3'), 1, 'text that is not JSON');
    assert.equal(resolveLimits({ name: 'a', limits: { pages: 9 } }, undefined, '{"n":3}').contexts, undefined);
  });

  test('counts contexts as a parser would, in texts of every form', () => {
    const value = fc.oneof(
      fc.integer({ min: -2, max: 5 }),
      fc.double(),
      fc.string({ unit: fc.constantFrom(...'n"\\[]{},: ') }),
      fc.jsonValue(),
    );
    const list = fc.oneof(fc.array(fc.string()), fc.array(fc.array(fc.nat(9))), fc.array(fc.nat(9)), fc.array(value));
    const members = fc.array(
      fc.oneof(
        fc.tuple(fc.constant('n'), value),
        fc.tuple(fc.constant('prompt'), fc.oneof(list, value)),
        fc.tuple(fc.string(), value),
      ),
    );
    const spaces = fc.constantFrom('', ' ', '\n\t');
    fc.assert(
      fc.property(members, spaces, (entries, space) => {
        // Not by an object: a name may come twice, and the last one counts.
        const written = entries.map(
          ([name, each]) => `${space}${JSON.stringify(name)}${space}:${space}${JSON.stringify(each, null, space)}`,
        );
        const text = `${space}{${written.join(`${space},`)}${space}}`;
        const { n, prompt } = JSON.parse(text);
        const choices = Number.isInteger(n) ? Math.max(1, n) : 1;
        const prompts = Array.isArray(prompt) && typeof prompt[0] !== 'number' ? Math.max(1, prompt.length) : 1;
        assert.equal(contextsOf(text), Math.min(choices * prompts, 1_000_000), text);
      }),
    );
  });

  test('parses no input to count contexts: the input is large, and other tenants wait', (t) => {
    const parse = t.mock.method(JSON, 'parse');
    assert.equal(contextsOf(`{"n":2,"prompt":["a","b"],"x":${'['.repeat(100_000)}${']'.repeat(100_000)}}`), 4);
    assert.equal(parse.mock.callCount(), 0);
  });

  const faults: [what: string, manifest: unknown, field: string, message: RegExp][] = [
    ['a value that is not an object', 7, '', /must be a JSON object/],
    ['a missing name', {}, 'name', /is missing/],
    ['a bad name', { name: 'My Function' }, 'name', /lower-case letter/],
    ['a name that is too long', { name: 'a'.repeat(64) }, 'name', /63 at most/],
    ['an unknown field', { name: 'a', memory: 5 }, 'memory', /is not a field/],
    ['an unknown limit', { name: 'a', limits: { cpu: 5 } }, 'limits.cpu', /is not a field/],
    ['a limit below its bound', { name: 'a', limits: { cpuMs: 0 } }, 'limits.cpuMs', /from 1 to 600000/],
    ['a limit above its bound', { name: 'a', limits: { memoryMb: 1e6 } }, 'limits.memoryMb', /from 1 to 1024/],
    ['a limit that is not a number', { name: 'a', limits: { tokens: '5' } }, 'limits.tokens', /whole number/],
    [
      'pages that are neither',
      { name: 'a', limits: { pages: 'all' } },
      'limits.pages',
      /from 0 to 1000000, or "context"/,
    ],
    ['too many pages', { name: 'a', limits: { pages: 1e7 } }, 'limits.pages', /from 0 to 1000000, or "context"/],
    ['limits that are not an object', { name: 'a', limits: 5 }, 'limits', /must be an object/],
    ['a negative priority', { name: 'a', limits: { priority: -1 } }, 'limits.priority', /^must not be below 0$/],
    ['a negative pool', { name: 'a', pool: { min: -1 } }, 'pool.min', /^must not be below 0$/],
    ['a pool that is too large', { name: 'a', pool: { min: 1000 } }, 'pool.min', /not be above 256/],
    [
      'one of the two latency targets without the other',
      { name: 'a', latency: { firstTokenMs: 200 } },
      'latency.perTokenMs',
      /milliseconds from 1 to/,
    ],
    [
      'a latency target that is too short',
      { name: 'a', latency: { firstTokenMs: 0, perTokenMs: 5 } },
      'latency.firstTokenMs',
      /from 1 to 60000/,
    ],
    ['a text as latency', { name: 'a', latency: 'interactive' }, 'latency', /firstTokenMs and perTokenMs, or false/],
    ['true as latency', { name: 'a', latency: true }, 'latency', /or false/],
    ['a bad model name', { name: 'a', model: ['ok', 'not ok'] }, 'model.1', /not a name of a model/],
    ['a model of a wrong type', { name: 'a', model: 5 }, 'model', /the name of a model/],
    ['an empty list of models', { name: 'a', model: [] }, 'model', /at least one/],
    ['an entry outside the folder', { name: 'a', main: '../../etc/passwd' }, 'main', /inside the folder/],
    ['an absolute entry', { name: 'a', main: '/etc/passwd' }, 'main', /inside the folder/],
    ['secrets that are not a list', { name: 'a', secrets: 'TOKEN' }, 'secrets', /list of names/],
    ['a bad name of a secret', { name: 'a', secrets: ['TOKEN', 'to ken'] }, 'secrets.1', /capital letter/],
    ['a secret named twice', { name: 'a', secrets: ['A', 'A'] }, 'secrets', /twice/],
    [
      'too many secrets',
      { name: 'a', secrets: Array.from({ length: 33 }, (_, i) => `S${i}`) },
      'secrets',
      /more than 32/,
    ],
    ['a bad name of a variable', { name: 'a', environment: { mode: 'x' } }, 'environment.mode', /capital letter/],
    ['a variable that is not a string', { name: 'a', environment: { N: 5 } }, 'environment.N', /must be a text/],
    ['a long variable', { name: 'a', environment: { N: 'x'.repeat(4097) } }, 'environment.N', /4096 characters/],
    [
      'a variable with half a surrogate pair',
      { name: 'a', environment: { N: '\ud800' } },
      'environment.N',
      /well-formed/,
    ],
    [
      'too many variables',
      { name: 'a', environment: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`V${i}`, ''])) },
      'environment',
      /more than 64/,
    ],
    [
      'the placeholder of a sealed value',
      { name: 'a', environment: { N: '(sealed)' } },
      'environment.N',
      /the value itself/,
    ],
    [
      'a secret and a variable of the same name',
      { name: 'a', secrets: ['N'], environment: { N: 'x' } },
      'environment.N',
      /secret too/,
    ],
    ['a wrong flag', { name: 'a', restartable: 'yes' }, 'restartable', /true or false/],
    ['a schema that is not an object', { name: 'a', input: 'string' }, 'input', /JSON Schema/],
    [
      'a wrong type in a schema',
      { name: 'a', input: { properties: { n: { type: 'float' } } } },
      'input.properties.n.type',
      /one of null/,
    ],
    ['a bad pattern', { name: 'a', input: { items: { pattern: '(' } } }, 'input.items.pattern', /regular expression/],
    [
      'a pattern with a lookahead',
      { name: 'a', input: { properties: { x: { pattern: '^(?=.*[0-9])' } } } },
      'input.properties.x.pattern',
      /the pattern "\^\(\?=\.\*\[0-9\]\)" looks ahead.*Use `not`/,
    ],
    [
      'a property pattern with a back reference',
      { name: 'a', input: { patternProperties: { '(a)\\1': {} } } },
      'input.patternProperties.(a)\\1',
      /refers back/,
    ],
    ['a reference without a target', { name: 'a', input: { $ref: '#/$defs/x' } }, 'input', /leads to no schema/],
    [
      'patterns with too many steps in all',
      // 3 × 1900 steps; 4000 are allowed.
      { name: 'a', input: { anyOf: ['a', 'b', 'c'].map((each) => ({ pattern: `${each}{1900}` })) } },
      'input',
      /4000 steps together/,
    ],
    ['zero as `multipleOf`', { name: 'a', input: { multipleOf: 0 } }, 'input.multipleOf', /above 0/],
    ['an empty list of alternatives', { name: 'a', input: { anyOf: [] } }, 'input.anyOf', /at least one schema/],
    ['a reference out of the schema', { name: 'a', input: { $ref: 'http://x/y' } }, 'input.$ref', /into this schema/],
    ['a host that is a URL', { name: 'a', grants: { hosts: ['https://x.y'] } }, 'grants.hosts.0', /must be a host/],
    ['a host in upper case', { name: 'a', grants: { hosts: ['ok', 'X.y'] } }, 'grants.hosts.1', /lower case/],
    ['a port out of range', { name: 'a', grants: { hosts: ['x.y:70000'] } }, 'grants.hosts.0', /must be a host/],
    ['hosts that are not a list', { name: 'a', grants: { hosts: 'x.y' } }, 'grants.hosts', /list of hosts/],
    ['too many hosts', { name: 'a', grants: { hosts: Array(65).fill('x.y') } }, 'grants.hosts', /more than 64/],
    ['a wrong grant of the store', { name: 'a', grants: { store: 'write' } }, 'grants.store', /true, false or "read"/],
    ['a wrong grant of messages', { name: 'a', grants: { messaging: 'yes' } }, 'grants.messaging', /true or false/],
    [
      'a malformed function name',
      { name: 'a', grants: { launch: ['Other'] } },
      'grants.launch.0',
      /name of a function/,
    ],
    ['a function name that is not a text', { name: 'a', grants: { launch: [5] } }, 'grants.launch.0', /name of a func/],
    ['functions that are not a list', { name: 'a', grants: { launch: 'other' } }, 'grants.launch', /"\*" or a list/],
    ['an unknown grant', { name: 'a', grants: { files: true } }, 'grants.files', /is not a field/],
    ['grants that are not an object', { name: 'a', grants: ['store'] }, 'grants', /must be an object/],
    [
      'a manifest that is nested too deeply',
      { name: 'a', input: { default: nested(300) } },
      '',
      /deeper than 256 levels/,
    ],
    ['a manifest that is too large', { name: 'a', description: 'x'.repeat(70_000) }, '', /larger than/],
  ];
  for (const [what, manifest, field, message] of faults) {
    test(`${what} is refused with its field`, () => {
      const outcome = parseManifest(manifest);
      assert.ok(!outcome.ok);
      assert.equal(outcome.errors[0]?.field, field);
      assert.match(outcome.errors[0]?.message ?? '', message);
    });
  }

  test('random values are parsed without an exception, and limits of accepted manifests are within bounds', () => {
    const loose = fc.record(
      {
        name: fc.oneof(fc.constant('fine'), fc.string()),
        limits: fc.dictionary(
          fc.constantFrom('cpuMs', 'pages', 'other'),
          fc.oneof(fc.integer(), fc.double(), fc.string()),
          { maxKeys: 2 },
        ),
        model: fc.oneof(fc.string(), fc.array(fc.string())),
        input: fc.anything(),
        pool: fc.anything(),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(loose, fc.anything({ withBigInt: true, withDate: true, withMap: true })), (value) => {
        const outcome = parseManifest(value);
        if (!outcome.ok) {
          assert.ok(outcome.errors.length > 0 && outcome.errors.every(({ message }) => message.length > 0));
          return;
        }
        const limits = resolveLimits(outcome.manifest);
        for (const name of Object.keys(LIMIT_BOUNDS) as (keyof typeof LIMIT_BOUNDS)[]) {
          const [least, most] = LIMIT_BOUNDS[name];
          assert.ok(limits[name] >= least && limits[name] <= most);
        }
      }),
      { seed: 20261106, numRuns: 500 },
    );
  });
});
