import assert from 'node:assert/strict';
import path from 'node:path';
import { before, describe, it } from 'node:test';
import { Validator } from '@cfworker/json-schema';
import { call, failure, modelStats } from '../../../../test/harness/deploy.ts';
import { CHAT, deployFrom, functionsPlatform, STORIES } from '../../../../test/harness/functions.ts';
import { ROOT } from '../../../../test/harness/platform.ts';

/** JSON of a fixed schema, as programs ask for: long names, few free values. */
const SCHEMA = {
  type: 'object',
  properties: {
    customer_identifier: { type: 'integer', minimum: 1, maximum: 99999 },
    subscription_status: { enum: ['active', 'cancelled', 'suspended'] },
    requires_follow_up: { type: 'boolean' },
    preferred_language: { enum: ['english', 'german', 'japanese'] },
    satisfaction_score: { type: 'integer', minimum: 0, maximum: 10 },
    source: { const: 'https://support.example.com/conversations/v2' },
  },
  required: [
    'customer_identifier',
    'subscription_status',
    'requires_follow_up',
    'preferred_language',
    'satisfaction_score',
    'source',
  ],
  additionalProperties: false,
};
/** An example for the prompt, which keeps a small model from writing spaces. */
const EXAMPLE = {
  customer_identifier: 204,
  subscription_status: 'active',
  requires_follow_up: true,
  preferred_language: 'german',
  satisfaction_score: 7,
  source: 'https://support.example.com/conversations/v2',
};
const PROMPT = `${JSON.stringify(EXAMPLE)}\n`;

interface Text {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly finishReason: string;
  readonly forwardCalls: number;
  /** Tokens of the context afterwards. */
  readonly length: number;
  /** Tokens of a second generation after the text; empty unless the input asks to `follow`. */
  readonly next: readonly number[];
}

describe('jump-forward decoding', () => {
  before(() => deployFrom(path.join(ROOT, 'test/inferlets/constrained.ts'), 'constrained'));

  /** A text, and the steps that the device computed for it. `way` is `jump`, `run`, `oracle` or `step`: see `test/inferlets/constrained.ts`. */
  async function generate(input: object): Promise<Text & { readonly steps: number }> {
    const platform = await functionsPlatform();
    const { model } = input as { model: string };
    await modelStats(platform, { reset: true, model });
    const { texts } = await call(platform, 'constrained', { schema: SCHEMA, prompt: PROMPT, ...input });
    return { ...texts[0], steps: (await modelStats(platform, { model })).batches };
  }

  // Draws do not depend on the model, and the larger model takes twice as long.
  const temperaturesOf = (model: string) => (model === CHAT && !process.env.PIE_TEST_ALL ? [0] : [0, 1]);
  for (const model of [STORIES, CHAT]) {
    it(`gives the text of stepwise decoding, in fewer steps, for JSON of a fixed schema on ${model}`, async () => {
      for (const temperature of temperaturesOf(model)) {
        const jump = await generate({ way: 'jump', model, temperature });
        const oracle = await generate({ way: 'oracle', model, temperature });
        assert.deepEqual([jump.text, jump.tokens, jump.length], [oracle.text, oracle.tokens, oracle.length]);
        assert.equal(jump.finishReason, 'constraint', jump.text);
        const { valid, errors } = new Validator(SCHEMA as object, '2020-12').validate(JSON.parse(jump.text));
        assert.ok(valid, JSON.stringify({ text: jump.text, errors }));
        assert.equal(oracle.steps, oracle.tokens.length);
        assert.equal(jump.steps, jump.forwardCalls);
        // At temperature 1 these models write many spaces, which are not forced, so fewer steps are saved.
        const minimumGain = temperature === 0 ? 2 : 1.2;
        assert.ok(
          minimumGain * jump.steps <= oracle.steps,
          `${jump.steps} steps instead of ${oracle.steps}: ${jump.text}`,
        );
        // The mask of the grammar allows more than one way to spell the same text, so the tokens of `step` may differ.
        const step = await generate({ way: 'step', model, temperature });
        assert.equal(step.steps, step.tokens.length);
        assert.ok(minimumGain * jump.steps <= step.steps, `${jump.steps} steps instead of ${step.steps}`);
      }
    });

    it(`gives the same texts and contexts in runs as step by step on ${model}, for each kind of ending`, async () => {
      const ends = [
        {},
        { maxTokens: 23 },
        { stop: 'preferred' },
        { maxTokens: 30, pipe: true },
        { stop: 'german', pipe: true },
      ];
      for (const [i, end] of ends.entries()) {
        const input = { model, temperature: i % 2, seed: 40 + i, follow: true, ...end };
        const { steps: jumpSteps, forwardCalls: _, ...jump } = await generate({ way: 'jump', ...input });
        const { steps, forwardCalls: __, ...run } = await generate({ way: 'run', ...input });
        assert.deepEqual(run, jump);
        // A run may take one step more, since it also computes forced tokens at its end. After a stop string, a run decodes on until its slice of
        // time ends, so its steps say nothing.
        if (end.stop === undefined) assert.ok(steps <= jumpSteps + 1, `${steps} steps instead of ${jumpSteps}`);
      }
    });

    it(`takes fewer tokens and steps for compact JSON on ${model}, after a prompt with indented JSON`, async () => {
      const prompt = `${JSON.stringify(EXAMPLE, null, 2)}\n`;
      const indented = await generate({ way: 'jump', model, prompt });
      const compact = await generate({ way: 'jump', model, prompt, compact: true });
      assert.match(indented.text, /\s/);
      assert.equal(compact.text, JSON.stringify(JSON.parse(compact.text)));
      assert.ok(compact.tokens.length < indented.tokens.length, `${compact.text} instead of ${indented.text}`);
      assert.ok(compact.steps < indented.steps, `${compact.steps} steps instead of ${indented.steps}`);
      const schema = { ...SCHEMA, 'x-guidance': { whitespace_flexible: false } };
      const oracle = await generate({ way: 'oracle', model, prompt, schema });
      assert.deepEqual([compact.text, compact.tokens], [oracle.text, oracle.tokens]);
    });
  }

  it('refuses a list as a schema, compact or not', async () => {
    const platform = await functionsPlatform();
    for (const compact of [false, true]) {
      const input = { way: 'jump', model: STORIES, prompt: PROMPT, schema: '[]', compact };
      assert.match((await failure(platform, 'constrained', input)).message, /a schema must be an object/);
    }
  });
});
