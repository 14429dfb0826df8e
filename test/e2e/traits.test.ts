import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { call, deploy, failure } from '#test/harness/deploy.ts';
import { hold, terminal } from '#test/harness/events.ts';
import { functionsPlatform } from '#test/harness/functions.ts';
import type { Platform } from '#test/harness/platform.ts';

/** Length of a state of stories15m. */
const HIDDEN_SIZE = 288;

let platform: Platform;

/** Returns a hook that deploys the guest of a trait to the shared platform. */
const guest = (name: string) => async (): Promise<void> => {
  platform = await functionsPlatform();
  await deploy(platform, name);
};

describe('grammar', () => {
  before(guest('grammar'));

  test('a JSON schema constrains every generated text', async () => {
    const schema = {
      type: 'object',
      properties: {
        name: { type: 'string', maxLength: 12 },
        age: { type: 'integer', minimum: 0, maximum: 120 },
        pet: { enum: ['cat', 'dog'] },
      },
      required: ['name', 'age', 'pet'],
      additionalProperties: false,
    };
    for (const seed of [1, 2, 3]) {
      const { text } = await call(platform, 'grammar', { schema, prompt: 'A girl: ', maxTokens: 160, seed });
      const value = JSON.parse(text) as Record<string, unknown>;
      assert.deepEqual(Object.keys(value).sort(), ['age', 'name', 'pet']);
      assert.ok(Number.isInteger(value.age) && (value.age as number) >= 0 && (value.age as number) <= 120, text);
      assert.ok(value.pet === 'cat' || value.pet === 'dog', text);
    }
  });

  test('a regular expression and an EBNF grammar constrain the generated text', async () => {
    const phone = await call(platform, 'grammar', { regex: '[0-9]{3}-[0-9]{4}', prompt: 'Call me: ', seed: 4 });
    assert.match(phone.text, /^[0-9]{3}-[0-9]{4}$/);
    const ebnf = 'root ::= "yes" | "no" | "may" "be"?';
    const answer = await call(platform, 'grammar', { ebnf, prompt: 'Do you like it?', seed: 5 });
    assert.match(answer.text, /^(yes|no|maybe|may)$/);
  });

  test('a grammar that does not compile fails as invalid-argument, and the next one works', async () => {
    const refused = await failure(platform, 'grammar', { regex: '(', prompt: 'x' });
    assert.match(refused.message, /invalid-argument/);
    const { text } = await call(platform, 'grammar', { regex: 'ok', prompt: 'x' });
    assert.equal(text, 'ok');
  });
});

describe('introspect and output-text', () => {
  before(guest('introspect'));

  test('attention sums to the number of inputs, probabilities sum to one, and the entropy matches them', async () => {
    const found = await call(platform, 'introspect', {
      prompt: 'The little cat sat on the warm mat and slept all day.',
    });
    const received = found.scores.reduce((sum: number, score: number) => sum + score, 0);
    assert.ok(Math.abs(received - found.inputs) < 1e-3, `${received} of ${found.inputs}`);
    assert.equal(found.scores.length, found.slots + found.inputs);
    assert.ok(Math.abs(found.mass - 1) < 1e-4, String(found.mass));
    assert.ok(Math.abs(found.entropy - found.entropyByHand) < 1e-3);
    assert.equal(found.same.length, 5);
    found.same.forEach((value: number, i: number) => {
      assert.ok(Math.abs(value - found.best.logProbabilities[i]) < 1e-4);
    });
    assert.equal(found.stateLength, HIDDEN_SIZE);
    for (const trait of ['forward', 'fused', 'grammar', 'introspect', 'kv-files'])
      assert.ok(found.traits.includes(trait), trait);
  });
});

describe('kv-files', () => {
  before(guest('files'));

  test('a file is saved, read, appended to under its lock, cut, joined, listed and removed', async () => {
    const name = 'stories/fox';
    const made = await call(platform, 'files', {
      action: 'create',
      name,
      prompt: 'Once there was a red fox. He was very',
      rights: 'writable',
    });
    const read = () => call(platform, 'files', { action: 'read', name, more: ' happy' });
    const before = await read();
    assert.equal(before.tokens, made.tokens);

    const append = { action: 'append', name, more: ' hungry and', rights: 'writable' };
    const holder = await hold(platform, 'files', { ...append, hold: true });
    const locked = await failure(platform, 'files', { action: 'append', name, more: 'x' });
    assert.match(locked.message, /unavailable/);
    await holder.goOn();
    const end = terminal(await holder.ended);
    assert.equal(end?.event, 'result', JSON.stringify(end?.data));
    const tokens = end?.data.output.tokens;
    assert.ok(tokens > made.tokens);
    assert.equal((await read()).tokens, tokens);

    const { joined, expected } = await call(platform, 'files', { action: 'join', name, at: 7, more: ' so' });
    assert.ok(joined.length > 0);
    const best = (rows: { tokens: number[] }[]) => rows.map((row) => row.tokens[0]);
    assert.deepEqual(best(joined), best(expected));
    const listed = await call(platform, 'files', { action: 'list', prefix: 'stories/' });
    assert.deepEqual(
      listed.files.map((file: { name: string; tokens: number; locked: boolean }) => [
        file.name,
        file.tokens,
        file.locked,
      ]),
      [[name, tokens, false]],
    );
    // At the beginning of a text, the tokenizer puts a space before the word, which is then one token. As a continuation it is two tokens.
    const { forked, expected: begun } = await call(platform, 'files', { action: 'fork', more: 'happy' });
    assert.equal(begun.length, 1);
    assert.deepEqual(best(forked), best(begun));
    await call(platform, 'files', { action: 'remove', name });
    assert.match((await failure(platform, 'files', { action: 'read', name, more: 'x' })).message, /not-found/);
  });
});
