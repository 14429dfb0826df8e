import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { closingBracket, parseArguments, parseLiteral, ToolCallParser, type ToolFormat, ToolRunner } from './calls.ts';
import { tool, toolSignature } from './tools.ts';

const weather = tool({
  name: 'weather',
  description: 'The weather of a city',
  parameters: z.object({ city: z.string(), days: z.int().optional() }),
  call: ({ city, days = 1 }) => `${city} in ${days}: sunny`,
});
const add = tool<{ a: number; b: number }>({
  name: 'add',
  parameters: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  call: ({ a, b }) => a + b,
});

describe('parseLiteral and parseArguments', () => {
  it('read any JSON as JSON.parse does', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        assert.deepEqual(parseLiteral(text), JSON.parse(text));
        assert.equal(closingBracket(0)(`${JSON.stringify({ value })} tail)]}`), JSON.stringify({ value }).length);
      }),
      { seed: 13, numRuns: 100 },
    );
  });

  it('read the usual deviations of models from JSON', () => {
    assert.deepEqual(parseLiteral(`{'a': True, b: [None, -1.5e3, .5,], "c": 'it\\'s \\u0041'}`), {
      a: true,
      b: [null, -1500, 0.5],
      c: "it's A",
    });
    assert.deepEqual(parseArguments('"Rome", days=3', ['city', 'days']), { city: 'Rome', days: 3 });
    assert.deepEqual(parseArguments('city: "a, (b)", days = 2', []), { city: 'a, (b)', days: 2 });
    assert.deepEqual(parseArguments('{"city": "Rome"}', []), { city: 'Rome' });
    assert.deepEqual(parseArguments('', []), {});
  });

  it('throw a SyntaxError for other text', () => {
    for (const text of ['{', '[1 2]', 'alert(1)', '"open', '{"a" 1}', '1 2', '['.repeat(100)]) {
      assert.throws(() => parseLiteral(text), SyntaxError, text);
    }
    assert.throws(() => parseArguments('1, 2, 3', ['a', 'b']), /more than 2/);
    assert.equal(Object.getPrototypeOf(parseLiteral('{"__proto__": {"x": 1}}')), Object.prototype);
  });
});

describe('the parser of calls', () => {
  it('reads each character of a call once, however many pieces there are', () => {
    const close = closingBracket(0);
    let reads = 0;
    for (let length = 1; length <= 1000; length++) {
      const text = new Proxy(new String('('.padEnd(length, 'a')), {
        get(target, name) {
          if (name !== 'length') reads++;
          return Reflect.get(target, name);
        },
      });
      assert.equal(close(text as string), -1);
    }
    assert.equal(reads, 1000);
  });

  it('reads code blocks', () => {
    const parser = new ToolCallParser([add], 'code');
    const calls = ['I try.\n```js\nconst a = `', '`;\nadd(a)\n``', '` and\n```javascript\n```'].flatMap((piece) =>
      parser.push(piece),
    );
    assert.deepEqual(
      calls.map(({ name, arguments: args }) => ({ name, args })),
      [
        { name: 'add', args: { code: 'const a = ``;\nadd(a)' } },
        { name: 'add', args: { code: '' } },
      ],
    );
    assert.equal(parser.plain, 'I try.\n and');
    assert.deepEqual(parser.push('js\nnot a block\n```'), []);
  });

  const cases: { format: ToolFormat; text: string; closes: string; plain: string }[] = [
    {
      format: 'signature',
      text: 'I look. Action: weather(city="R)o\\"me", days=2)\nObservation',
      closes: 'days=2)',
      plain: 'I look. Action: \nObservation',
    },
    {
      format: 'hermes',
      text: 'Well.\n<tool_call>\n{"name": "weather", "arguments": {"city": "R)o\\"me", "days": 2}}\n</tool_call>',
      closes: '2}}',
      plain: 'Well.',
    },
    {
      format: 'json',
      text: '{"name": "weather", "parameters": {"city": "R)o\\"me", "days": 2}} <|eom|>',
      closes: '2}}',
      plain: '<|eom|>',
    },
  ];
  for (const { format, text, closes, plain } of cases) {
    it(`returns a call at the character that closes it, for random pieces (${format})`, () => {
      fc.assert(
        fc.property(fc.array(fc.integer({ min: 0, max: text.length })), (cuts) => {
          const parser = new ToolCallParser([weather, add], format);
          const borders = [...new Set([0, ...cuts, text.length])].sort((a, b) => a - b);
          const closed = text.indexOf(closes) + closes.length;
          const calls = borders.slice(1).flatMap((border, i) => {
            const found = parser.push(text.slice(borders[i], border));
            if (found.length > 0) assert.ok(border >= closed && (borders[i] ?? 0) < closed);
            return found;
          });
          assert.deepEqual(
            calls.map(({ name, arguments: args }) => ({ name, args })),
            [{ name: 'weather', args: { city: 'R)o"me', days: 2 } }],
          );
          assert.equal(parser.plain, plain);
        }),
        { seed: 14, numRuns: 50 },
      );
    });
  }

  it('reads several calls, and ignores text that only looks like a call', () => {
    const parser = new ToolCallParser([weather, add], 'signature');
    const calls = parser.push('my.add(1, 2) add (1, 2) subtract(1) add(1, oops) add(b=1, a=2');
    assert.deepEqual(
      calls.map(({ arguments: args, fault }) => fault ?? args),
      [{ a: 1, b: 2 }, 'no value at "oops"'],
    );
    assert.equal(parser.push(')').length, 1);
  });

  it('reads calls after an apostrophe', () => {
    const parser = new ToolCallParser([weather, add], 'signature');
    const calls = parser.push("I could use weather (Rome's, I mean) first. weather(city= 'St. John\\'s (', days=2)");
    assert.deepEqual(
      calls.map(({ arguments: args, fault }) => fault ?? args),
      ['no value at "Rome\'s, I mean"', { city: "St. John's (", days: 2 }],
    );
    const prefixed = new ToolCallParser([weather], 'signature').push("weather(city=r'\\(') weather(city='Rome')");
    assert.deepEqual(
      prefixed.map(({ fault }) => fault === undefined),
      [false, true],
    );
  });

  it('finds the same calls in any text, whole or in pieces', () => {
    const parts = [
      'weather',
      ' add ',
      'to-add',
      '(',
      ')',
      '{',
      '}',
      '[',
      '"',
      "'",
      '\\',
      'a',
      ' ',
      '\n',
      ',',
      '=',
      '1',
    ];
    const frames = [
      '<tool_call>',
      '<|python_tag|>',
      '{"name": "add", "arguments": {"a": 1}}',
      '```js',
      '```',
      'add(a=1)',
    ];
    const any = fc.array(fc.constantFrom(...parts, ...frames), { maxLength: 40, size: 'max' });
    const tools = [add, { ...add, name: 'to-add' }, weather];
    const format = fc.constantFrom<ToolFormat>('signature', 'hermes', 'json', 'code');
    fc.assert(
      fc.property(any, format, fc.integer({ min: 1, max: 7 }), (texts, chosen, size) => {
        const [whole, pieces] = [new ToolCallParser(tools, chosen), new ToolCallParser(tools, chosen)];
        const text = texts.join('');
        const cuts = Array.from({ length: Math.ceil(text.length / size) }, (_, i) =>
          text.slice(i * size, (i + 1) * size),
        );
        assert.deepEqual(
          cuts.flatMap((piece) => pieces.push(piece)),
          whole.push(text),
        );
        assert.equal(pieces.plain, whole.plain);
      }),
      { seed: 15, numRuns: 1000 },
    );
  });
});

