import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Schema, Validator } from '@cfworker/json-schema';
import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { StepsExhausted, TooDeepError } from './budget.ts';
import { pointerTo } from './compiled.ts';
import { SchemaValidator } from './validator.ts';

const SEED = 20_261_121;
const RUNS = process.env.PIE_TEST_ALL ? 4000 : 1000;
/** ajv takes most of the time of these runs, to compile each schema. */
const AJV_RUNS = process.env.PIE_TEST_ALL ? 5000 : 400;

const name = fc.constantFrom('a', 'b', 'c', '__proto__', 'constructor', 'toString', 'a/b', '~', 'é😀');
const word = fc.constantFrom('', 'a', 'b', 'abc', 'é😀', '\ud800', '2026-11-21', 'a@b.de', 'http://a.de/x', '12');
const number = fc.oneof(fc.integer({ min: -3, max: 12 }), fc.constantFrom(0.1, 0.3, 1.5, -0, 1e300, 5e-324));
/** Records as JSON.parse makes them: `__proto__` is an ordinary name. */
const record = <T>(value: fc.Arbitrary<T>, maxLength = 4) =>
  fc.array(fc.tuple(name, value), { maxLength }).map((entries) => {
    const members = new Map(entries.map(([key, each]) => [key, `${JSON.stringify(key)}:${JSON.stringify(each)}`]));
    return JSON.parse(`{${[...members.values()].join(',')}}`);
  });

const value = fc.letrec<{ node: unknown }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, true, false),
    number,
    word,
    fc.array(tie('node'), { maxLength: 4 }),
    record(tie('node')),
  ),
})).node;

const type = fc.constantFrom('null', 'boolean', 'object', 'array', 'number', 'string', 'integer');
const pattern = fc.constantFrom('a', '^a', 'b$', '^[a-z]+$', '\\w{2}', '^.$', 'é|😀', '_');
const count = fc.integer({ min: 0, max: 4 });
const format = fc.constantFrom(
  'date',
  'email',
  'uri',
  'url',
  'ipv4',
  'uuid',
  'regex',
  'hostname',
  'json-pointer',
  'unknown',
);

/** What differs between generated schemas. */
interface Kind {
  /** References that an inner schema may be. */
  readonly references: readonly object[];
  readonly multiples: readonly number[];
  readonly formats: fc.Arbitrary<string>;
  /** Further keywords with one schema. */
  readonly more: readonly string[];
}

const schemaOf = ({ references, multiples, formats, more }: Kind) =>
  fc.letrec<{ node: unknown; keyword: object }>((tie) => {
    const inner = tie('node');
    const some = fc.array(inner, { minLength: 1, maxLength: 3 });
    const one = (keyword: string, of: fc.Arbitrary<unknown>) => of.map((each) => ({ [keyword]: each }));
    return {
      node: fc.oneof(
        { depthSize: 'small' },
        fc.constantFrom(true, false, {}, ...references),
        fc.array(tie('keyword'), { minLength: 1, maxLength: 4 }).map((parts) => Object.assign({}, ...parts)),
      ),
      keyword: fc.oneof(
        { depthSize: 'small' },
        one('type', type),
        one('type', fc.uniqueArray(type, { minLength: 1, maxLength: 3 })),
        one('const', value),
        one('enum', fc.array(value, { minLength: 1, maxLength: 4 })),
        one('pattern', pattern),
        one('format', formats),
        ...['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'].map((each) =>
          one(each, count),
        ),
        ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map((each) => one(each, number)),
        one('multipleOf', fc.constantFrom(...multiples)),
        one('uniqueItems', fc.boolean()),
        one('required', fc.array(name, { maxLength: 2 })),
        one('dependentRequired', record(fc.array(name, { maxLength: 2 }), 2)),
        ...['anyOf', 'allOf', 'oneOf', 'prefixItems'].map((each) => one(each, some)),
        ...['properties', 'dependentSchemas'].map((each) => one(each, record(inner, 3))),
        ...['not', 'items', 'contains', 'additionalProperties', 'propertyNames', ...more].map((each) =>
          one(each, inner),
        ),
        one(
          'patternProperties',
          fc.array(fc.tuple(pattern, inner), { maxLength: 2 }).map((entries) => Object.fromEntries(entries)),
        ),
        fc.record({ contains: inner, minContains: count }, { requiredKeys: ['contains'] }),
        fc.record({ contains: inner, maxContains: count }, { requiredKeys: ['contains'] }),
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        fc.record({ if: inner, then: inner, else: inner }, { requiredKeys: ['if'] }),
      ),
    };
  }).node;

