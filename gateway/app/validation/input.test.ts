import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { withTimeLimit } from '#scheduler/functions/vm-time-limit.ts';
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

  it('accepts what the schema accepts, and anything without a schema', () => {
    checker.check(completion, { prompt: 'x', maxTokens: 3, stop: ['a'] });
    checker.check(functionWith(undefined), [1, null]);
    checker.check(functionWith(true), 'x');
  });

  const cases: [input: unknown, field: string, message: RegExp][] = [
    [{}, '/prompt', /missing/],
    [{ prompt: 1 }, '/prompt', /"number" is invalid. Expected "string"/],
    [{ prompt: '', maxTokens: 0 }, '/maxTokens', /0 is less than 1/],
    [{ prompt: '', maxTokens: 1.5 }, '/maxTokens', /integer/],
    [{ prompt: '', other: 1 }, '/other', /not expected/],
    [{ prompt: '', stop: 3 }, '/stop', /does not match any/],
    [{ prompt: '', options: { 'a/b c': 3 } }, '/options/a~1b c', /\[1,2\]/],
    [{ prompt: '', list: [{ x: 1 }, {}] }, '/list/1/x', /missing/],
    [[], '', /as a whole/],
    [null, '', /as a whole/],
  ];
  for (const [input, field, message] of cases) {
    it(`names ${field === '' ? 'the whole' : field} for ${JSON.stringify(input)}`, () => {
      const error = refusal(completion, input);
      assert.deepEqual([error.code, error.field], ['invalid-input', field]);
      assert.match(error.message, message);
    });
  }

  it('is not held up by a schema that explodes', () => {
    const bounded = new InputChecker(withTimeLimit);
    const twice = (n: number) => ({ anyOf: [{ $ref: `#/$defs/s${n}` }, { $ref: `#/$defs/s${n}` }] });
    const defs = Object.fromEntries(
      Array.from({ length: 40 }, (_, n) => [`s${n}`, n === 39 ? { type: 'null' } : twice(n + 1)]),
    );
    const unique = Array.from({ length: 20_000 }, (_, n) => ({ n }));
    const cases: [schema: unknown, input: unknown][] = [
      [{ pattern: '^(a+)+$' }, `${'a'.repeat(60)}b`],
      [{ ...twice(0), $defs: defs }, 1],
      [{ uniqueItems: true }, unique],
    ];
    for (const [schema, input] of cases) {
      assert.throws(() => bounded.check(functionWith(schema), input), { code: 'invalid-input', message: /too long/ });
    }
    bounded.check(functionWith({ pattern: '^a+$' }), 'aaa');
  });

  it('is not held up by a long list with many alternatives, with a clock or without', () => {
    const plain = { type: 'array', items: { anyOf: Array.from({ length: 300 }, (_, n) => ({ const: n })) } };
    const long = functionWith(plain);
    const input = Array.from({ length: 400_000 }, () => 299);
    for (const patient of [new InputChecker(withTimeLimit), new InputChecker()]) {
      assert.throws(() => patient.check(long, input), { code: 'invalid-input', message: /too long/, hint: /smaller/ });
      patient.check(long, input.slice(0, 100));
      patient.check(functionWith({ type: 'array' }), input);
    }
    // What is certainly short asks for no clock.
    let asked = 0;
    const counting = new InputChecker((work) => {
      asked++;
      return work();
    });
    counting.check(long, [1, 2]);
    assert.equal(asked, 0);
    counting.check(long, input.slice(0, 500));
    counting.check(functionWith({ pattern: 'a' }), 'a');
    assert.equal(asked, 2);
  });

  it('answers for a schema that cannot be used, instead of failing', () => {
    for (const schema of [{ $ref: '#/nowhere' }, { $ref: '#' }, { pattern: '(' }]) {
      const error = refusal(functionWith(schema), 'x');
      assert.equal(error.code, 'invalid-input');
    }
  });
});
