import assert from 'node:assert/strict';
import { describe as group, it } from 'node:test';
import { describe, InferletError } from './errors.ts';

group('InferletError', () => {
  it('is made from the error of a failed import', () => {
    const thrown = Object.assign(new Error('[object Object]'), { payload: { tag: 'limit-exceeded', val: 'too many' } });
    const error = InferletError.from(thrown);
    assert.equal(error.code, 'limit-exceeded');
    assert.equal(error.message, 'too many');
  });

  it('is returned unchanged', () => {
    const error = new InferletError('closed', 'gone');
    assert.equal(InferletError.from(error), error);
  });

  it('is internal for any other error, with its text', () => {
    assert.equal(InferletError.from(new TypeError('odd')).code, 'internal');
    assert.equal(InferletError.from('odd').message, 'odd');
    assert.equal(InferletError.from({ payload: { tag: 'no-such-code', val: 'x' } }).code, 'internal');
  });
});

group('describe', () => {
  it('puts the code or the name first', () => {
    assert.equal(describe(new InferletError('closed', 'gone')), 'closed: gone');
    assert.equal(describe(new TypeError('odd')), 'TypeError: odd');
    assert.equal(describe(new Error('plain')), 'plain');
    assert.equal(describe('text'), 'text');
    assert.equal(describe(Object.assign(new Error('x'), { payload: { tag: 'closed', val: 'gone' } })), 'closed: gone');
  });
});
