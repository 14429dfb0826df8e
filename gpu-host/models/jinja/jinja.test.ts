import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { formatTime } from '../chat-template.ts';
import { TemplateError } from './errors.ts';
import { renderTemplate } from './interpreter.ts';
import { areEqual, compareValues, contains } from './operators.ts';
import { parseTemplate } from './parser.ts';
import { Dict, fromJson, hashOf, jsonText, type Meter, representation, Tuple, type Value } from './values.ts';

interface Case {
  readonly template: string;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** What Jinja2 gave: a text, or an error. */
interface Result {
  readonly output?: string;
  readonly error?: string;
}

const FIXTURES = join(import.meta.dirname, 'fixtures');
const SNIPPETS: readonly (Case & Result)[] = linesOf(readFileSync(join(FIXTURES, 'snippets.jsonl'), 'utf8'));
/** Snippets whose result differs from that of Jinja2. */
const KNOWN_DIFFERENCES = [
  // `lipsum` writes random text.
  '{{ lipsum is defined }}{{ dict is defined }}',
  // JavaScript knows capital letters, but not title case, which a few ligatures have.
  "{{ 'İ'.lower() | length }}{{ 'ǆ'.title() }}{{ 'ß'.upper() }}{{ 'ŉ'.upper() }}",
  // A list forgets that a text is marked as HTML.
  "{{ ['<'|safe] }}",
];
/** The time in `fixtures/oracle.py`. */
const NOW = new Date(2026, 10, 30, 9, 5, 7);

const PYTHON = ['/usr/bin/python3', 'python3'].find((path) => spawnSync(path, ['-c', 'import jinja2']).status === 0);
const NO_ORACLE = PYTHON === undefined && 'no python3 with jinja2; install python3-jinja2';
const TEMPLATES = process.env.PIE_CASES === undefined ? null : join(process.env.PIE_CASES, 'data/templates');
const NO_TEMPLATES = !(TEMPLATES !== null && existsSync(TEMPLATES)) && 'PIE_CASES names no folder with data/templates';

function linesOf<T>(lines: string): T[] {
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line): T => JSON.parse(line));
}

function render(template: string, variables: Readonly<Record<string, unknown>> = {}): string {
  const values = new Map(Object.entries(variables).map(([name, value]) => [name, fromJson(value)]));
  return renderTemplate(parseTemplate(template), values, {
    checkTime: () => {},
    formatNow: (format) => formatTime(NOW, format),
  });
}

/** Differences between the engine and the results of Jinja2; where Jinja2 failed, the engine must fail, too, with an error of its own. */
function differences(cases: readonly Case[], results: readonly Result[]): Case[] {
  return cases.filter(({ template, variables }, i) => {
    const { output } = results[i]!;
    try {
      return render(template, variables) !== output;
    } catch (error) {
      return output !== undefined || !(error instanceof TemplateError);
    }
  });
}