const schema = schemaOf({
  references: [{ $ref: '#/$defs/x' }, { $ref: '#y' }, { $ref: '#/properties/a' }],
  multiples: [1, 2, 0.1, 0.5, 3e-10],
  formats: format,
  more: [],
});

const root = fc
  .tuple(schema, schema, schema, schema)
  .map(([main, x, y, a]) => ({ allOf: [main], $defs: { x, y: { $anchor: 'y', allOf: [y] } }, properties: { a } }));

/** The library's verdict; null when the library throws, as for endless references. */
function libraryVerdict(of: object, each: unknown): boolean | null {
  try {
    return new Validator(structuredClone(of) as Schema, '2020-12', true).validate(each).valid;
  } catch {
    return null;
  }
}

/** The verdicts of ajv (null where it fails), which shares no code with the validator and its other oracle. Without `allErrors`, it skips `contains` behind `prefixItems`. */
function ajvOf(of: object): (each: unknown) => boolean | null {
  const options = { strict: false, meta: false, validateSchema: false, ownProperties: true, allErrors: true };
  const ajv = new Ajv2020({ ...options, logger: false });
  const validate = ajv.compile(structuredClone(of));
  return (each) => {
    try {
      return validate(each) === true;
    } catch (error) {
      // The code that ajv makes for some nested `unevaluatedProperties` does not run.
      if (error instanceof TypeError) return null;
      throw error;
    }
  };
}

