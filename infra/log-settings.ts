import { z } from 'zod';

export interface LogSettings {
  /** The log drops records below this level. */
  readonly level: (typeof LEVELS)[number];
  /** `text`: one line a record for people, and the stack of an error below it. `json`: one JSON object a line. */
  readonly format: (typeof FORMATS)[number];
}

const LEVELS = ['error', 'warn', 'info'] as const;
const FORMATS = ['text', 'json'] as const;

const DEFAULT_LOG: LogSettings = { level: 'info', format: 'text' };

export const logSchema = z
  .strictObject({ level: z.enum(LEVELS).optional(), format: z.enum(FORMATS).optional() })
  .prefault({});

export const logEnvironment = { PIE_LOG_LEVEL: z.enum(LEVELS).optional(), PIE_LOG_FORMAT: z.enum(FORMATS).optional() };

/** Settings of the environment alone, for a process that has not read its configuration. Ignores wrong ones: `loadConfig` reports them. */
export function environmentLog(): LogSettings {
  const { data } = z.object(logEnvironment).safeParse(process.env);
  return logSettings({}, data ?? {});
}

/** Settings of the log of each process: those of the environment, else of the file. */
export function logSettings(
  file: z.output<typeof logSchema>,
  env: z.output<z.ZodObject<typeof logEnvironment>>,
): LogSettings {
  return {
    level: env.PIE_LOG_LEVEL ?? file.level ?? DEFAULT_LOG.level,
    format: env.PIE_LOG_FORMAT ?? file.format ?? DEFAULT_LOG.format,
  };
}
