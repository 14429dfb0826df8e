import { InferletError } from '../errors.ts';
import { environment as wire } from '../raw.ts';

/**
 * The function's secrets and plain variables: `"secrets": ["OPENAI_KEY"]` in `pie.json` names secrets of the tenant (`pie secrets set
 * OPENAI_KEY`), `"environment": {"MODE": "fast"}` holds variables. A deploy captures the present values of the secrets; the next deploy
 * updates them, and a rollback restores them. In log lines and error messages, the platform replaces each value of four or more characters
 * by its name. It leaves messages to the client unchanged.
 *
 * @example
 * using response = await fetch(url, { headers: { authorization: `Bearer ${environment.require('OPENAI_KEY')}` } });
 */
export const environment = {
  /** The value of a name; undefined when the manifest does not list the name. */
  get(name: string): string | undefined {
    return wire.getVariable(name) ?? undefined;
  },

  /** The value of a name. Throws `not-found` when the manifest does not list the name. */
  require(name: string): string {
    const value = environment.get(name);
    if (value !== undefined) return value;
    throw new InferletError(
      'not-found',
      `The function has no "${name}": name it in pie.json, in "secrets" or "environment".`,
    );
  },

  /** All names, in order. */
  names(): string[] {
    return wire.listVariables();
  },
} as const;
