import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ModelError } from './errors.ts';
import { createTokenStream } from './token-stream.ts';
import { parseDecoder } from './tokenizer.ts';

const LLAMA = {
  type: 'Sequence',
  decoders: [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
    { type: 'Strip', content: ' ', start: 1, stop: 0 },
  ],
};
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

describe('parseDecoder', () => {
  it('reads SentencePiece with byte fallback', () => {
    const { bytesOf, stripsLeadingSpace } = parseDecoder(LLAMA);
    assert.equal(stripsLeadingSpace, true);
    assert.equal(text(bytesOf('▁the▁▁')), ' the  ');
    assert.deepEqual([...bytesOf('<0xE4>')], [0xe4]);
    assert.equal(text(bytesOf('<0xE4')), '<0xE4');
  });

  it('reads byte-level BPE', () => {
    const { bytesOf, stripsLeadingSpace } = parseDecoder({ type: 'ByteLevel', add_prefix_space: true });
    assert.equal(stripsLeadingSpace, false);
    assert.equal(text(bytesOf('ĠwÃ¶rld')), ' wörld');
    assert.deepEqual([...bytesOf('Ċ')], [10]);
    assert.equal(text(bytesOf('<think>你')), '<think>你', 'characters outside the table stand for themselves');
  });

  it('reads Metaspace, and strips a leading space unless the tokenizer never prepends one', () => {
    assert.equal(
      parseDecoder({ type: 'Metaspace', replacement: '▁', prepend_scheme: 'first' }).stripsLeadingSpace,
      true,
    );
    assert.equal(
      parseDecoder({ type: 'Metaspace', replacement: '▁', prepend_scheme: 'never' }).stripsLeadingSpace,
      false,
    );
  });

  it('refuses decoders that it cannot reduce to bytes per token', () => {
    let deep: object = { type: 'Fuse' };
    for (let i = 0; i < 100_000; i++) deep = { type: 'Sequence', decoders: [deep] };
    for (const decoder of [
      null,
      deep,
      { type: 'WordPiece' },
      { type: 'Strip', content: 'x', start: 1, stop: 0 },
      { type: 'Replace', pattern: { Regex: 'a' } },
    ]) {
      assert.throws(
        () => parseDecoder(decoder),
        (error) => error instanceof ModelError && error.code === 'unsupported-model',
      );
    }
  });
});

describe('createTokenStream', () => {
  /** A stream in which a token's id is the index of its bytes. */
  const streamOf = (tokens: readonly Uint8Array[], strips: boolean) => createTokenStream((id) => tokens[id]!, strips);

  it('gives pieces that together make the whole text, and never a part of a character', () => {
    const character = fc.constantFrom('a', ' ', 'é', '你', '😀', '\ufeff', '\u0000', '🤚🏾', '\n');
    fc.assert(
      fc.property(
        fc.array(character, { maxLength: 20, size: 'max' }),
        fc.array(fc.nat(4), { maxLength: 60, size: 'max' }),
        fc.boolean(),
        (characters, cuts, strips) => {
          const whole = characters.join('');
          const bytes = Buffer.from(whole);
          const tokens: Uint8Array[] = [];
          let position = 0;
          for (const cut of cuts) {
            tokens.push(bytes.subarray(position, position + cut));
            position += cut;
          }
          tokens.push(bytes.subarray(position));
          const stream = streamOf(tokens, strips);
          const pieces = tokens.map((_, id) => stream.push([id]));
          pieces.push(stream.finish());
          assert.equal(pieces.join(''), strips && whole.startsWith(' ') ? whole.slice(1) : whole);
          assert.ok(pieces.every((piece) => piece.isWellFormed() && !piece.includes('\ufffd')));
        },
      ),
      { seed: 2, numRuns: 500 },
    );
  });

  it('decodes any tokens to the text of their joined bytes', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 5 }), { maxLength: 12 }), (tokens) => {
        const stream = streamOf(tokens, false);
        const joined = tokens.map((_, id) => stream.push([id])).join('') + stream.finish();
        assert.equal(joined, new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(tokens)));
      }),
      { seed: 3, numRuns: 500 },
    );
  });

  it('holds a character back until it is complete, and replaces a character that stays incomplete with U+FFFD', () => {
    const bytes = Buffer.from('你');
    const stream = streamOf([bytes.subarray(0, 1), bytes.subarray(1, 2), bytes.subarray(2), Buffer.from('x')], false);
    assert.deepEqual([stream.push([0]), stream.push([1]), stream.push([2])], ['', '', '你']);
    assert.deepEqual([stream.push([0, 1]), stream.push([3])], ['', '\ufffdx']);
    assert.deepEqual([stream.push([0]), stream.finish(), stream.finish()], ['', '\ufffd', '']);
    assert.equal(stream.push([3]), 'x', 'a finished stream starts anew');
  });
});
