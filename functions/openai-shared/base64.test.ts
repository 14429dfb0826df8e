import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { base64, bytesOfBase64 } from './base64.ts';

describe('base64', () => {
  it('is encoded and decoded as Node does', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), fc.boolean(), (bytes, padded) => {
        const text = Buffer.from(bytes).toString('base64');
        assert.equal(base64(bytes), text);
        assert.deepEqual(bytesOfBase64(padded ? text : text.replace(/=+$/, '')), bytes);
        assert.deepEqual(bytesOfBase64(text.replaceAll(/(.{5})/g, '$1\r\n ')), bytes);
      }),
    );
  });

  it('is refused with other characters, padding within, or a number of digits that no bytes have', () => {
    for (const text of ['A', 'AAAAA', 'AA-A', 'AA_A', 'AA=A', 'AAAé', 'AA\u0000A', 'AAA===', '%41AA', '😀AA'])
      assert.equal(bytesOfBase64(text), undefined, text);
    assert.deepEqual(bytesOfBase64(''), new Uint8Array());
  });

  it('is refused for any single byte that is no digit, at any place', () => {
    const digits = new Set('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/ \t\n\f\r');
    for (let code = 0; code < 128; code++) {
      const character = String.fromCharCode(code);
      if (digits.has(character) || character === '=') continue;
      for (let at = 0; at < 8; at++) {
        const text = `${'A'.repeat(at)}${character}${'A'.repeat(7 - at)}`;
        assert.equal(bytesOfBase64(text), undefined, JSON.stringify(text));
      }
    }
  });
});
