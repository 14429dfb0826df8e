import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { FunctionVersion } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { InputChecker } from './input.ts';

let version = 0;
function functionWith(input: unknown): FunctionVersion {
  version += 1;
  return {
    name: 'f',
    version: `v${version}`,
    manifest: { name: 'f', input },
    componentHash: '',
    componentBytes: 0,
    createdAt: '',
  };
}

const completion = functionWith({
  type: 'object',
  properties: {
    prompt: { type: 'string' },
    maxTokens: { type: 'integer', minimum: 1, maximum: 256 },
    stop: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }] },
    options: { type: 'object', properties: { 'a/b c': { enum: [1, 2] } } },
    list: { type: 'array', items: { type: 'object', required: ['x'] } },
    form: {
      oneOf: [
        { enum: ['a', 'b'] },
        { type: 'object', properties: { type: { const: 'a' }, size: { type: 'string' } } },
        { type: 'object', properties: { type: { const: 'b' }, size: { type: 'integer' } } },
      ],
    },
  },
  required: ['prompt'],
  additionalProperties: false,
});

describe('InputChecker', () => {
  const checker = new InputChecker();
  const refusal = (fn: FunctionVersion, input: unknown): GatewayError => {
    try {
      checker.check(fn, input);
    } catch (error) {
      assert.ok(error instanceof GatewayError);
      return error;
    }
    return assert.fail('the input was accepted');
  };

  it('accepts valid inputs, and any input without a schema', () => {
    checker.check(completion, { prompt: 'x', maxTokens: 3, stop: ['a'] });
    checker.check(functionWith(undefined), [1, null]);
    checker.check(functionWith(true), 'x');
  });

  const cases: [input: unknown, field: string, message: RegExp][] = [
    [{}, '/prompt', /missing/],
    [{ prompt: 1 }, '/prompt', /\/prompt must be string, not number\./],
    [{ prompt: '', maxTokens: 0 }, '/maxTokens', /is 0, less than 1/],
    [{ prompt: '', maxTokens: 1.5 }, '/maxTokens', /integer/],
    [{ prompt: '', other: 1 }, '/other', /not expected/],
    [{ prompt: '', stop: 3 }, '/stop', /must be string or array, not number/],
    [{ prompt: '', options: { 'a/b c': 3 } }, '/options/a~1b c', /\[1,2\]/],
    [{ prompt: '', list: [{ x: 1 }, {}] }, '/list/1/x', /missing/],
    [{ prompt: '', stop: ['a', 3] }, '/stop/1', /must be string, not number/],
    [{ prompt: '', stop: null }, '/stop', /must be string or array, not null/],
    [{ prompt: '', form: { type: 'b', size: 'x' } }, '/form/size', /must be integer, not string/],
    [{ prompt: '', form: 'c' }, '/form', /must be one of \["a","b"\]/],
    [[], '', /it must be object, not array/],
    [null, '', /it must be object, not null/],
  ];
  for (const [input, field, message] of cases) {
    it(`names ${field === '' ? 'the input as a whole' : field} for ${JSON.stringify(input)}`, () => {
      const error = refusal(completion, input);
      assert.deepEqual([error.code, error.field], ['invalid-input', field]);
      assert.match(error.message, message);
    });
  }

  it('keeps the schemas of different owners apart, even if their versions have the same id', () => {
    const ofOwner = (tenant: string, type: string, platform?: true) => ({
      name: 'same',
      version: 'a1b2c3d4e5f6',
      tenant,
      platform,
      manifest: { input: { type } },
    });
    const cases = [
      [ofOwner('mallory', 'null'), null, 'x'],
      [ofOwner('acme', 'string'), 'x', 1],
      // The platform's function, which it lends to both tenants.
      [ofOwner('mallory', 'number', true), 1, null],
      [ofOwner('acme', 'number', true), 1, 'x'],
    ] as const;
    for (const [fn, good, bad] of [...cases, ...cases]) {
      checker.check(fn, good);
      assert.throws(() => checker.check(fn, bad), { code: 'invalid-input' });
    }
  });

  it('gives up on checks that would take too many steps', () => {
    // 40 levels, and each refers to the next one twice: 2^40 ways lead to the last.
    const twice = (n: number) => ({ anyOf: [{ $ref: `#/$defs/s${n}` }, { $ref: `#/$defs/s${n}` }] });
    const defs = Object.fromEntries(
      Array.from({ length: 40 }, (_, n) => [`s${n}`, n === 39 ? { type: 'null' } : twice(n + 1)]),
    );
    // Each item is compared with 300 alternatives, and only the last one fits.
    const alternatives = { type: 'array', items: { anyOf: Array.from({ length: 300 }, (_, n) => ({ const: n })) } };
    const slow: [schema: unknown, input: unknown][] = [
      [{ ...twice(0), $defs: defs }, 1],
      [alternatives, Array.from({ length: 400_000 }, () => 299)],
      [{ pattern: '(a?){900}b$' }, 'a'.repeat(100_000)],
      [
        { patternProperties: { '^(.*){30}!$': false } },
        Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`${n}${'x'.repeat(200)}`, 0])),
      ],
    ];
    for (const [schema, input] of slow) {
      const error = refusal(functionWith(schema), input);
      assert.match(error.message, /too long to be checked/);
      assert.match(error.hint, /smaller input/);
    }
  });

  it('answers in bounded time for costly patterns and for uniqueItems of many items', () => {
    for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(([a-z])+.)+[A-Z]([a-z])+$']) {
      assert.match(refusal(functionWith({ pattern }), `${'a'.repeat(5000)}!`).message, /does not match its pattern/);
    }
    const unique = functionWith({ uniqueItems: true });
    const items = Array.from({ length: 20_000 }, (_, n) => ({ n, m: [n] }));
    checker.check(unique, items);
    assert.match(refusal(unique, [...items, { m: [7], n: 7 }]).message, /equal items at the indexes 7 and 20000/);
    const url = functionWith({ format: 'url' });
    assert.match(refusal(url, `http://${'a'.repeat(100)}!`).message, /the format "url"/);
    checker.check(
      functionWith({ type: 'array' }),
      Array.from({ length: 400_000 }, () => 299),
    );
  });

  it('shortens long names and values in its messages', () => {
    const name = 'n'.repeat(100_000);
    const error = refusal(functionWith({ propertyNames: { maxLength: 10 } }), { [name]: 1 });
    assert.ok(error.message.length < 1000);
    const field = refusal(functionWith({ additionalProperties: { additionalProperties: false } }), {
      [name]: { [name]: 1 },
    }).field;
    assert.ok((field ?? '').length < 1000);
  });

  it('reports an unusable schema instead of failing', () => {
    for (const schema of [{ $ref: '#/nowhere' }, { $ref: '#' }, { pattern: '(' }, { pattern: '(?=x)' }, { anyOf: 3 }]) {
      const error = refusal(functionWith(schema), 'x');
      assert.equal(error.code, 'invalid-input');
    }
  });
});
