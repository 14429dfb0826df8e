/**
 * A log of one process, with levels and fields. A message says what happened and is constant; data go into `fields`: `error` (anything caught),
 * and names such as `invocation`, `function`, `tenant`, `model` or `machine`. Fields hold neither secrets nor inputs.
 */
export interface Logger {
  error(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
}

export type LogFields = Readonly<Record<string, unknown>>;
