import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { StepsExhausted, TooDeepError } from './budget.ts';
import { checkInputSchema, SCHEMA_KEYWORDS, SchemaError } from './compiled.ts';
import { PatternError } from './pattern.ts';
import { SchemaValidator } from './validator.ts';

const SEED = 20_261_130;
const RUNS = process.env.PIE_TEST_ALL ? 5000 : 500;

/** Counts how often a JSON value is read, and forbids its conversion to a text or a number. */
class Watched {
  readonly #proxies = new Map<object, object>();
  reads = 0;

  of(value: unknown): unknown {
    if (typeof value !== 'object' || value === null) return value;
    const known = this.#proxies.get(value);
    if (known !== undefined) return known;
    const proxy = new Proxy(value, {
      get: (target, name, receiver) => {
        const isOwn = Object.hasOwn(target, name);
        if (
          !isOwn &&
          (typeof name === 'symbol' ? name === Symbol.toPrimitive : /^(toString|valueOf|toJSON|join)$/.test(name))
        )
          assert.fail(`a value was converted by ${String(name)}`);
        this.reads += 1;
        return isOwn ? this.of(Reflect.get(target, name)) : Reflect.get(target, name, receiver);
      },
      has: (target, name) => {
        this.reads += 1;
        return Reflect.has(target, name);
      },
      getOwnPropertyDescriptor: (target, name) => {
        this.reads += 1;
        const descriptor = Reflect.getOwnPropertyDescriptor(target, name);
        return descriptor && { ...descriptor, ...(name !== 'length' && { value: this.of(descriptor.value) }) };
      },
      ownKeys: (target) => {
        const keys = Reflect.ownKeys(target);
        this.reads += keys.length;
        return keys;
      },
    });
    this.#proxies.set(value, proxy);
    return proxy;
  }
}

/** Number of values in a JSON value, names included. */
function sizeOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((sum: number, each) => sum + 1 + sizeOf(each), 1);
}

const KEYWORDS = [
  ...['type', 'const', 'enum', 'pattern', 'format', 'uniqueItems', 'required', 'dependentRequired', 'multipleOf'],
  ...['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties', 'minContains', 'maxContains'],
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  ...SCHEMA_KEYWORDS.ofOne,
  ...SCHEMA_KEYWORDS.ofLists,
  ...SCHEMA_KEYWORDS.ofNamed,
];

const name = fc.constantFrom('a', 'b', 'c', 'minLength', '__proto__', 'constructor');
const scalar = fc.constantFrom<unknown>(null, true, false, 0, 1, 3, -1, 0.5, '', 'a', 'abc', 'a'.repeat(40), 'number');
const manyOf = <T>(each: fc.Arbitrary<T>, maxLength: number) => fc.array(each, { maxLength, size: 'max' });
const record = <T>(each: fc.Arbitrary<T>) =>
  fc.array(fc.tuple(name, each), { maxLength: 4 }).map((entries) => {
    const members = new Map(entries.map(([key, value]) => [key, `${JSON.stringify(key)}:${JSON.stringify(value)}`]));
    return JSON.parse(`{${[...members.values()].join(',')}}`) as Record<string, unknown>;
  });
const value = fc.letrec<{ node: unknown }>((tie) => ({
  node: fc.oneof({ depthSize: 'small' }, scalar, fc.array(tie('node'), { maxLength: 5 }), record(tie('node'))),
})).node;
/** Lists and objects that are costly to convert or to compare. */
const bulky = fc.oneof(
  fc.integer({ min: 1, max: 300 }).map((length) => Array.from({ length }, () => 1)),
  fc.integer({ min: 1, max: 300 }).map((length) => Object.fromEntries(Array.from({ length }, (_, i) => [`k${i}`, i]))),
);

