import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Redactions, redactNothing, redactor } from './redact.ts';

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
          // At each end, one character may remain that also holds bits of its neighbour.
          const left = clean.length - '[KEY]'.length - (text.length - Math.ceil((KEY.length * 8) / 6));
          assert.ok(left < 'Basic .'.length + 4, clean);
        }
      }
    }
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
        const each = redactor(
          new Map([
            ['A', first],
            ['B', second],
          ]),
        );
        const text = plan.map(([which, between]) => [first, second, '#x#'][which] + between).join('');
        const clean = each(text);
        const squeezed = clean.replace(/\s+/g, '');
        for (const needle of [first, second]) assert.ok(!squeezed.includes(needle), `${text} → ${clean}`);
        if (!plan.some(([which]) => which < 2)) assert.equal(clean, text);
        assert.equal(clean.split('#x#').length, text.split('#x#').length);
      }),
      { seed: 5, numRuns: 300 },
    );
  });

  it('redacts the secrets of every added function', () => {
    const all = new Redactions();
    assert.equal(all.redact('first second'), 'first second');
    all.add('a@1', redactor(new Map([['A', 'first']])));
    all.add('b@1', redactor(new Map([['B', 'second']])));
    all.add('c@1', redactNothing);
    assert.equal(all.redact('first second seco', true), '[A] [B] [B]');
  });

  it('returns redactNothing without secrets', () => {
    assert.equal(redactor(new Map()), redactNothing);
    assert.equal(redactor(new Map([['TINY', 'abc']])), redactNothing);
  });
});
