import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';

/** Parses JSON text. For any other text, returns `invalid-argument` with the parser's message. */
export function parseJson(text: string): Outcome<unknown> {
  try {
    return ok(jsonValue(text));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return err(handlerError('invalid-argument', `the text is not JSON: ${reason}`));
  }
}
