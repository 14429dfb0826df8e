/**
 * A log of one process, with levels and fields. A message is a constant text that says what happened. Data go into `fields`: `error` (a caught error
 * or value), and names such as `invocation`, `function`, `tenant`, `model` or `machine`. Fields hold neither secrets nor inputs.
 */
export interface Logger {
  error(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
}

export type LogFields = Readonly<Record<string, unknown>>;
