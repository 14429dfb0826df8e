import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { defineCommand } from './command.ts';
import { wholeNumber } from './format.ts';
import { parse } from './program.ts';
import { Terminal } from './terminal.ts';

/** True when both types are the same; assignable types are not enough. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

interface Values {
  readonly name: string | undefined;
  readonly ifRevision: number | undefined;
  readonly level: 'warn' | 'error' | undefined;
  readonly type: string | undefined;
  readonly message: readonly string[];
  readonly port: readonly number[];
  readonly color: readonly ('red' | 'blue')[];
  readonly dryRun: boolean;
  readonly wait: boolean;
}

const shared = { flags: '-n, --name <name>', help: 'a name' } as const;
const description = { summary: 'Show its values', examples: [] };

let seen: { readonly args: readonly (string | undefined)[]; readonly options: Values };
const show = defineCommand({
  ...description,
  name: 'show',
  arguments: [
    { name: 'first', help: 'a word', required: true },
    { name: 'others', help: 'words', required: false, rest: true },
  ],
  options: [
    shared,
    { flags: '--if-revision <number>', help: 'a number', parse: wholeNumber(0, 9) },
    { flags: '-l, --level <level>', help: 'a level', choices: ['warn', 'error'] },
    { flags: '--type <media type>', help: 'a type' },
    { flags: '-m, --message <text>', help: 'texts', repeat: true },
    { flags: '--port <number>', help: 'numbers', repeat: true, parse: wholeNumber(0, 9) },
    { flags: '--color <color>', help: 'colors', repeat: true, choices: ['red', 'blue'] },
    { flags: '--dry-run', help: 'a flag' },
    { flags: '--no-wait', help: 'a negated flag' },
  ],
  async run({ args, options }) {
    true satisfies Same<typeof args, readonly [string, ...string[]]>;
    true satisfies Same<typeof options, Values>;
    seen = { args, options };
    return 0;
  },
});

async function valuesOf(...words: string[]): Promise<typeof seen> {
  const parsed = parse([show], '1.0.0', ['show', ...words]);
  assert.ok(parsed);
  const terminal = new Terminal({ json: parsed.json });
  const connect = () => Promise.reject(new Error('This command needs no platform.'));
  await parsed.command.run({ ...parsed, terminal, signal: new AbortController().signal, connect });
  return seen;
}

describe('values of declared options', () => {
  it('are those of the command line', async () => {
    const words = '-n pie --if-revision 3 -l warn --type a/b -m x --message y --port 1 --port 2 --color red';
    const { args, options } = await valuesOf(...words.split(' '), '--dry-run', '--no-wait', 'a', 'b', 'c', '--json');
    assert.deepEqual(args, ['a', 'b', 'c']);
    assert.deepEqual(options, {
      name: 'pie',
      ifRevision: 3,
      level: 'warn',
      type: 'a/b',
      message: ['x', 'y'],
      port: [1, 2],
      color: ['red'],
      dryRun: true,
      wait: false,
    });
  });

  it('are undefined for a left-out option, an empty list for a repeatable one, false for a flag, true for a negated flag', async () => {
    const { args, options } = await valuesOf('a');
    assert.deepEqual(args, ['a']);
    assert.deepEqual(options, { message: [], port: [], color: [], dryRun: false, wait: true });
  });

  it('are parsed and checked one by one for a repeated option', async () => {
    await assert.rejects(valuesOf('a', '--port', '1', '--port', '10'), /must be a whole number from 0 to 9/);
    await assert.rejects(valuesOf('a', '--color', 'red', '--color', 'green'), /Allowed choices are red, blue/);
  });
});

// The compiler checks the rest: an `@ts-expect-error` line without an error does not compile.

defineCommand({
  ...description,
  name: 'no-options',
  async run({ args, options }) {
    true satisfies Same<typeof args, readonly []>;
    true satisfies Same<keyof typeof options, never>;
    // @ts-expect-error: the parser handles `--json`; no handler gets it.
    return options.json;
  },
});

defineCommand({
  ...description,
  name: 'wrong-reads',
  arguments: [{ name: 'id', help: 'an id', required: false }],
  options: [shared, { flags: '--if-revision <number>', help: 'a number', parse: wholeNumber(0, 9) }],
  async run({ args: [id], options }) {
    // @ts-expect-error: the declared name is `ifRevision`.
    options.ifRevison;
    // @ts-expect-error: the option may be left out.
    options.ifRevision satisfies number;
    // @ts-expect-error: the parsed value is a number.
    options.ifRevision satisfies string | undefined;
    // @ts-expect-error: no option `--tenant` is declared.
    options.tenant;
    // @ts-expect-error: the argument may be left out.
    id satisfies string;
    return 0;
  },
});

defineCommand({
  ...description,
  name: 'wrong-declarations',
  // @ts-expect-error: an argument has no member `optional`.
  arguments: [{ name: 'id', help: 'an id', required: false, optional: true }],
  // @ts-expect-error: the member is `choices`.
  options: [shared, { flags: '--level <level>', help: 'a level', choises: ['warn', 'error'] }],
  run: async () => 0,
});
