import assert from 'node:assert/strict';
import type { LogFields, Logger } from '../policies/logger.ts';

export const silentLog: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined };

/** A log for tests in which nothing may be logged. */
export const failingLog: Logger = { error: fail, warn: fail, info: fail };

function fail({ error }: LogFields, message: string): never {
  throw new assert.AssertionError({ message: `logged: ${message} (${error})` });
}

/** A log that keeps its records. */
export class CollectedLog implements Logger {
  readonly records: { readonly level: keyof Logger; readonly message: string; readonly fields: LogFields }[] = [];

  /** The errors of all records that have one. */
  readonly errors: unknown[] = [];

  error(fields: LogFields, message: string): void {
    this.#keep('error', fields, message);
  }

  warn(fields: LogFields, message: string): void {
    this.#keep('warn', fields, message);
  }

  info(fields: LogFields, message: string): void {
    this.#keep('info', fields, message);
  }

  #keep(level: keyof Logger, fields: LogFields, message: string): void {
    this.records.push({ level, message, fields });
    if ('error' in fields) this.errors.push(fields.error);
  }
}
