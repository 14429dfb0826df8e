import { z } from '@hono/zod-openapi';
import { timestamp } from './timestamp.ts';

export const ScheduleSchema = z
  .object({
    name: z.string(),
    function: z
      .string()
      .openapi({ description: 'The function, as `name@version` or `name@alias` if the schedule names one' }),
    input: z.unknown(),
    cron: z.string().optional().openapi({ example: '0 3 * * *' }),
    timezone: z.string().optional().openapi({ example: 'Europe/Berlin' }),
    everyMs: z.int().optional().openapi({ description: 'Interval in milliseconds; absent when `cron` is set' }),
    createdAt: timestamp,
    createdBy: z.string().openapi({ description: 'Id of the API key that set the schedule' }),
    nextAt: timestamp.nullable().openapi({
      description:
        'The next time; null while the schedule is suspended, and after a change that was interrupted, until a gateway starts and sets the time',
    }),
    suspended: z.string().optional().openapi({
      description:
        'Present while the schedule makes no invocations, because three gateways in a row died while they made one: why, and how to resume it',
    }),
    last: z
      .object({
        at: timestamp,
        invocation: z.string().optional(),
        error: z.object({ code: z.string(), message: z.string() }).optional(),
      })
      .nullable()
      .openapi({
        description:
          'Outcome of the last time: its `invocation`, or the `error` that prevented one; null before the first time',
      }),
  })
  .openapi('Schedule', { description: 'Times at which the platform invokes a function.' });

export type Schedule = z.infer<typeof ScheduleSchema>;