describe('SchemaValidator', () => {
  it('applies adjacent references together, and lets no inner schema see what an outer one evaluates', () => {
    const $defs = { a: { properties: { a: true } }, b: { $dynamicAnchor: 'b', required: ['b'] } };
    const cases: readonly [schema: object, value: object, accepted: boolean][] = [
      [{ $ref: '#/$defs/a', $dynamicRef: '#b' }, { a: 1 }, false],
      [{ $ref: '#/$defs/a', $dynamicRef: '#b' }, { b: 1 }, true],
      [{ $ref: '#/$defs/a', unevaluatedProperties: false }, { a: 1 }, true],
      [{ $ref: '#/$defs/a', allOf: [{ unevaluatedProperties: false }] }, { a: 1 }, false],
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
      [{ allOf: [{ $ref: '#/$defs/a' }], if: true, then: { unevaluatedProperties: false } }, { a: 1 }, false],
      [{ $ref: '#/$defs/a', dependentSchemas: { a: { unevaluatedProperties: false } } }, { a: 1 }, false],
    ];
    for (const [schema, each, accepted] of cases) {
      const of = { ...schema, $defs };
      // ajv calls itself without end for these `$dynamicRef`s.
      if (!('$dynamicRef' in schema))
        assert.equal(new Ajv2020({ strict: false }).compile(of)(each), accepted, JSON.stringify(schema));
      assert.equal(new SchemaValidator(of).check(each) === null, accepted, JSON.stringify(schema));
    }
  });

  it('accepts what @cfworker/json-schema accepts', () => {
    const verdicts = { accepted: 0, refused: 0, endless: 0 };
    fc.assert(
      fc.property(root, fc.array(value, { minLength: 1, maxLength: 4 }), (of, values) => {
        const validator = new SchemaValidator(of);
        for (const each of values) {
          const expected = libraryVerdict(of, each);
          let accepted: boolean;
          try {
            accepted = validator.check(each) === null;
          } catch (error) {
            if (!(error instanceof TooDeepError || error instanceof StepsExhausted)) throw error;
            verdicts.endless += 1;
            // The library may not look into a list that has too few items for `minContains`.
            assert.ok(expected === null || JSON.stringify(of).includes('minContains'), 'the library fails, too');
            continue;
          }
          // Our validator stops at the first fault, so it may finish where the library does not.
          if (expected !== null) assert.equal(accepted, expected, `${JSON.stringify(of)} on ${JSON.stringify(each)}`);
          verdicts[accepted ? 'accepted' : 'refused'] += 1;
        }
      }),
      { seed: SEED, numRuns: RUNS },
    );
    for (const [verdict, times] of Object.entries(verdicts)) assert.ok(times > 10, `${times} were ${verdict}`);
  });

  it('accepts what ajv accepts, in schemas whose references do not end in themselves', () => {
    const kind = {
      // ajv divides floating-point numbers, so a multiple of 0.1 is often none there. Its formats come from another library.
      multiples: [1, 2, 0.5],
      formats: fc.constant('unknown'),
      more: ['unevaluatedProperties', 'unevaluatedItems'],
    };
    const leaf = schemaOf({ ...kind, references: [] });
    const main = schemaOf({ ...kind, references: [{ $ref: '#/$defs/x' }, { $ref: '#y' }] });
    const whole = fc.tuple(main, leaf, leaf, leaf, leaf).map(([all, x, y, properties, items]) => ({
      ...{ $defs: { x, y: { $anchor: 'y', allOf: [y] } }, allOf: [all] },
      ...{ unevaluatedProperties: properties, unevaluatedItems: items },
    }));
    /** ajv counts all items as evaluated behind a `contains`, or none. */
    const comparable = (of: object): object => {
      const text = JSON.stringify(of);
      return JSON.parse(text, (key, each) =>
        key === 'unevaluatedItems' && text.includes('"contains"') ? undefined : each,
      );
    };
    // ajv looks names up in objects that have inherited members, and takes no exponents for multiples.
    const renames: Readonly<Record<string, string>> = {
      ['__proto__']: 'd',
      constructor: 'e',
      toString: 'f',
      '1e+300': '100000',
      '5e-324': '0.001',
    };
    const renamed = <T>(of: T): T =>
      JSON.parse(
        JSON.stringify(of).replaceAll(
          /__proto__|constructor|toString|1e\+300|5e-324/g,
          (found) => renames[found] ?? '',
        ),
      );
    const verdicts = { accepted: 0, refused: 0 };
    fc.assert(
      fc.property(
        whole.map(renamed).map(comparable),
        fc.array(value.map(renamed), { minLength: 1, maxLength: 4 }),
        (of, values) => {
          const validator = new SchemaValidator(of as never);
          const expects = ajvOf(of);
          for (const each of values) {
            const accepted = validator.check(each) === null;
            assert.equal(accepted, expects(each) ?? accepted, `${JSON.stringify(of)} on ${JSON.stringify(each)}`);
            verdicts[accepted ? 'accepted' : 'refused'] += 1;
          }
        },
      ),
      { seed: SEED, numRuns: AJV_RUNS },
    );
    for (const [verdict, times] of Object.entries(verdicts)) assert.ok(times > 10, `${times} were ${verdict}`);
  });

  const recursive: Readonly<Record<string, object>> = {
    tree: {
      type: 'object',
      properties: { a: { type: 'integer' }, b: { type: 'array', items: { $ref: '#' } }, c: { $ref: '#' } },
      additionalProperties: false,
    },
    list: { oneOf: [{ type: 'null' }, { type: 'object', properties: { a: true, b: { $ref: '#' } }, required: ['b'] }] },
    'mutual references': {
      $ref: '#/$defs/even',
      $defs: {
        even: { anyOf: [{ const: null }, { type: 'array', prefixItems: [{ $ref: '#/$defs/odd' }], items: false }] },
        odd: { type: 'array', prefixItems: [{ $ref: '#/$defs/even' }], minItems: 1, maxItems: 1 },
      },
    },
    expression: {
      $id: 'https://example.com/expression',
      $ref: '#node',
      $defs: {
        node: {
          $anchor: 'node',
          oneOf: [
            { type: ['number', 'boolean'] },
            { type: 'array', items: { $ref: '#/$defs/node' }, minItems: 1, uniqueItems: true },
            { type: 'object', minProperties: 1, additionalProperties: { $ref: '#node' } },
          ],
        },
      },
    },
    'unevaluated members': {
      properties: { a: { $ref: '#' } },
      anyOf: [{ properties: { b: { $ref: '#' } }, required: ['b'] }, { type: ['object', 'null'] }],
      unevaluatedProperties: { type: 'number' },
    },
    'a negation': { not: { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] } },
  };
  for (const [what, of] of Object.entries(recursive))
    it(`accepts what ajv accepts, in a recursive schema: ${what}`, () => {
      const plain = fc.constantFrom('a', 'b', 'c');
      const nested = fc.letrec<{ node: unknown }>((tie) => ({
        node: fc.oneof(
          { maxDepth: 4, depthSize: 'max' },
          fc.constantFrom(null, true, 0, 1, 1.5, 'a'),
          fc.array(tie('node'), { maxLength: 2 }),
          fc.array(fc.tuple(plain, tie('node')), { maxLength: 3 }).map((entries) => Object.fromEntries(entries)),
        ),
      })).node;
      const validator = new SchemaValidator(of as never);
      const expects = ajvOf(of);
      const verdicts = { accepted: 0, refused: 0 };
      fc.assert(
        fc.property(nested, (each) => {
          const accepted = validator.check(each) === null;
          assert.equal(accepted, expects(each), JSON.stringify(each));
          verdicts[accepted ? 'accepted' : 'refused'] += 1;
        }),
        { seed: SEED, numRuns: AJV_RUNS },
      );
      for (const [verdict, times] of Object.entries(verdicts)) assert.ok(times > 10, `${times} were ${verdict}`);
    });

  const faults: [schema: object, value: unknown, place: string][] = [
    [{ properties: { a: { items: { type: 'string' } } } }, { a: ['x', 1] }, '/a/1'],
    [{ required: ['a/b'] }, {}, '/a~1b'],
    [{ additionalProperties: false }, { '~': 1 }, '/~0'],
    [{ additionalProperties: false }, JSON.parse('{"__proto__": 1}'), '/__proto__'],
    [{ required: ['constructor'] }, {}, '/constructor'],
    [{ properties: { toString: { type: 'number' } } }, {}, 'none'],
    [{ patternProperties: { '^__': false } }, JSON.parse('{"__proto__": {"x": 1}}'), '/__proto__'],
    [{ format: 'constructor' }, 'x', 'none'],
    [{ items: { $dynamicRef: '#n' }, $defs: { n: { $dynamicAnchor: 'n', type: 'number' } } }, [1, 'x'], '/1'],
    [{ items: { $dynamicRef: '#/$defs/n' }, $defs: { n: { type: 'number' } } }, ['x'], '/0'],
  ];
  for (const [of, each, place] of faults) {
    it(`checks ${JSON.stringify(each)} against ${JSON.stringify(of)}: the fault is at ${place}`, () => {
      const fault = new SchemaValidator(of as never).check(each);
      assert.equal(fault === null ? 'none' : pointerTo(fault.place), place);
    });
  }

  it('names the fault of the closest alternative, which for a list is one of the same items', () => {
    const listOf = (items: object) => ({ type: 'array', items, minItems: 1, maxItems: 2 });
    const prompt = {
      anyOf: [
        { type: 'string' },
        listOf({ type: 'string' }),
        listOf({ type: 'integer', minimum: 0 }),
        listOf(listOf({ type: 'integer' })),
      ],
    };
    for (const [each, place, message] of [
      [5, '', 'must be string or array, not number.'],
      [['a', 'b', 'c'], '', 'has too many items (3 > 2).'],
      [[-1], '/0', 'is -1, less than 0.'],
      [[1.5], '/0', 'must be string or integer or array, not number.'],
      [[1, 'a'], '/1', 'must be integer, not string.'],
      [[[1], ['a']], '/1/0', 'must be integer, not string.'],
    ] as [unknown, string, string][]) {
      const fault = new SchemaValidator(prompt).check(each);
      assert.deepEqual([fault && pointerTo(fault.place), fault?.message], [place, message], JSON.stringify(each));
    }
  });

  it('throws TooDeepError for a reference to itself and for values that are nested too deeply', () => {
    assert.throws(() => new SchemaValidator({ $ref: '#' }).check(1), TooDeepError);
    let deep: unknown = 0;
    for (let i = 0; i < 100_000; i++) deep = [deep];
    assert.throws(() => new SchemaValidator({ items: { $ref: '#' } }).check(deep), TooDeepError);
    for (const schema of [{ uniqueItems: true }, { const: deep }, { enum: [deep] }])
      assert.throws(() => new SchemaValidator(schema).check([deep]), TooDeepError, JSON.stringify(Object.keys(schema)));
    // Each list takes two schemas of the 1,000 that a check may nest: its items, and the target of their reference.
    const inLists = (inner: object) => Array.from({ length: 499 }).reduce((value: unknown) => [value], inner);
    const recursive = new SchemaValidator({ items: { $ref: '#' }, properties: { a: { const: deep } } });
    assert.equal(recursive.check(inLists({})), null);
    assert.throws(() => recursive.check(inLists({ a: [deep] })), TooDeepError, 'a deep comparison in a deep check');
  });

  const unusable: [schema: object, reason: RegExp][] = [
    [{ $ref: '#/nowhere' }, /"#\/nowhere" leads to no schema/],
    [{ $ref: '#/__proto__' }, /leads to no schema/],
    [{ $ref: 'http://example.com/x' }, /leads out of the schema/],
    [{ $dynamicRef: '#nowhere' }, /"#nowhere" leads to no schema/],
    [{ $ref: '#%zz' }, /wrong percent-encoding/],
    [{ pattern: '(?=a)' }, /"\(\?=a\)" looks ahead/],
    [{ anyOf: Array.from({ length: 101 }, (_, n) => ({ pattern: `${n}` })) }, /more than 100 different patterns/],
    [
      { anyOf: [{ pattern: 'a{1900}' }, { pattern: 'b{1900}' }, { pattern: 'c{1900}' }] },
      /more than 4000 steps together/,
    ],
  ];
  for (const [of, reason] of unusable) {
    it(`refuses ${JSON.stringify(of).slice(0, 60)}`, () => {
      assert.throws(() => new SchemaValidator(of as never), reason);
    });
  }
});

