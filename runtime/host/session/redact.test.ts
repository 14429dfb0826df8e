import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { type Redact, Redactor } from './redact.ts';

function redactor(secrets: ReadonlyMap<string, string>): Redact {
  const made = new Redactor();
  made.add('f@1', secrets);
  return made.redact;
}

const KEY = 'sk-4f9a+"quoted"/\\é';
const redact = redactor(
  new Map([
    ['KEY', KEY],
    ['PEM', '-----BEGIN KEY-----\nMIIBOgIBAAJBAKj34\nx\n-----END KEY-----\n'],
    ['LONG', 'sk-4f9a+"quoted"/\\é and more'],
    ['TINY', 'abc'],
  ]),
);

describe('redacting secrets', () => {
  it('replaces a value anywhere in a text, also in JSON form', () => {
    assert.equal(redact(`Bearer ${KEY}, ${KEY}`), 'Bearer [KEY], [KEY]');
    assert.equal(redact(JSON.stringify({ authorization: `Bearer ${KEY}` })), '{"authorization":"Bearer [KEY]"}');
    assert.equal(redact('nothing of it, sk-4f9a neither: abc'), 'nothing of it, sk-4f9a neither: abc');
  });

  it('finds a value in the arguments of one console.log and across line breaks', () => {
    assert.equal(redact(`${KEY.slice(0, 6)} ${KEY.slice(6, 11)} ${KEY.slice(11)}`), '[KEY]');
    assert.equal(redact(`a\n  ${[...KEY].join('\n\t')}\nb`), 'a\n  [KEY]\nb');
  });

  it('finds a value in addresses and forms, in JSON within JSON, and in base64 at any offset', () => {
    const inner = JSON.stringify({ key: KEY });
    assert.equal(redact(JSON.stringify({ body: inner })), String.raw`{"body":"{\"key\":\"[KEY]\"}"}`);
    assert.equal(redact(`https://a/?k=${encodeURIComponent(KEY)}&x=1`), 'https://a/?k=[KEY]&x=1');
    assert.equal(redact(`${new URLSearchParams({ k: KEY })}&x=1`), 'k=[KEY]&x=1');
    for (const before of ['', 'u:', 'us:', 'use:', 'user:']) {
      for (const after of ['', '\n', ' and so on']) {
        const encoded = Buffer.from(before + KEY + after).toString('base64');
        for (const text of [encoded, encoded.replaceAll('+', '-').replaceAll('/', '_')]) {
          const clean = redact(`Basic ${text}.`);
          assert.match(clean, /^Basic .*\[KEY\].*\.$/, before);
          // At each end, one base64 character may remain, because it also encodes bits of the neighbouring text.
          const neighbourCharacters = text.length - Math.ceil((KEY.length * 8) / 6);
          const remainingCharacters = clean.length - 'Basic [KEY].'.length - neighbourCharacters;
          assert.ok(remainingCharacters < 4, clean);
        }
      }
    }
    // Shorter values are found only verbatim.
    const short = redactor(new Map([['SHORT', 'a+b/c']]));
    assert.equal(short(`a+b/c ${btoa('a+b/c')} a%2Bb%2Fc`), `[SHORT] ${btoa('a+b/c')} a%2Bb%2Fc`);
  });

  it('redacts each line of a multi-line value by itself', () => {
    assert.equal(redact('read MIIBOgIBAAJBAKj34 of x'), 'read [PEM] of x');
  });

  it('prefers the longer of two values with the same beginning', () => {
    assert.equal(redact(`${KEY} and more.`), '[LONG].');
  });

  it('redacts the beginning of a value at the end of a truncated text', () => {
    assert.equal(redact(`it was ${KEY.slice(0, 9)}`, true), 'it was [KEY]');
    assert.equal(redact(`it was ${KEY.slice(0, 9)}`), `it was ${KEY.slice(0, 9)}`);
    const alike = redactor(new Map([['ALIKE', 'aaaaab']]));
    assert.equal(alike('baaaaaaa', true), 'baa[ALIKE]', 'the longest beginning');
    assert.equal(alike('baaa', true), 'baaa');
  });

  it('redacts all values in random texts and keeps the rest unchanged', () => {
    const value = fc.string({ unit: fc.constantFrom('a', 'b', '"', '\\', '-'), minLength: 4, maxLength: 12 });
    const gap = fc.constantFrom('', ' ', '\n', ' \t');
    fc.assert(
      fc.property(value, value, fc.array(fc.tuple(fc.nat(2), gap), { maxLength: 12 }), (first, second, plan) => {
        const redactBoth = redactor(
          new Map([
            ['A', first],
            ['B', second],
          ]),
        );
        const text = plan.map(([which, between]) => [first, second, '#x#'][which] + between).join('');
        const clean = redactBoth(text);
        const squeezed = clean.replace(/\s+/g, '');
        for (const needle of [first, second]) assert.ok(!squeezed.includes(needle), `${text} → ${clean}`);
        if (!plan.some(([which]) => which < 2)) assert.equal(clean, text);
        assert.equal(clean.split('#x#').length, text.split('#x#').length);
      }),
      { seed: 5, numRuns: 300 },
    );
  });

  it('redacts the secrets of every added function', () => {
    const all = new Redactor();
    assert.equal(all.redact('first second'), 'first second');
    all.add('a@1', new Map([['A', 'first']]));
    assert.equal(all.redact('first second firs', true), '[A] second [A]');
    all.add('b@1', new Map([['B', 'second']]));
    all.add('c@1', new Map());
    assert.equal(all.redact('first second seco', true), '[A] [B] [B]');
  });

  it('leaves texts unchanged when there is no secret, or only one that is too short', () => {
    assert.equal(redactor(new Map())('abc', true), 'abc');
    assert.equal(redactor(new Map([['TINY', 'abc']]))('abc', true), 'abc');
  });

  it('finds long values whole, at the end of a truncated text, and one behind the other', () => {
    const long = Array.from({ length: 60 }, (_, i) => `part-${i};`).join('');
    const redactLong = redactor(new Map([['LONG', long]]));
    assert.equal(redactLong(`a ${long} b`), 'a [LONG] b');
    assert.equal(redactLong(`${long}${long}`), '[LONG][LONG]');
    for (const length of [4, 63, 64, 65, 100, 128, 200, long.length - 1]) {
      assert.equal(redactLong(`a ${long.slice(0, length)}`, true), 'a [LONG]', `${length} characters`);
    }
    assert.equal(redactLong(`a ${long.slice(0, 63)}`), `a ${long.slice(0, 63)}`);
  });

  it('takes time proportional to the text, also for values and texts that nearly match everywhere', () => {
    const secrets = Array.from({ length: 32 }, (_, i): [string, string] => [`S${i}`, `${'a'.repeat(2000)}b${i}`]);
    const lines = Array.from({ length: 64 }, (_, i) => `${'a'.repeat(100)}${i}`).join('\n');
    const redactAll = redactor(new Map([...secrets, ['LINES', lines]]));
    let reads = 0;
    const text = `${'a'.repeat(16_000)}c`;
    const { startsWith } = String.prototype;
    String.prototype.startsWith = function (this: string, ...args: [string, number?]) {
      reads += args[0].length;
      return startsWith.apply(this, args);
    };
    try {
      redactAll(text, true);
    } finally {
      String.prototype.startsWith = startsWith;
    }
    assert.ok(reads < 200 * text.length, `${reads} characters were compared`);
  });
});
