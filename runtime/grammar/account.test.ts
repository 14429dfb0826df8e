import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GrammarAccount } from './account.ts';

const MEBI = 1 << 20;
const MAX_CALLS = 1024;
const MAX_BYTES = 32 * MEBI;
const MAX_TOKENS = MEBI;

describe('GrammarAccount', () => {
  it('bounds the number and the bytes of pending calls', () => {
    const account = new GrammarAccount();
    for (let call = 0; call < MAX_CALLS; call += 1) assert.equal(account.begin(0), null);
    assert.equal(account.begin(0)?.tag, 'limit-exceeded');
    account.end(0);
    assert.equal(account.begin(MAX_BYTES + MEBI)?.tag, 'limit-exceeded');
    assert.equal(account.begin(MAX_BYTES), null);
    account.end(0);
    assert.equal(account.begin(1)?.tag, 'limit-exceeded');
    account.end(MAX_BYTES);
    assert.equal(account.begin(1), null);
  });

  it('bounds the tokens that matchers remember', () => {
    const account = new GrammarAccount();
    assert.equal(account.keep(MAX_TOKENS), null);
    assert.equal(account.keep(1)?.tag, 'limit-exceeded');
    account.give(1);
    assert.equal(account.keep(1), null);
  });

  it('refuses calls when the charged CPU time is used up', () => {
    let leftMs = 5;
    const charge = (cpuMs: number) => {
      leftMs -= cpuMs;
    };
    const account = new GrammarAccount({ charge, usedUp: () => leftMs < 0 });
    account.charge(5);
    assert.deepEqual([account.refuse(), account.begin(0)], [null, null]);
    account.charge(1);
    assert.deepEqual([account.refuse()?.tag, account.begin(0)?.tag], ['limit-exceeded', 'limit-exceeded']);
  });
});
