import { type JsonOptions, jsonSchema } from './constraints.ts';
import type { Constraint } from './decoders.ts';
import { InferletError } from './errors.ts';

/** A schema of zod or another library that implements Standard Schema. Some can convert themselves to JSON schema. */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly types?: { readonly output: Output } | undefined;
    validate(value: unknown): StandardOutcome<Output> | Promise<StandardOutcome<Output>>;
    readonly jsonSchema?: { input(options: { target: string }): object };
  };
  toJSONSchema?(): object;
}

/** Outcome of validating a value. */
export type StandardOutcome<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** The type of values that a schema accepts. */
export type OutputOf<Schema> = Schema extends StandardSchema<infer Output> ? Output : unknown;

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
  const standard = schema['~standard'];
  const whole = toJsonSchema ? toJsonSchema(schema) : standard.jsonSchema?.input({ target: 'draft-2020-12' });
  if (!whole) {
    throw new InferletError(
      'invalid-argument',
      'This schema cannot say itself as JSON schema: pass what can as the second argument (zod/mini: typed(schema, z.toJSONSchema)).',
    );
  }
  const { $schema: _, ...grammar } = whole as Record<string, unknown>;
  const constraint = jsonSchema(grammar, options);
  return {
    decoder: (sequence, sampler, seed, options) => constraint.decoder(sequence, sampler, seed, options),
    parse(text) {
      const result = standard.validate(constraint.parse(text));
      if (result instanceof Promise) {
        throw new InferletError('unsupported', 'A schema that checks asynchronously cannot be used here.');
      }
      if (result.issues === undefined) return result.value as OutputOf<Schema>;
      const faults = result.issues.map(
        ({ message, path = [] }) => `${path.map(String).join('.') || 'value'}: ${message}`,
      );
      throw new InferletError('invalid-argument', `The text does not fit its schema: ${faults.join('; ')}`);
    },
  };
}
