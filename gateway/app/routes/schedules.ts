import { createRoute, z } from '@hono/zod-openapi';
import { FUNCTION_NAME } from '#scheduler/functions/aliases.ts';
import { MAX_INPUT_BYTES, normalPattern, SCHEDULE_NAME, type Timing, timingFault } from '#scheduler/schedules/rules.ts';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { textAnswer } from '../http/answer.ts';
import { readJson } from '../http/body.ts';
import { checked, jsonBody } from '../http/checked-body.ts';
import { exactJson } from '../http/exact-json.ts';
import { type StoredSchedule, TIMES_HINT } from '../resources/schedules.ts';
import { ScheduleSchema } from '../schemas/schedules.ts';
import { InputChecker } from '../validation/input.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';
import { referenceOf, throwMissing } from './functions.ts';

/** JSON may escape a byte as six characters. */
const MAX_BODY_BYTES = MAX_INPUT_BYTES * 6 + 1024;

const nameParam = z.object({
  name: z
    .string()
    .regex(SCHEDULE_NAME, 'must be a lower-case letter, then lower-case letters, digits and "-"')
    .openapi({ description: 'Name of the schedule', example: 'nightly' }),
});

const SettingsSchema = z.strictObject({
  function: z.string().min(1).max(200).meta({ description: 'A name, `name@alias` or `name@version`' }),
  input: z
    .unknown()
    .optional()
    .meta({ description: `The function's input; at most ${MAX_INPUT_BYTES} bytes of JSON` }),
  cron: z.string().optional().meta({ description: 'Five fields: minute, hour, day, month, day of the week' }),
  timezone: z
    .string()
    .optional()
    .meta({ description: 'Time zone of the pattern; UTC by default. Refused beside `everyMs`' }),
  /** From a minute to 366 days. */
  everyMs: z
    .int()
    .optional()
    .meta({ description: 'Interval, instead of a pattern: the first invocation is made at once' }),
});

/** The body of a request that sets a schedule. Either `cron` or `everyMs` is set. */
export type ScheduleSettings = z.input<typeof SettingsSchema>;

/** Schedules of the caller's tenant. */
export function scheduleRoutes(app: App, control: ControlPlane): void {
  const inputs = new InputChecker();

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/schedules',
      operationId: 'listSchedules',
      tags: ['Schedules'],
      summary: 'List schedules',
      security: SECURITY,
      responses: {
        200: json(z.object({ schedules: z.array(ScheduleSchema) }), 'The schedules, by name'),
        ...problems(),
      },
    }),
    async (c) => {
      const schedules = await control.schedules.list(callOf(c));
      return textAnswer(c, `{"schedules":[${schedules.map(jsonOf).join(',')}]}`, 200, JSON_TYPE);
    },
  );

  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/schedules/{name}',
      operationId: 'setSchedule',
      tags: ['Schedules'],
      summary: 'Set a schedule',
      description:
        'The platform then invokes the function at these times, as an ordinary invocation that names the schedule. When an invocation is refused (by a quota, or because the function no longer accepts the input), the schedule skips that time; `last` has the reason. After a stop of the platform, a schedule runs once for all the times that it missed. The removal of the function removes its schedules.',
      security: SECURITY,
      request: { params: nameParam, body: jsonBody(SettingsSchema) },
      responses: {
        200: json(ScheduleSchema, 'The schedule'),
        ...problems('unknown-function', 'unknown-alias', 'quota-schedules', ...BODY_CODES),
      },
    }),
    async (c) => {
      // A schedule invokes its function with the tenant's rights, so its creator needs the scope `invoke`, too.
      callOf(c, 'invoke');
      const call = callOf(c, 'deploy');
      const { name } = c.req.valid('param');
      const body = await readJson(c.get('body'), MAX_BODY_BYTES);
      const { function: reference, input = {}, ...times } = checked(body.value, SettingsSchema);
      const timing = timingOf(times);
      const { input: exactInput = {} } = exactJson(body.text) as { readonly input?: unknown };
      const text = JSON.stringify(exactInput);
      if (new TextEncoder().encode(text).byteLength > MAX_INPUT_BYTES)
        throw new GatewayError('invalid-input', `The input has more than ${MAX_INPUT_BYTES} bytes.`, {
          field: '/input',
        });
      const { name: fn, version } = referenceOf(reference);
      const schedule =
        !FUNCTION_NAME.test(fn) || version === ''
          ? null
          : await control.schedules.put(call, {
              name,
              timing,
              input: text,
              function: { name: fn, version },
              check: (found) => inputs.check(found, input),
            });
      return textAnswer(c, jsonOf(schedule ?? (await throwMissing(control, call, fn, version))), 200, JSON_TYPE);
    },
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/schedules/{name}/resume',
      operationId: 'resumeSchedule',
      tags: ['Schedules'],
      summary: 'Resume a suspended schedule',
      description:
        'The platform suspends a schedule after three gateways in a row died while they made its invocation; `suspended` has the reason. A schedule with an interval begins anew, with an invocation at once. A schedule that is not suspended stays as it is.',
      security: SECURITY,
      request: { params: nameParam },
      responses: { 200: json(ScheduleSchema, 'The schedule'), ...problems('unknown-schedule', 'invalid-input') },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      callOf(c, 'invoke');
      const schedule = await control.schedules.resume(callOf(c, 'deploy'), name);
      if (schedule === null) throw unknownSchedule(name);
      return textAnswer(c, jsonOf(schedule), 200, JSON_TYPE);
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/schedules/{name}',
      operationId: 'removeSchedule',
      tags: ['Schedules'],
      summary: 'Remove a schedule',
      description: 'Invocations that it started continue.',
      security: SECURITY,
      request: { params: nameParam },
      responses: { 204: { description: 'Removed' }, ...problems('unknown-schedule', 'invalid-input') },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      if (!(await control.schedules.remove(callOf(c, 'deploy'), name))) throw unknownSchedule(name);
      return c.body(null, 204);
    },
  );
}

const JSON_TYPE = { 'content-type': 'application/json' };

/** The schedule as JSON, with the text of its input as it is stored: so numbers stay as written, and a long list takes little time. */
function jsonOf({ inputText, ...schedule }: StoredSchedule): string {
  return `${JSON.stringify(schedule).slice(0, -1)},"input":${inputText}}`;
}

const unknownSchedule = (name: string) => new GatewayError('unknown-schedule', `There is no schedule "${name}".`);

function timingOf({ cron, timezone, everyMs }: Pick<ScheduleSettings, 'cron' | 'timezone' | 'everyMs'>): Timing {
  if ((cron === undefined) === (everyMs === undefined))
    throw new GatewayError('invalid-input', 'A schedule has either a pattern (`cron`) or an interval (`everyMs`).', {
      field: cron === undefined ? '/cron' : '/everyMs',
      hint: TIMES_HINT,
    });
  if (everyMs !== undefined && timezone !== undefined)
    throw new GatewayError('invalid-input', 'A schedule with an interval (`everyMs`) has no time zone (`timezone`).', {
      field: '/timezone',
      hint: 'Leave out `timezone`, or give a pattern (`cron`) instead of `everyMs`: only patterns have a time zone.',
    });
  const timing: Timing =
    cron === undefined ? { everyMs: everyMs ?? 0 } : { cron: normalPattern(cron), timezone: timezone ?? 'UTC' };
  const fault = timingFault(timing);
  if (fault === null) return timing;
  throw new GatewayError('invalid-input', fault.message, { field: `/${fault.field}`, hint: TIMES_HINT });
}