const reference = fc.constantFrom(
  '#',
  '#/examples/0',
  '#/examples/1',
  '#/$defs/x',
  '#/default',
  '#/x-unknown/y',
  '#at',
);
/** Schemas as an attacker writes them: each keyword may have any value, and references lead below keywords that hold no schemas. */
const hostile = fc.letrec<{ node: unknown }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small' },
    fc.boolean(),
    fc
      .tuple(fc.constantFrom('$ref', '$dynamicRef', '$recursiveRef'), reference)
      .map(([keyword, target]) => ({ [keyword]: target })),
    fc
      .array(
        fc.oneof(
          fc.tuple(fc.constantFrom(...KEYWORDS), fc.oneof(scalar, bulky, value)),
          fc.tuple(fc.constantFrom(...SCHEMA_KEYWORDS.ofOne), tie('node')),
          fc.tuple(fc.constantFrom(...SCHEMA_KEYWORDS.ofLists), fc.array(tie('node'), { minLength: 1, maxLength: 5 })),
          fc.tuple(fc.constantFrom(...SCHEMA_KEYWORDS.ofNamed), record(tie('node'))),
        ),
        { minLength: 1, maxLength: 4 },
      )
      .map((entries) => Object.fromEntries(entries)),
  ),
})).node;
const root = fc.tuple(hostile, hostile, hostile, hostile, hostile, hostile).map(([items, member, one, two, x, y]) => ({
  type: ['array', 'object', 'string', 'number'],
  items,
  properties: { a: member },
  examples: [one, { ...(typeof two === 'object' && two), $anchor: 'at' }],
  $defs: { x },
  default: y,
  'x-unknown': { y: one },
}));

