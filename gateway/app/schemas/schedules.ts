import { z } from '@hono/zod-openapi';
import { timestamp } from './timestamp.ts';

export const ScheduleSchema = z
  .object({
    name: z.string(),
    function: z.string().openapi({ description: 'The function, with a version or an alias if one was named' }),
    input: z.unknown(),
    cron: z.string().optional().openapi({ example: '0 3 * * *' }),
    timezone: z.string().optional().openapi({ example: 'Europe/Berlin' }),
    everyMs: z.int().optional().openapi({ description: 'The interval, of a schedule without a pattern' }),
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
      .openapi({ description: 'The last time: its invocation, or the error that refused it' }),
  })
  .openapi('Schedule', { description: 'A function that the platform invokes at set times.' });

export type Schedule = z.infer<typeof ScheduleSchema>;
