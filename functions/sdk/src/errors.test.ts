import assert from 'node:assert/strict';
import { describe as group, it } from 'node:test';
import { describe, InferletError } from './errors.ts';

group('InferletError', () => {
  it('from() converts the error of a failed import', () => {
    const thrown = Object.assign(new Error('[object Object]'), { payload: { tag: 'limit-exceeded', val: 'too many' } });
    const error = InferletError.from(thrown);
    assert.equal(error.code, 'limit-exceeded');
    assert.equal(error.message, 'too many');
  });

  it('from() returns an InferletError unchanged', () => {
    const error = new InferletError('closed', 'gone');
    assert.equal(InferletError.from(error), error);
  });

  it('from() converts any other value to the code internal, with the text of the value', () => {
    assert.equal(InferletError.from(new TypeError('odd')).code, 'internal');
    assert.equal(InferletError.from('odd').message, 'odd');
    assert.equal(InferletError.from({ payload: { tag: 'no-such-code', val: 'x' } }).code, 'internal');
  });
});

group('describe', () => {
  it('puts the code of an InferletError first, or the name of another error', () => {
    assert.equal(describe(new InferletError('closed', 'gone')), 'closed: gone');
    assert.equal(describe(new TypeError('odd')), 'TypeError: odd');
    assert.equal(describe(new Error('plain')), 'plain');
    assert.equal(describe('text'), 'text');
    assert.equal(describe(Object.assign(new Error('x'), { payload: { tag: 'closed', val: 'gone' } })), 'closed: gone');
  });
});