describe('tools', () => {
  it('check their arguments and name the field', async () => {
    assert.equal(await add.call({ a: 1, b: 2 }), 3);
    await assert.rejects(add.call({ a: 1, c: 'x' }), /b is missing; c is not known/);
    await assert.rejects(add.call({ a: 1, b: '2' }), /b must be number, not "2"/);
    await assert.rejects(weather.call({ city: 7 }), /city: /);
    assert.equal(toolSignature(weather), 'weather(city: string, days?: integer): The weather of a city');
  });

  it('start when their signatures close and run in parallel up to a bound', async () => {
    const begun: number[] = [];
    const release: (() => void)[] = [];
    const wait = tool<{ n: number }>({
      name: 'wait',
      parameters: { type: 'object', properties: { n: { type: 'integer' } } },
      call: ({ n }) => {
        begun.push(n);
        return new Promise<number>((resolve) => release.push(() => resolve(n)));
      },
    });
    const runner = new ToolRunner([wait], { concurrency: 2, maxCalls: 3 });
    runner.push('wait(1) and then wait(');
    await new Promise(setImmediate);
    assert.deepEqual(begun, [1]);
    runner.push('2) wait(3) wait(4)');
    await new Promise(setImmediate);
    assert.deepEqual(begun, [1, 2]);
    release[1]?.();
    await new Promise(setImmediate);
    assert.deepEqual(begun, [1, 2, 3]);
    release[0]?.();
    release[2]?.();
    const outcomes = await runner.outcomes();
    assert.deepEqual(
      outcomes.map(({ content }) => content),
      ['1', '2', '3', 'Error: not called: one text may make 3 calls at most.'],
    );
  });

  it('do not start waiting calls after an abort', async () => {
    let calls = 0;
    const begun = tool({ name: 'wait', call: () => new Promise(() => calls++) });
    const controller = new AbortController();
    const runner = new ToolRunner([begun], { concurrency: 1, signal: controller.signal });
    runner.push('wait() wait() wait()');
    await new Promise(setImmediate);
    controller.abort();
    const outcomes = await runner.outcomes();
    assert.equal(calls, 1);
    assert.ok(
      outcomes.every(({ ok, content }) => !ok && content.startsWith('Error: cancelled')) && outcomes.length === 3,
    );
    assert.throws(() => new ToolRunner([begun], { concurrency: 0 }), { code: 'invalid-argument' });
  });

  it('do not split characters in error messages', async () => {
    const runner = new ToolRunner([add]);
    // A message shows 80 units of the value, its quote included. With 78 letters, unit 80 is the first half of the emoji.
    for (const length of [77, 78]) runner.push(`add(a="${'x'.repeat(length)}\u{1f600}", b=1) `);
    const contents = (await runner.outcomes()).map(({ content }) => content);
    assert.ok(contents.length === 2 && contents.every((content) => content.isWellFormed()), contents.join('\n'));
  });

  it('answer a faulty call with its error', async () => {
    const runner = new ToolRunner([add], { format: 'hermes' });
    runner.push('<tool_call>{"name": "subtract", "arguments": {}}</tool_call>');
    runner.push('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_call>{"nam": 1}</tool_call>');
    assert.deepEqual(
      (await runner.outcomes()).map(({ content }) => content),
      [
        'Error: there is no tool "subtract", only add.',
        'Error: invalid-argument: b is missing',
        'Error: the call cannot be read: it has no "name".',
      ],
    );
  });
});
