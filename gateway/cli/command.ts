import type { PieClient } from '../client/client.ts';
import type { Credentials } from './credentials.ts';
import type { Terminal } from './terminal.ts';

export interface Argument {
  readonly name: string;
  readonly help: string;
  readonly required: boolean;
  /** Takes all following words. */
  readonly rest?: boolean;
}

export interface Option {
  /** As written: `--name <name>`, `-f, --follow`. */
  readonly flags: string;
  readonly help: string;
  readonly choices?: readonly string[];
  /** Allows repetition; the values come as a list. */
  readonly repeat?: boolean;
  /** Turns the text into a value; throws {@link Failure} for an invalid one. */
  readonly parse?: (text: string) => unknown;
}

export interface Example {
  readonly line: string;
  readonly does: string;
}

/** Context of a command's handler. */
export interface Call {
  readonly args: readonly string[];
  /** Values by camel-cased long flag. */
  readonly options: Readonly<Record<string, unknown>>;
  readonly terminal: Terminal;
  /** Aborts at Ctrl-C, at SIGTERM, and when the output cannot be written any more. */
  readonly signal: AbortSignal;
  /** The platform's client. Throws {@link Failure} when no credentials are found or the address does not answer. */
  connect(): Promise<{ client: PieClient; credentials: Credentials }>;
}

/** A command as data: the parser, the help and the shell completions are made from it. */
export interface Command {
  /** One or two words: `deploy`, `models pull`. */
  readonly name: string;
  readonly summary: string;
  readonly description?: string;
  readonly arguments?: readonly Argument[];
  readonly options?: readonly Option[];
  readonly examples: readonly Example[];
  /** The command that its group runs by default: `pie quota` is `pie quota list`. */
  readonly byDefault?: true;
  /** Passes all words after the name to another program, flags included. */
  readonly passThrough?: boolean;
  /** Returns the exit code; 0 by default. */
  run(call: Call): Promise<number | undefined>;
}

/** The value of an option that takes text. */
export function text(options: Call['options'], name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** The values of a repeated option. */
export function texts(options: Call['options'], name: string): readonly string[] {
  const value = options[name];
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}