describe('the steps of a check', () => {
  it('bound how often a check reads value and schema, whatever both contain, and nothing is converted', () => {
    let exhaustions = 0;
    let checks = 0;
    fc.assert(
      fc.property(
        root,
        fc.oneof(value, manyOf(value, 200), bulky),
        fc.constantFrom(50, 500, 5000),
        (of, input, steps) => {
          const schema = structuredClone(of);
          const watch = new Watched();
          let validator: SchemaValidator;
          try {
            validator = new SchemaValidator(watch.of(schema) as never);
          } catch (error) {
            if (!(error instanceof SchemaError || error instanceof PatternError)) throw error;
            return;
          } finally {
            assert.ok(watch.reads <= 40 * sizeOf(schema), `${watch.reads} reads to compile ${JSON.stringify(schema)}`);
          }
          watch.reads = 0;
          checks += 1;
          try {
            validator.check(watch.of(input), steps);
          } catch (error) {
            if (!(error instanceof StepsExhausted || error instanceof TooDeepError)) throw error;
            exhaustions += 1;
          }
          // Names are charged once they are listed: the last operation may exceed the budget by the names of an object.
          const most = 4 * steps + 4 * 300 + 300;
          assert.ok(watch.reads <= most, `${watch.reads} reads in ${steps} steps: ${JSON.stringify([of, input])}`);
        },
      ),
      { seed: SEED, numRuns: RUNS },
    );
    assert.ok(checks > RUNS / 5 && exhaustions > 10, `${checks} checks, ${exhaustions} of them exhausted their steps`);
  });

  /** The least budget with which a check ends. */
  const stepsOf = (schema: object, input: unknown): number => {
    const validator = new SchemaValidator(schema as never);
    const ends = (steps: number): boolean => {
      try {
        validator.check(input, steps);
        return true;
      } catch (error) {
        if (!(error instanceof StepsExhausted)) throw error;
        return false;
      }
    };
    let [low, high] = [0, 1];
    while (!ends(high)) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (ends(middle)) high = middle;
      else low = middle;
    }
    return high;
  };

  const text = (length: number, end = '') => `${'a'.repeat(length)}${end}`;
  const names = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`n${i}`, 0]));
  const numbers = (count: number) => Array.from({ length: count }, (_, i) => i);
  /** Operations on something of size n, in bytes or items; each must cost steps in proportion to n. */
  const operations: Record<string, (n: number) => [schema: object, input: unknown]> = {
    'the comparison of texts that differ at the end': (n) => [{ const: text(n, 'b') }, text(n, 'c')],
    'the comparison of equal texts': (n) => [{ enum: [text(n)] }, text(n)],
    'the names of a constant': (n) => [{ const: names(n) }, {}],
    'the names of a value under comparison': (n) => [{ const: {} }, names(n)],
    'the list of values that are allowed': (n) => [{ enum: numbers(n) }, -1],
    'the list of types': (n) => [{ type: Array(n).fill('null') }, 0],
    'the length of a text': (n) => [{ minLength: 1 }, text(n)],
    'a pattern along a text': (n) => [{ pattern: 'b' }, text(n)],
    'what a pattern passes without a character': (n) => [{ pattern: `x(a?){${n / 2}}` }, 'xa'],
    'a format': (n) => [{ format: 'uri' }, text(n)],
    'required names': (n) => [{ required: numbers(n).map((i) => `n${i}`) }, names(n)],
    'properties that the value lacks': (n) => [
      { properties: Object.fromEntries(numbers(n).map((i) => [`n${i}`, true])) },
      {},
    ],
    'dependencies that the value lacks': (n) => [
      { dependentRequired: Object.fromEntries(numbers(n).map((i) => [`n${i}`, ['a']])) },
      {},
    ],
    'names that a name depends on': (n) => [{ dependentRequired: { n0: numbers(n).map((i) => `n${i}`) } }, names(n)],
    'names for a count': (n) => [{ maxProperties: 1e6 }, names(n)],
    'additional names': (n) => [{ additionalProperties: true }, names(n)],
    'names that patterns see': (n) => [{ patternProperties: { x: true } }, names(n)],
    'names that were evaluated': (n) => [{ patternProperties: { n: true }, unevaluatedProperties: false }, names(n)],
    'items that were evaluated': (n) => [{ contains: true, unevaluatedItems: false }, numbers(n)],
    'unique numbers': (n) => [{ uniqueItems: true }, numbers(n)],
    'unique long texts': (n) => [{ uniqueItems: true }, [text(n, 'b'), text(n, 'c')]],
    'unique nested texts': (n) => [{ uniqueItems: true }, [numbers(n).reduce((inner: unknown) => [inner], text(n))]],
    'sorted names': (n) => [{ uniqueItems: true }, [names(n)]],
    'powers of ten': (n) => [{ multipleOf: 1 }, 10 ** Math.min(n, 300)],
  };
  for (const [operation, of] of Object.entries(operations)) {
    it(`grow with ${operation}`, () => {
      const [small, large] = [stepsOf(...of(200)), stepsOf(...of(800))];
      // 4 times as much; the fixed part of a check takes less than 60 steps.
      const least = operation === 'powers of ten' ? 20 : 70;
      assert.ok(large - small >= least, `${small} steps, then ${large}`);
    });
  }

  it('of nested texts grow with depth times length, as each level writes the text again', () => {
    const nested = (depth: number) => numbers(depth).reduce((inner: unknown) => [inner], text(8000));
    const steps = (depth: number) => stepsOf({ uniqueItems: true }, [nested(depth)]);
    assert.ok(steps(100) - steps(50) >= 50 * 1000);
  });

  it('long texts of equal length and hash are told apart without comparing each with all', () => {
    // V8 hashes texts of more than 16,383 characters by their length alone.
    const texts = numbers(50).map((i) => text(20_000, `${i + 10}`));
    const validator = new SchemaValidator({ uniqueItems: true });
    assert.equal(validator.check(texts), null);
    assert.match(validator.check([...texts, texts[7]])?.message ?? '', /indexes 7 and 50/);
  });
});