async function oracle(cases: readonly Case[]): Promise<Result[]> {
  const child = spawn(PYTHON!, [join(FIXTURES, 'oracle.py')], { stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.end(cases.map((each) => `${JSON.stringify(each)}\n`).join(''));
  return linesOf(await text(child.stdout));
}

describe('the template engine', () => {
  it('renders as Jinja2 does in the environment of transformers', () => {
    assert.ok(KNOWN_DIFFERENCES.length < SNIPPETS.length * 0.02);
    const different = differences(SNIPPETS, SNIPPETS).map(({ template }) => template);
    assert.deepEqual(different, KNOWN_DIFFERENCES);
  });

  it('is held against results that Jinja2 gives today', { skip: NO_ORACLE }, async () => {
    const kind = ({ output, error }: Result) => output ?? `failed: ${error?.split(':', 1)}`;
    assert.deepEqual((await oracle(SNIPPETS)).map(kind), SNIPPETS.map(kind));
  });

  it('renders published templates as Jinja2 does', { skip: NO_ORACLE || NO_TEMPLATES }, async () => {
    const conversations = conversationsOf();
    const cases = readdirSync(TEMPLATES!).flatMap((name) => {
      const template = readFileSync(join(TEMPLATES!, name), 'utf8');
      return conversations.map((variables) => ({ name, template, variables }));
    });
    assert.ok(cases.length > 0);
    assert.deepEqual(differences(cases, await oracle(cases)), []);
  });

  it('says where a template does not parse, and what is not supported', () => {
    const refused: readonly (readonly [string, RegExp, number])[] = [
      ['a\n{{ 1', /^a tag without its end, "}}" \(line 2 of the template\)$/, 2],
      ["{% include 'x' %}", /^the statement "include" is not supported: a chat template is one text/, 1],
      ['\n\n{% frobnicate %}', /^unknown statement "frobnicate" \(line 3/, 3],
      ['{% for m in messages %}\n{{ m }}\n', /^"{% for %}" has no end; expected "{% endfor %}"/, 1],
      ['{% if a %}\n{% endfor %}', /^"{% endfor %}" ends nothing/, 2],
      ['{{ (1 }}', /^unexpected "}", expected "\)"/, 1],
      ['{{ 1 ? 2 }}', /^unexpected "\?"/, 1],
      ['{% if %}x{% endif %}', /^expected an expression, got "%}"/, 1],
      ['{{ a b }}', /^expected "}}", got "b"/, 1],
      ['{{ a is }}', /^expected the name of a test, got "}}"/, 1],
      ['{% break %}', /^"{% break %}" is outside of a loop/, 1],
      [`{{ ${'('.repeat(300)}1${')'.repeat(300)} }}`, /nested deeper than/, 1],
    ];
    for (const [template, message, line] of refused) {
      assert.throws(() => parseTemplate(template), { name: 'TemplateError', message, line }, template);
    }
  });

  it('says where a rendering fails', () => {
    const failing: readonly (readonly [string, RegExp, number])[] = [
      ["\n{{ raise_exception('user first') }}", /^user first \(line 2 of the template\)$/, 2],
      ["{{ 'a' }}\n{{ 'a' | frobnicate }}", /^there is no filter "frobnicate" \(line 2/, 2],
      ['{{ 1 is frobnicated }}', /^there is no test "frobnicated"/, 1],
      ["{{ 'a' | wordwrap }}", /^the filter "wordwrap" is not supported in chat templates/, 1],
      ["{{ 'a'.encode() }}", /^the method str\.encode is not supported in chat templates/, 1],
      ['{{ x.y }}', /^'x' is undefined/, 1],
      ['{{ none.a.b }}', /^'None' has no attribute 'a'/, 1],
      ["{{ 'a' + 1 }}", /^can only concatenate str \(not "int"\) to str/, 1],
      ['{{ [].append(1) }}', /^access to attribute 'append' of 'list' object is unsafe/, 1],
      ['{% macro m() %}\n{{ x.y }}{% endmacro %}\n{{ m() }}', /^'x' is undefined \(line 2/, 2],
    ];
    for (const [template, message, line] of failing) {
      assert.throws(() => render(template), { name: 'TemplateError', message, line }, template);
    }
  });

  it('bounds the steps, the text and the depth of a rendering', () => {
    const endless: readonly (readonly [string, RegExp])[] = [
      ["{{ 'x' * 10 ** 9 }}", /1000000000 characters; 16777216 is the limit/],
      ["{{ 'a'.center(10 ** 9) }}", /1000000000 characters; 16777216 is the limit/],
      ["{{ 'a'.zfill(10 ** 9) }}", /1000000000 characters; 16777216 is the limit/],
      ["{{ 'a' | indent(10 ** 9) }}", /1000000000 characters; 16777216 is the limit/],
      ["{{ 'a' | center(10 ** 9) }}", /1000000000 characters; 16777216 is the limit/],
      ["{{ '%999999999d' % 1 }}", /too wide/],
      ["{{ '{:999999999}'.format(1) }}", /too wide/],
      [
        "{% set ns = namespace(s='x' * 1000) %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        /is the limit/,
      ],
      [
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}",
        /is the limit|takes too long/,
      ],
      ["{% set s = 'x' * 10 ** 6 %}{% for i in range(99) %}{{ s }}{% endfor %}", /is the limit|too long/],
      ['{{ range(10 ** 9) }}', /range\(\) of 1000000000 numbers; 100000 is the limit/],
      ['{{ [1] * 10 ** 9 }}', /takes too long/],
      [
        '{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}',
        /takes too long/,
      ],
      ['{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}', /takes too long/],
      ["{% set s = 'x' * 100000 %}{% for i in range(100000) %}{% set a = s | upper %}{% endfor %}", /takes too long/],
      ["{% set s = 'x' * 100000 %}{% for i in range(100000) %}{% set a = s in s %}{% endfor %}", /takes too long/],
      ['{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}', /call each other more than 200 deep/],
      [
        '{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}',
        /nest too deep/,
      ],
      ['{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}', /nest too deep/],
      ["{{ '%(' * 20000 % {} }}", /incomplete format key/],
      ["{{ ('{0' ~ '[' * 20000 ~ '}').format(1) }}", /Missing '\]' in format string/],
      ["{% set text = '%(a)9999d' * 8000 % {'a': 1} %}", /takes too long|is the limit/],
      ["{% set text = ('{:9999}' * 8000).format(*range(8000)) %}", /takes too long|is the limit/],
      ["{% set s = 'x' * 100000 %}{% for i in range(100000) %}{% set a = s[0] %}{% endfor %}", /takes too long/],
      ["{% set s = 'x' * 100000 %}{% for i in range(100000) %}{% set a = s is upper %}{% endfor %}", /takes too long/],
      ["{% set a = 'x' * 1000000 %}{% set b = a.find('y' * 500000) %}", /takes too long/],
    ];
    for (const [template, message] of endless) {
      assert.throws(() => render(template), { name: 'TemplateError', message }, template);
    }
    let deep: unknown = 'x';
    for (let i = 0; i < 200; i++) deep = [deep];
    const wide = Array.from({ length: 100 }, () => deep);
    assert.throws(() => render('{{ x | tojson(indent=64) }}', { x: wide }), { message: /takes too long/ });
    for (let i = 0; i < 200; i++) deep = { deep };
    assert.throws(() => render('{{ x }}', { x: deep }), { message: /nest deeper than 256/ });
  });

  it('bounds the work on values that share their parts', () => {
    // Both values have 22 lists or tuples, and 4 million values to one who follows each part.
    const made = (open: string, close: string): string =>
      `{% set ns = namespace(a=1, b=1) %}{% for i in range(22) %}{% set ns.a = ${open}ns.a, ns.a${close} %}{% set ns.b = ${open}ns.b, ns.b${close} %}{% endfor %}`;
    const lists = made('[', ']');
    for (const use of [
      'ns.a',
      'ns.a | tojson',
      'ns.a | string | length',
      'ns.a == ns.b',
      'ns.a != ns.b',
      'ns.a < ns.b',
      'ns.a in [ns.b]',
      'ns.a is eq(ns.b)',
      '[ns.b].index(ns.a)',
      '[ns.a, ns.b] | sort | length',
      '[ns.a, ns.b] | min | length',
      "'%s' % ns.a",
      "'{}'.format(ns.a)",
      'ns.a ~ 1',
      'ns | string',
      '[ns.a] | join',
    ]) {
      assert.throws(() => render(`${lists}{{ ${use} }}`), { name: 'TemplateError', message: /takes too long/ }, use);
    }
    for (const use of ['{ns.a: 1}', '{}[ns.a]', 'ns.a in {}', '{}.get(ns.a)', '[ns.a] | unique | list']) {
      assert.throws(() => render(`${made('(', ')')}{{ ${use} }}`), { message: /takes too long/ }, use);
    }
  });

  it('counts a step for each value that an operation visits, and the characters of each text', () => {
    const part = fc.record({
      kind: fc.constantFrom('list', 'tuple', 'dict', 'text'),
      parts: fc.array(fc.nat(), { maxLength: 2 }),
      length: fc.nat(9),
    });
    const work = fc.array(part, { minLength: 1, maxLength: 10 });
    const counter = () => {
      const counted = { steps: 0, characters: 0 };
      const meter: Meter = {
        steps: (steps) => {
          counted.steps += steps;
        },
        text: (characters) => {
          counted.characters += characters;
        },
      };
      return { counted, meter };
    };
    /** The last of values that are made of earlier ones, with the values and the characters in it. */
    const built = (
      parts: readonly (typeof part extends fc.Arbitrary<infer T> ? T : never)[],
      kinds: readonly string[],
    ) => {
      const all: { value: Value; visits: number; characters: number }[] = [{ value: 1, visits: 1, characters: 0 }];
      for (const { kind, parts: from, length } of parts) {
        const inner = from.map((i) => all[all.length - 1 - (i % Math.min(2, all.length))]!);
        const values = inner.map(({ value }) => value);
        const visits = 1 + inner.reduce((sum, one) => sum + one.visits, 0);
        const characters = inner.reduce((sum, one) => sum + one.characters, 0);
        if (kind === 'text' || !kinds.includes(kind))
          all.push({ value: 'x'.repeat(length), visits: 1, characters: length });
        else if (kind === 'list') all.push({ value: values, visits, characters });
        else if (kind === 'tuple') all.push({ value: new Tuple(values), visits, characters });
        else
          all.push({
            value: new Dict(
              values.map((value, i) => [`${i}`, value]),
              counter().meter,
            ),
            visits,
            characters,
          });
      }
      return all.at(-1)!;
    };
    const uses: readonly (readonly [string, readonly string[], (a: Value, b: Value, meter: Meter) => unknown])[] = [
      ['repr', ['list', 'tuple', 'dict'], (a, _, meter) => representation(a, meter)],
      ['==', ['list', 'tuple', 'dict'], (a, b, meter) => assert.ok(areEqual(a, b, meter))],
      ['<', ['list', 'tuple'], (a, b, meter) => assert.equal(compareValues(a, b, '<', meter), 0)],
      ['in', ['list', 'tuple', 'dict'], (a, b, meter) => assert.ok(contains([a], b, meter))],
      ['hash', ['tuple'], (a, _, meter) => hashOf(a, meter)],
      [
        'tojson',
        ['list', 'tuple', 'dict'],
        (a, _, meter) => jsonText(a, { ensureAscii: false, indent: null, separators: null, sortKeys: true }, meter),
      ],
    ];
    for (const [name, kinds, use] of uses) {
      fc.assert(
        fc.property(work, (parts) => {
          const [a, b] = [built(parts, kinds), built(parts, kinds)];
          const { counted, meter } = counter();
          use(a.value, b.value, meter);
          assert.ok(
            counted.steps >= a.visits && counted.characters >= a.characters,
            `${name}: ${JSON.stringify({ counted, ...a })}`,
          );
        }),
      );
    }
  });

  it('asks for the time while it renders', () => {
    const options = {
      formatNow: () => '',
      checkTime: () => {
        throw new TemplateError('late');
      },
    };
    assert.throws(
      () => renderTemplate(parseTemplate('{% for i in range(99) %}x{% endfor %}'), new Map(), options),
      /late/,
    );
  });
});

/** Conversations of many shapes: with and without a system message, tools, calls, parts, documents, and some that templates refuse. */
function conversationsOf(): Case['variables'][] {
  const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: { x: 1, y: ['é', null] } } };
  const parameters = { type: 'object', properties: { x: { type: 'integer' } }, required: ['x'] };
  const tools = [{ type: 'function', function: { name: 'f', description: 'd', parameters } }];
  const user = { role: 'user', content: ' Hi\n' };
  const assistant = { role: 'assistant', content: 'Yo ' };
  const system = { role: 'system', content: 'Sys' };
  const calling = { role: 'assistant', content: '', tool_calls: [call] };
  const result = { role: 'tool', name: 'f', content: '2', tool_call_id: 'c1' };
  const tokens = { bos_token: '<s>', eos_token: '</s>', pad_token: '', unk_token: '', tools: null, documents: null };
  return [
    { messages: [user] },
    { messages: [user], add_generation_prompt: true },
    { messages: [system, user, assistant, user], add_generation_prompt: true },
    { messages: [user, assistant, user, assistant] },
    { messages: [system, user], tools, add_generation_prompt: true },
    { messages: [user, calling, result, assistant, user], tools, add_generation_prompt: true },
    { messages: [user, { ...calling, content: null }] },
    { messages: [assistant] },
    { messages: [] },
    { messages: [user, user] },
    { messages: [{ role: 'user', content: [{ type: 'text', text: 'p' }] }] },
    { messages: [system, user], documents: [{ title: 'T', text: 'b' }] },
  ].map((variables) => ({ ...tokens, ...variables }));
}