describe('the cost of a check', () => {
  it('a value of the schema is formatted once for messages, however many items do not match it', () => {
    let serialisations = 0;
    const only = Object.assign([1, 2], {
      toJSON: () => {
        serialisations += 1;
        return 'told';
      },
    });
    const validator = new SchemaValidator({ type: 'array', contains: { const: only } });
    assert.match(validator.check(Array(1000).fill(0))?.message ?? '', /0 items that fit .* less than 1/);
    assert.ok(serialisations <= 1, `${serialisations} times`);
  });

  it('a text with the format `regex` costs 10,000 steps for each character property, which V8 reads slowly', () => {
    const validator = new SchemaValidator({ format: 'regex' });
    const text = String.raw`[\p{Ll}\P{Lu}]`.repeat(5);
    // The text has 10 character properties; the rest of the check takes less than 1,000 steps.
    assert.equal(validator.check(text, 101_000), null);
    assert.throws(() => validator.check(text, 99_000), StepsExhausted);
  });

  it('a name costs steps for each schema that passes it on as accepted', () => {
    const names = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`n${i}`, 0]));
    const $defs: Record<string, object> = { s0: { unevaluatedProperties: {} } };
    for (let i = 1; i <= 400; i++) $defs[`s${i}`] = { allOf: [{ $ref: `#/$defs/s${i - 1}` }] };
    const checkAt = (depth: number, steps: number) =>
      new SchemaValidator({ $defs, $ref: `#/$defs/s${depth}` }).check(names, steps);
    assert.equal(checkAt(0, 30_000), null);
    // 800 sets to which 1,000 names are added, at 3 steps each.
    assert.throws(() => checkAt(400, 2_400_000), StepsExhausted);
    assert.equal(checkAt(400, 2_500_000), null);
  });

  it('a list of types costs a step for each name', () => {
    const validator = new SchemaValidator({ type: Array(1000).fill('null') });
    assert.throws(() => validator.check(0, 500), StepsExhausted);
  });
});