describe('a deploy checks exactly the parts of a schema that references reach', () => {
  const wrongParts: [wrong: Record<string, unknown>, keyword: string][] = [
    ...['minLength', 'maxItems', 'minProperties', 'minContains', 'minimum', 'exclusiveMaximum', 'multipleOf'].map(
      (keyword): [Record<string, unknown>, string] => [{ [keyword]: [1] }, keyword],
    ),
    [{ multipleOf: { valueOf: 1 } }, 'multipleOf'],
    [{ type: { a: 1 } }, 'type'],
    [{ enum: 'text' }, 'enum'],
    [{ required: { a: 1 } }, 'required'],
    [{ required: [['a']] }, 'required'],
    [{ dependentRequired: { a: [1] } }, 'dependentRequired'],
    [{ pattern: ['a'] }, 'pattern'],
    [{ format: ['uri'] }, 'format'],
    [{ uniqueItems: 'yes' }, 'uniqueItems'],
    [{ $ref: ['#'] }, '$ref'],
    [{ anyOf: {} }, 'anyOf'],
    [{ properties: [] }, 'properties'],
  ];
  const hiddenUnder: [keyword: string, hold: (part: unknown) => unknown, pointer: string][] = [
    ['examples', (part) => [part], '/examples/0'],
    ['default', (part) => part, '/default'],
    ['enum', (part) => [1, part], '/enum/1'],
    ['const', (part) => ({ a: { 'b/c': part } }), '/const/a/b~1c'],
    ['x-anything', (part) => [[part]], '/x-anything/0/0'],
  ];

  it('under keywords that hold no schemas, by each kind of reference, from anywhere, and through further references', () => {
    const places = fc.constantFrom(...hiddenUnder);
    fc.assert(
      fc.property(
        fc.constantFrom(...wrongParts),
        places,
        fc.constantFrom('$ref', '$dynamicRef', '$recursiveRef'),
        fc.constantFrom('direct', 'inner', 'chain', 'anchor'),
        fc.boolean(),
        ([wrong, keyword], [holder, hold, pointer], kind, way, isReached) => {
          const part = way === 'inner' ? { items: { not: wrong } } : { ...wrong, $anchor: 'hidden' };
          const target = isReached ? `#${pointer}` : '#/$defs/harmless';
          const schema: Record<string, unknown> = {
            [holder]: hold(part),
            properties: { a: { items: { [kind]: way === 'chain' || way === 'anchor' ? '#/x-way' : target } } },
            'x-way': { anyOf: [{ [kind]: target }, ...(way === 'anchor' && isReached ? [{ $ref: '#hidden' }] : [])] },
            $defs: { harmless: { type: 'string' } },
          };
          const faults = checkInputSchema(schema);
          if (!isReached) return assert.deepEqual(faults, []);
          assert.equal(faults[0]?.path.at(-1), keyword, JSON.stringify([schema, faults]));
          assert.equal(faults[0]?.path[0], holder);
        },
      ),
      { seed: SEED, numRuns: RUNS },
    );
  });

  it('a version that was stored with a keyword of a wrong type is checked without that keyword', () => {
    for (const [wrong, keyword] of wrongParts) {
      let validator: SchemaValidator;
      try {
        validator = new SchemaValidator({ items: { $ref: '#/examples/0' }, examples: [{ ...wrong, maxLength: 3 }] });
      } catch (error) {
        assert.ok(error instanceof SchemaError, keyword);
        assert.ok(['anyOf', 'properties'].includes(keyword), keyword);
        continue;
      }
      assert.equal(validator.check(['abc', 1, { a: 1 }, null]), null, keyword);
      assert.match(validator.check(['abcd'])?.message ?? '', /too long/);
    }
  });

  it('the sample: a list in place of a number, under `examples`', () => {
    const list = Array.from({ length: 25_000 }, () => 1);
    const schema = { type: 'array', items: { $ref: '#/examples/0' }, examples: [{ minLength: list }] };
    assert.deepEqual(checkInputSchema(schema), [
      { path: ['examples', '0', 'minLength'], message: 'must be a whole number, 0 or more' },
    ]);
    const watch = new Watched();
    assert.equal(new SchemaValidator(watch.of(schema) as never).check(Array(10_000).fill('a')), null);
  });
});
