/** Generates texts under a JSON schema in one of several ways; for `pie bench constrained` and the test of jump-forward decoding. */
import { type Constraint, Context, defineInferlet, jsonSchema, sampler } from '@pie/inferlet';
import { grammar, runtime, settle } from '@pie/inferlet/raw';

/**
 * Ways to generate. A token is forced when the grammar allows no other.
 *
 * - `run`: appends forced tokens without a step each, and the runtime decodes ahead of the inferlet.
 * - `jump`: appends forced tokens without a step each.
 * - `oracle`: makes one step for each token. A forced token replaces the sampled one, so its step needs no mask.
 * - `step`: makes one step for each token, with the grammar's mask.
 */
type Way = 'run' | 'jump' | 'oracle' | 'step';

/** A schema with options of its JSON. */
type Schema = object & { readonly 'x-guidance'?: object };

interface Input {
  readonly way: Way;
  readonly schema: Schema;
  readonly compact?: boolean;
  readonly prompt: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly seed?: number;
  readonly model?: string;
  /** Number of texts, one after the other. */
  readonly times?: number;
  readonly stop?: string;
  /** Sends the text to the client. */
  readonly pipe?: boolean;
  /** Generates six more tokens after each text. */
  readonly follow?: boolean;
}

type MakeDecoder = Constraint['decoder'];
type Decoder = ReturnType<MakeDecoder>;

export const run = defineInferlet(async (input: Input) => {
  const { way, schema, compact, prompt, maxTokens = 200, temperature = 0, seed = 1, model, times = 1 } = input;
  const { stop, pipe = false, follow = false } = input;
  const constraint = way === 'oracle' ? oracle(schema) : jsonSchema(schema, { compact });
  const texts: unknown[] = [];
  const started = runtime.now();
  for (let i = 0; i < times; i++) {
    using ctx = new Context({ model });
    const generation = ctx.fill(prompt).generate({
      constraint,
      sampler: sampler({ temperature, seed }),
      maxTokens,
      ...(stop !== undefined && { stop }),
      ...(way === 'step' && { jumpForward: false }),
      decode: way === 'run' ? 'ahead' : 'step',
    });
    const { text, tokens, finishReason } = await (pipe ? generation.pipe() : generation.collect());
    const { forwardCalls } = generation;
    const { length } = ctx;
    // These tokens depend on the keys and values of the text, so they show whether the device computed these correctly.
    const next = follow ? (await ctx.fill('\n').generate({ maxTokens: 6 }).collect()).tokens : [];
    texts.push({ text, tokens, finishReason, forwardCalls, length, next });
  }
  return { texts, elapsedMs: Number(runtime.now() - started) };
});

/** Makes one step for each token. The token that the grammar forces replaces the sampled one; if it forces none, the step samples under its mask. */
function oracle(schema: Schema): Constraint {
  const plain = jsonSchema(schema);
  return {
    parse: (text) => plain.parse(text),
    decoder(sequence, chosen, seed): Decoder {
      if (chosen.kind !== 'device') throw new Error('the oracle takes built-in samplers');
      const val = JSON.stringify({ ...schema, 'x-guidance': { ordered: true, ...schema['x-guidance'] } });
      const compiled = new grammar.Compiled(sequence.model.name, { tag: 'json-schema', val });
      const matcher = new grammar.Matcher(compiled);
      const { temperature, topK, topP, minP } = chosen;
      const wire = { temperature, topK, topP, minP, seed: chosen.seed ?? seed };
      const forced: number[] = [];
      let mustEnd = false;
      return {
        get over() {
          return mustEnd && forced.length === 0;
        },
        async next() {
          if (forced.length === 0) forced.push(...(await settle(matcher.jump(1000))));
          const token = forced.shift();
          if (token !== undefined) {
            await sequence.sample(wire);
            mustEnd = (await settle(matcher.status())).mustEnd;
            return [token];
          }
          const sampled = await sequence.sample(wire, (queue, request) => grammar.step(queue, matcher, request));
          await settle(matcher.accept(sampled));
          mustEnd = (await settle(matcher.status())).mustEnd;
          return sampled;
        },
        stop() {
          matcher.drop();
          compiled.drop();
        },
      };
    },
  };
}
