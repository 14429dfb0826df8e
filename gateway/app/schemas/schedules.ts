import { z } from '@hono/zod-openapi';
import { timestamp } from './timestamp.ts';

export const ScheduleSchema = z
  .object({
    name: z.string(),
    function: z.string().openapi({ description: 'The function, with a version or an alias if one was named' }),
    input: z.unknown(),
    cron: z.string().optional().openapi({ example: '0 3 * * *' }),
    timezone: z.string().optional().openapi({ example: 'Europe/Berlin' }),
    everyMs: z.int().optional().openapi({ description: 'Interval in milliseconds; absent when `cron` is set' }),
    createdAt: timestamp,
    createdBy: z.string().openapi({ description: 'Id of the key that set it' }),
    nextAt: timestamp.nullable(),
    last: z
      .object({
        at: timestamp,
        invocation: z.string().optional(),
        error: z.object({ code: z.string(), message: z.string() }).optional(),
      })
      .nullable()
      .openapi({
        description: 'The last time, with its invocation or the error that prevented it; null before the first one',
      }),
  })
  .openapi('Schedule', { description: 'Times at which the platform invokes a function.' });

export type Schedule = z.infer<typeof ScheduleSchema>;
