/** A schema of zod or another library that implements Standard Schema. Some can convert themselves to JSON schema. */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly types?: { readonly output: Output } | undefined;
    validate(value: unknown): StandardOutcome<Output> | Promise<StandardOutcome<Output>>;
    readonly jsonSchema?: { input(options: { target: string }): object };
  };
}

/** Outcome of validating a value. */
export type StandardOutcome<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

interface StandardIssue {
  readonly message: string;
  readonly path?: readonly unknown[] | undefined;
}

/** The type of the values that a schema's validation returns. */
export type OutputOf<Schema> = Schema extends StandardSchema<infer Output> ? Output : unknown;

/** Converts a schema to a JSON schema, without the keyword that names the draft; undefined when the schema cannot convert itself. */
export function jsonSchemaOf<Schema extends StandardSchema>(
  schema: Schema,
  convert: (schema: Schema) => object | undefined = ({ '~standard': own }) =>
    own.jsonSchema?.input({ target: 'draft-2020-12' }),
): Record<string, unknown> | undefined {
  const whole = convert(schema);
  if (!whole) return undefined;
  const { $schema: _, ...rest } = whole as Record<string, unknown>;
  return rest;
}

/** The issues of a value as one line, with the path of each. */
export function issuesText(issues: readonly StandardIssue[]): string {
  return issues.map(({ message, path = [] }) => `${path.map(segment).join('.') || 'value'}: ${message}`).join('; ');
}

/** The key in a part of a path. The part is the key itself, or an object with a member `key`. */
const segment = (part: unknown): string =>
  String(typeof part === 'object' && part !== null && 'key' in part ? part.key : part);
