import { InferletError } from '../errors.ts';
import type { Constraint } from '../generate/decoders.ts';
import { type JsonOptions, jsonSchema } from './constraints.ts';
import { issuesText, jsonSchemaOf, type OutputOf, type StandardSchema } from './standard-schema.ts';

/**
 * Constrains the text to JSON that fits a schema of zod (4.2 or later) or another library that implements Standard Schema. The schema also
 * types the generation's `value()`.
 * @param toJsonSchema for schemas that cannot convert themselves: `z.toJSONSchema` with zod/mini, which makes smaller components
 *
 * @example
 * const person = typed(z.object({ name: z.string(), age: z.int() }));
 * const { name, age } = await ctx.generate({ constraint: person, maxTokens: 200 }).value();
 */
export function typed<Schema extends StandardSchema>(
  schema: Schema,
  toJsonSchema?: (schema: Schema) => object,
  options?: JsonOptions,
): Constraint<OutputOf<Schema>> {
  const grammar = jsonSchemaOf(schema, toJsonSchema);
  if (!grammar) {
    throw new InferletError(
      'invalid-argument',
      'This schema cannot convert itself to a JSON schema: pass a converter (zod/mini: typed(schema, z.toJSONSchema)).',
    );
  }
  const constraint = jsonSchema(grammar, options);
  return {
    decoder: (sequence, sampler, seed, options) => constraint.decoder(sequence, sampler, seed, options),
    parse(text) {
      const result = schema['~standard'].validate(constraint.parse(text));
      if (result instanceof Promise) {
        throw new InferletError('unsupported', 'A schema that checks asynchronously cannot be used here.');
      }
      if (result.issues === undefined) return result.value as OutputOf<Schema>;
      throw new InferletError('invalid-argument', `The text does not fit its schema: ${issuesText(result.issues)}`);
    },
  };
}
