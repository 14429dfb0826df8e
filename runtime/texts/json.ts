import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';

/** Parses JSON text; returns `invalid-argument` with the parser's message otherwise. */
export function parseJson(text: string): Outcome<unknown> {
  try {
    return ok(JSON.parse(text));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return err(handlerError('invalid-argument', `the text is not JSON: ${reason}`));
  }
}
