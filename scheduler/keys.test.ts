import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { parseLua } from './store/lua-script.ts';
import { faultsOf, schema } from './testing/schema.ts';

const ROOT = new URL('./', import.meta.url);
const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.lua'));
/** The text of each Lua file, without comments. */
const sources = files.map((file) => {
  const scripts = readFileSync(new URL(file, ROOT), 'utf8').split(/^--- @script .*\n/m);
  const parts = scripts.flatMap((script) => parseLua(script, file));
  return { file, lua: parts.map((part) => (typeof part === 'string' ? '' : part.text)).join('\n') };
});

/** Beginnings of keys that a variable of the scripts may hold, by the name of the variable. */
const BEGINNINGS: Readonly<Record<string, readonly string[]>> = {
  prefix: [''],
  ownPrefix: [''],
  base: [':admission:'],
  account: [':account:*'],
  record: [':invocation:*'],
  listing: [':listing:*'],
  list: [':listing:*', ':listing:*:of:*'],
  runtimeId: [':runtime:*'],
  'ARGV[1]': ['', ':account:*'],
};
/** A concatenation in Lua that begins with one of these variables. */
const CHAIN =
  /(?:\w+\.)?(prefix|ownPrefix|base|account|record|listing|list|runtimeId|ARGV\[1\])((?: \.\. (?:'[^']*'|[\w.]+(?:\[[^\]]*\])?))+)/g;

/** Text constants of scripts, such as the ends of admission's keys. */
const CONSTANTS = new Map(
  sources.flatMap(({ lua }) =>
    [...lua.matchAll(/^local ([A-Z][A-Z_, ]*) = ('.*)$/gm)].flatMap(([, names = '', values = '']) => {
      const texts = [...values.matchAll(/'([^']*)'/g)].map(([, text = '']) => text);
      return names.split(', ').map((name, i) => [name, texts[i] ?? ''] as const);
    }),
  ),
);

/** The possible names of the keys that scripts build, with `*` for what is known only at run time. Each name is a list of alternatives. */
const namesInScripts = sources.flatMap(({ file, lua }) =>
  [...lua.matchAll(CHAIN)]
    .map(([text, beginning = '', chain = '']) => {
      const rest = chain
        .split(' .. ')
        .slice(1)
        .map((part) => (part.startsWith("'") ? part.slice(1, -1) : (CONSTANTS.get(part) ?? '*')))
        .join('');
      const names = (BEGINNINGS[beginning] ?? [])
        .map((head) => (head + rest).slice(1))
        .map((name) => name.replace(/:$/, ':*'));
      return { file, text, names };
    })
    // Keeps the concatenations that build keys, by the form of the first text after the variable. Others build other texts.
    .filter(({ text }) => /^\S+ \.\. (?:':|[A-Z]|'[a-z]+:?'$|'[a-z]+:' )/.test(text)),
);

const entries = schema();
/** True for a name in the table, and for the beginning of one. */
const isKnown = (name: string) =>
  /^(?:bull:|admission:\*$)/.test(name) ||
  entries.some((entry) => entry.pattern.test(name) || entry.name.startsWith(`${name}:`));

describe('the table of keys', () => {
  it('has each name that a script builds', () => {
    assert.ok(namesInScripts.length > 100, `${namesInScripts.length} names`);
    const unknown = namesInScripts.filter(({ names }) => !names.some(isKnown));
    assert.deepEqual(
      unknown.map(({ file, text, names }) => `${file}: ${text} (${names.join(' or ')})`),
      [],
    );
  });

  it('has no key of admission that no script uses', () => {
    const used = new Set(namesInScripts.flatMap(({ names }) => names));
    const ofAdmission = entries.filter(({ name, type }) => name.startsWith('admission:') && type !== 'prefix');
    // Scripts do not build the key of a version's learned peaks: the record of an invocation has it.
    const unused = ofAdmission.filter(({ name, kind }) => kind !== 'learnedPages' && !used.has(name));
    assert.deepEqual(
      unused.map(({ kind }) => kind),
      [],
    );
  });

  it('names each key and channel once', () => {
    const names = entries.map(({ name }) => name);
    assert.deepEqual(
      names.filter((name, i) => names.indexOf(name) !== i),
      [],
    );
  });

  it('reports a key whose name, type or lifetime differs from the table', () => {
    const faults = (name: string, type: string, hasTtl: boolean) => faultsOf(name, type, hasTtl).join();
    assert.equal(faults('admission:modest', 'zset', false), '');
    assert.equal(faults('line:acme:a queue: of any name:state', 'hash', true), '');
    assert.match(faults('admission:fair', 'zset', false), /not in keys\.ts/);
    assert.match(faults('invocation:inv-1:other', 'hash', false), /not in keys\.ts/);
    assert.match(faults('admission:modest', 'set', false), /says zset/);
    assert.match(faults('admission:modest', 'zset', true), /has a TTL; keys\.ts says never/);
    assert.match(faults('runtime:r1:alive', 'string', false), /has no TTL; keys\.ts says always/);
  });
});
