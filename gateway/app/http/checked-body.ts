import { z } from '@hono/zod-openapi';
import { pointerOf } from '#scheduler/functions/schema/compiled.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { wordedIssue } from '../errors/issues.ts';
import type { Body } from './bodies.ts';
import { readJson } from './body.ts';

/** Maximum bytes of a body on an administrative route. */
const MAX_SETTINGS_BYTES = 64 * 1024;

/** The documentation of a route's JSON body. {@link readChecked}, not the router, reads and bounds the body. */
export function jsonBody(schema: z.ZodType) {
  const { $schema: _, ...documented } = z.toJSONSchema(schema, {
    io: 'input',
    // zod's `readonly()` says that the app does not change a member. OpenAPI's `readOnly` would say that clients must not send the member.
    override: ({ jsonSchema }) => void delete jsonSchema.readOnly,
  });
  return { required: true, content: { 'application/json': { schema: documented as object } } };
}

/**
 * Reads and checks the JSON body of a request. Throws `body-too-large`, `malformed-json`, `unsupported-media-type`, and `invalid-input`
 * with the first invalid field.
 */
export async function readChecked<T>(body: Body, schema: z.ZodType<T>, limitBytes = MAX_SETTINGS_BYTES): Promise<T> {
  return checked((await readJson(body, limitBytes)).value, schema);
}

/** Checks the value of a JSON body. Throws `invalid-input` with the first invalid field. */
export function checked<T>(value: unknown, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const path = issue?.path ?? [];
  const keys = issue?.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : [];
  const location = path.length === 0 ? '' : ` at ${pointerOf(path)}`;
  throw new GatewayError('invalid-input', `The body is not valid${location}: it ${wordedIssue(issue)}.`, {
    field: pointerOf([...path, ...keys]),
    hint: '/docs shows the body of every route.',
  });
}
