import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { createTokenStream } from '#gpu-host/models/token-stream.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { PipeRequest } from '#wit/generated/host.ts';
import { failureOf, value } from '../../testing/outcome.ts';
import type { GrantedModel } from '../device/granted.ts';
import type { DeviceQueue } from '../device/queue.ts';
import { TextPipe } from './fused.ts';

/** The last two tokens are the halves of `é`. Many of the others overlap in letters and spaces. */
const VOCABULARY = [...' ab', 'ab', 'ba ', ' a', '€', ''].map((text) => Buffer.from(text));
VOCABULARY.push(Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1));
function bytesOf(id: number): Buffer {
  const bytes = VOCABULARY[id];
  if (!bytes) throw new RangeError(`token id ${id} is outside the vocabulary`);
  return bytes;
}
const stream = () => createTokenStream(bytesOf, true);
const tokenizer = { stream } as GrantedModel['tokenizer'];
const queueOf = (model: Partial<GrantedModel> | null) => ({ name: 'tiny', model }) as DeviceQueue;

const open = (request: Partial<PipeRequest>, model: Partial<GrantedModel> | null = { tokenizer }): Outcome<TextPipe> =>
  TextPipe.open(queueOf(model), { before: new Uint32Array(0), held: '', stops: [], ...request });

function openPipe(request: Partial<PipeRequest>): TextPipe {
  const outcome = open(request);
  assert.equal(outcome.tag, 'ok');
  return outcome.val as TextPipe;
}

/** All text of tokens, as far as its characters are complete. */
const textOf = (tokens: readonly number[]): string => stream().push(tokens);

/** The expected result, searched from the beginning after each token. */
function expected(tokens: readonly number[], stops: readonly string[]) {
  for (let count = 1; count <= tokens.length; count++) {
    const text = textOf(tokens.slice(0, count));
    const found = stops
      .filter((stop) => stop !== '' && text.includes(stop))
      .map((stop) => ({ stop, end: text.indexOf(stop) + stop.length }))
      .sort((a, b) => a.end - b.end || b.stop.length - a.stop.length)[0];
    if (found) {
      const { stop, end } = found;
      return { tokens: tokens.slice(0, count), text: text.slice(0, end - stop.length), stop };
    }
  }
  return { tokens: [...tokens], text: textOf(tokens), stop: undefined };
}

const token = fc.nat(VOCABULARY.length - 1);
const text = fc
  .array(fc.constantFrom('a', 'b', ' ', '€', 'é'), { minLength: 1, maxLength: 4 })
  .map((all) => all.join(''));

describe('a text pipe', () => {
  it('passes the text before a stop string, wherever chunks and runs are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.array(token, { maxLength: 4 }), { maxLength: 4 }), { maxLength: 4 }),
        fc.array(text, { maxLength: 3 }),
        (runs, stops) => {
          const tokens = runs.flat(2);
          const wanted = expected(tokens, stops);
          const taken: number[] = [];
          let [sent, held] = ['', ''];
          let stop: string | undefined;
          for (const chunks of runs) {
            const pipe = openPipe({ before: Uint32Array.from(taken), held, stops });
            for (const chunk of chunks) {
              if (pipe.stop === undefined) sent += value(pipe.push(Uint32Array.from(chunk), false));
            }
            taken.push(...pipe.tokens);
            ({ held, stop } = pipe);
            if (stop !== undefined) break;
          }
          assert.deepEqual({ taken, stop }, { taken: wanted.tokens, stop: wanted.stop });
          assert.equal(stop === undefined ? sent + held : sent, wanted.text);
          assert.ok(stops.every((one) => !sent.includes(one)));
        },
      ),
      { numRuns: 2000 },
    );
  });

  it('counts the token that ends a run and omits its text', () => {
    const pipe = openPipe({ stops: ['b'] });
    assert.equal(value(pipe.push(Uint32Array.of(1, 2), true)), 'a');
    assert.deepEqual([pipe.tokens, pipe.stop], [[1, 2], undefined]);
  });

  it('returns an error for a token that the tokenizer does not know', () => {
    const pipe = openPipe({});
    assert.equal(failureOf(pipe.push(Uint32Array.of(1, VOCABULARY.length), false)), 'invalid-argument');
    assert.deepEqual(pipe.tokens, [1, VOCABULARY.length]);
  });

  it('writes plain pieces, or pieces in a frame whose opening is written once', () => {
    assert.deepEqual(openPipe({}).messages('a"b'), ['a"b']);
    const pipe = openPipe({ frame: { opening: 'begin', before: '{"delta":', after: '}' } });
    assert.deepEqual(pipe.messages('a"b'), ['begin', '{"delta":"a\\"b"}']);
    pipe.sent += 'a"b';
    assert.deepEqual(pipe.messages('ü'), ['{"delta":"ü"}']);
    const plain = openPipe({ frame: { opening: '', before: '', after: '' } });
    assert.deepEqual(plain.messages('a'), ['"a"']);
  });

  it('refuses costly stop strings and frames, and models without a tokenizer', () => {
    const codeOf = (outcome: Outcome<TextPipe>) => (outcome.tag === 'err' ? outcome.val.tag : 'ok');
    // `€` has three bytes: 342 of them exceed 1,024 bytes, and 2,731 exceed 8,192.
    const tooCostly = [
      open({ stops: Array.from({ length: 65 }, (_, i) => `${i}`) }),
      open({ stops: ['€'.repeat(342)] }),
      open({ held: 'a'.repeat(1025) }),
      open({ before: new Uint32Array(65) }),
      open({ frame: { opening: '€'.repeat(2000), before: '€'.repeat(700), after: '€'.repeat(31) } }),
    ];
    for (const [i, outcome] of tooCostly.entries()) assert.equal(codeOf(outcome), 'limit-exceeded', `request ${i}`);
    assert.equal(codeOf(open({ stops: ['€'.repeat(341)] })), 'ok');
    const largestFrame = { opening: '€'.repeat(2000), before: '€'.repeat(700), after: '€'.repeat(30) };
    assert.equal(codeOf(open({ frame: largestFrame })), 'ok');
    assert.equal(codeOf(open({}, null)), 'not-found');
    assert.equal(codeOf(open({}, { tokenizer: null })), 'unsupported');
  });
});
